"""Many requests at once: connections are shared, faults pass, and who waits can be interrupted."""

import asyncio
import gc
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from assay.data.row import Message
from assay.rl.policy import Sampling
from assay.rollout.engines.endpoint import client
from assay.rollout.engines.endpoint.client import Connections, Endpoint, EndpointAnswer, Unanswered
from tests.rollout.engines.endpoint.fault_server import CHARGED, REFUSED, FaultServer, fault_server
from tests.rollout.engines.endpoint.raw_server import answer, raw_server, say
from tests.rollout.engines.endpoint.raw_server import chat as chat_body

UNTRIED = ("answer", "uncounted", "denied")
"""No faults, and one after which nobody asks again."""
SAMPLING = Sampling(0.0, 16)


@pytest.fixture(autouse=True)
def without_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.001)


def asked(text: str = "hi") -> tuple[Message, ...]:
    return (Message("user", text),)


def say_all(endpoint: Endpoint, count: int) -> list[EndpointAnswer]:
    """So many questions at once, from one thread."""

    async def every() -> list[EndpointAnswer]:
        questions = (endpoint.answer(asked(f"q{n}"), (), SAMPLING) for n in range(count))
        return await asyncio.gather(*questions)

    return endpoint.connections.wait(every())


class Counting:
    """A charge that counts."""

    def __init__(self) -> None:
        self.attempts = self.losses = 0

    async def attempt(self) -> None:
        self.attempts += 1

    def lost(self) -> None:
        self.losses += 1


def outcome_of(fault: str, timeout: float = 1.0) -> tuple[Counting, EndpointAnswer]:
    """What becomes of a question whose first attempt has this fault."""
    with fault_server(FaultServer(lambda n: "answer" if n else fault)) as server:
        endpoint, charge = Endpoint(server.url, "m", deadline=10.0, timeout=timeout), Counting()
        said = endpoint.connections.wait(endpoint.answer(asked(), (), SAMPLING, charge=charge))
    return charge, said


def test_each_answer_goes_to_its_own_question_over_connections_that_are_used_again():
    with fault_server(FaultServer(lambda n: "answer", seconds=0.02)) as server:
        endpoint = Endpoint(server.url, "m", turns=asyncio.Semaphore(16))
        said = say_all(endpoint, 100)
    assert [each.text for each in said] == [f"about q{n}" for n in range(100)]
    assert server.at_once == 16 == server.connections


@pytest.mark.parametrize("fault", [f for f in (*REFUSED, *CHARGED) if f not in UNTRIED])
def test_a_fault_is_asked_again_and_counted_as_lost_where_it_may_have_been_charged(fault):
    charge, said = outcome_of(fault)
    assert said.text == "about hi" and charge.attempts == 2
    assert charge.losses == (fault in CHARGED)


def test_a_connection_that_is_refused_cannot_have_been_charged():
    charge = Counting()
    endpoint = Endpoint("http://127.0.0.1:9/v1", "m", deadline=5.0)
    with pytest.raises(Unanswered, match="ConnectError"):
        endpoint.connections.wait(endpoint.answer(asked(), (), SAMPLING, charge=charge))
    assert charge.attempts == client.ATTEMPTS and charge.losses == 0


@pytest.mark.parametrize(("status", "charged"), [(502, True), (504, True), (503, False)])
def test_a_gateway_may_have_charged_for_what_it_did_not_pass_on(status, charged):
    with raw_server(answer(b"", f"{status} X"), answer(chat_body("late"))) as server:
        endpoint, charge = Endpoint(f"{server.address}/v1", "m"), Counting()
        endpoint.connections.wait(endpoint.answer(asked(), (), SAMPLING, charge=charge))
    assert charge.losses == charged


def test_what_a_charge_raises_keeps_the_request_from_being_sent():
    class Refusing(Counting):
        async def attempt(self) -> None:
            raise PermissionError("no money")

    with fault_server(FaultServer(lambda n: "answer")) as server:
        endpoint = Endpoint(server.url, "m")
        with pytest.raises(PermissionError):
            endpoint.connections.wait(endpoint.answer(asked(), (), SAMPLING, charge=Refusing()))
    assert not server.done


def test_waiting_for_a_turn_takes_nothing_from_the_deadline():
    with fault_server(FaultServer(lambda n: "answer", seconds=0.1)) as server:
        endpoint = Endpoint(server.url, "m", deadline=2.0, turns=asyncio.Semaphore(1))
        assert len(say_all(endpoint, 24)) == 24


def test_threads_share_one_loop_and_the_loop_ends_with_the_endpoint():
    def loops() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name == "assay-endpoint-loop"}

    before = loops()
    with fault_server(FaultServer(lambda n: "answer", seconds=0.05)) as server:
        endpoint = Endpoint(server.url, "m")
        args = (asked(), (), SAMPLING)
        with ThreadPoolExecutor(20) as threads:
            said = [threads.submit(say, endpoint, *args) for _ in range(20)]
        assert all(each.result() for each in said)
        (own,) = loops() - before
        assert server.at_once > 1
        del endpoint, said
        gc.collect()
    own.join(10)
    assert not own.is_alive()


def test_a_cookie_is_not_sent_back():
    cookie = answer(chat_body("x"), headers="Set-Cookie: who=me\r\n")
    with raw_server(cookie) as server:
        endpoint = Endpoint(f"{server.address}/v1", "m")
        for _ in range(2):
            say(endpoint, asked(), (), SAMPLING)
    assert len(server.requests) == 2 and b"cookie" not in server.requests[1].lower()


@pytest.mark.parametrize(("seconds", "connections"), [(0.0, 2), (60.0, 1)])
def test_a_connection_that_was_idle_for_too_long_is_not_used_again(
    monkeypatch, seconds, connections
):
    """The server would close it while the next request is under way."""
    monkeypatch.setattr("assay.rollout.engines.endpoint.client.KEPT_SECONDS", seconds)
    with fault_server(FaultServer(lambda n: "answer")) as server:
        endpoint = Endpoint(server.url, "m")
        for _ in range(2):
            say(endpoint, asked(), (), SAMPLING)
    assert server.connections == connections


def test_a_thread_that_is_interrupted_gives_its_request_up(monkeypatch):
    started, given_up = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            given_up.set()
            raise

    def interrupted(future: Future, timeout: float | None = None) -> None:
        started.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Connections().wait(work())
    assert given_up.wait(10)
