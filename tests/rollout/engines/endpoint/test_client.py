"""An endpoint's model is asked as it understands, and whatever goes wrong is no answer, never 0."""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from assay.data.formats.formats import read_rows
from assay.data.loaded import DataError
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, ToolCall
from assay.errors import InputError
from assay.labs.tools.parsing import parse_strict
from assay.rl.policy import Sampling
from assay.rollout.engines.endpoint.client import ATTEMPTS, Endpoint, Unanswered, endpoint_of
from assay.rollout.engines.endpoint.openai_text import portable
from tests.rollout.engines.endpoint.raw_server import say

KEY = "sk-very-secret"
ASKED = (Message("user", "hi"),)
SAMPLING = Sampling(0.0, 16)
Answer = Callable[[BaseHTTPRequestHandler, Any], None]


def reply(status: int, body: Any) -> Answer:
    """An answer with a body of JSON or raw bytes."""

    def answer(handler: BaseHTTPRequestHandler, _: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    return answer


def said(
    content: str | list[Any] | None, calls: Sequence[Any] = (), finish: str = "stop"
) -> Answer:
    """A chat answer."""
    message = {"role": "assistant", "content": content, "tool_calls": list(calls)}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return reply(200, {"choices": [choice], "usage": usage})


def cut(handler: BaseHTTPRequestHandler, _: Any) -> None:
    """Promises more than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')


PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)


class Fake:
    """A server that answers from a list, the last answer again and again."""

    def __init__(self, server: ThreadingHTTPServer, answers: Sequence[Answer]):
        self.server, self.answers = server, answers
        self.asked: list[tuple[str, Any, str | None]] = []
        self.pauses: list[float] = []

    def endpoint(self, deadline: float = 20.0) -> Endpoint:
        """A client that does not really pause."""
        url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        return Endpoint(url, "m", KEY, deadline, self.pauses.append)


@contextmanager
def fake(*answers: Answer) -> Iterator[Fake]:
    """A scripted server on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.asked.append((self.path, body, self.headers["Authorization"]))
            try:
                answers[min(len(seen.asked), len(answers)) - 1](self, body)
            except (BrokenPipeError, ConnectionResetError):
                seen.pauses.append(-1.0)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.released = threading.Event()  # type: ignore[attr-defined]
    seen = Fake(server, answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield seen
    finally:
        server.released.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


TOOL = {
    "name": "math.add",
    "description": "Adds.",
    "parameters": {
        "type": "dict",
        "properties": {"a": {"type": "float"}, "b": {"type": "tuple", "items": {"type": "any"}}},
    },
}


def test_tools_go_out_in_openais_words_and_calls_come_back_as_hermes_text() -> None:
    call = {"id": "1", "function": {"name": "math_add", "arguments": '{"a": 1.5}'}}
    with fake(said("Adding.", [call], "tool_calls")) as server:
        answer = say(server.endpoint(), ASKED, [TOOL], SAMPLING, seed=4)
    ((path, body, key),) = server.asked
    assert path == "/v1/chat/completions" and key == f"Bearer {KEY}"
    function = body["tools"][0]["function"]
    assert function["name"] == "math_add"
    assert function["parameters"]["type"] == "object"
    kinds = function["parameters"]["properties"]
    assert kinds == {"a": {"type": "number"}, "b": {"type": "array", "items": {"type": "string"}}}
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.0, 16, 4)
    parsed = parse_strict(answer.text)
    assert parsed.calls == (ToolCall("math.add", {"a": 1.5}),)
    assert answer.text.startswith("Adding.\n<tool_call>")
    assert (answer.ended, answer.prompt_tokens, answer.completion_tokens) == ("stop", 7, 3)


def test_arguments_that_are_no_json_stay_a_broken_call_for_the_judge() -> None:
    call = {"function": {"name": "f", "arguments": '{"a": '}}
    with fake(said(None, [call])) as server:
        answer = say(server.endpoint(), ASKED, [], SAMPLING)
    assert parse_strict(answer.text).error == "bad_json"


def test_earlier_calls_and_results_are_sent_with_ids_that_match() -> None:
    talk = (
        *ASKED,
        Message("assistant", "", (ToolCall("math.add", {"a": 1}), ToolCall("math.add", {"a": 2}))),
        Message("tool", "1"),
        Message("tool", "2"),
    )
    with fake(said("Done.", finish="length")) as server:
        assert say(server.endpoint(), talk, [TOOL], SAMPLING).ended == "length"
    sent = server.asked[0][1]["messages"]
    ids = [call["id"] for call in sent[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in sent[2:]] == ids and len(set(ids)) == 2
    assert sent[1]["tool_calls"][0]["function"] == {"name": "math_add", "arguments": '{"a": 1}'}


def test_two_names_that_come_out_alike_stay_apart_both_ways() -> None:
    names = portable([{"name": "a.b"}, {"name": "a_b"}, {"name": "a b"}])
    theirs = [names.there[name] for name in ("a.b", "a_b", "a b")]
    assert len(set(theirs)) == 3 and [names.here[name] for name in theirs] == ["a.b", "a_b", "a b"]


def test_an_unknown_rendering_is_refused_before_anything_is_sent() -> None:
    with fake(said("x")) as server, pytest.raises(RenderingError, match="own chat template"):
        say(server.endpoint(), ASKED, [], SAMPLING, "template_bare")
    assert not server.asked


FAULTS = {
    "500": (reply(500, {"error": "boom"}), "HTTP 500"),
    "429": (reply(429, {}), "HTTP 429"),
    "cut": (cut, "connection: RemoteProtocolError"),
    "not JSON": (reply(200, b"<html>"), "garbled answer"),
    "no choices": (reply(200, {"choices": []}), "garbled answer"),
    "an error within": (reply(200, {"error": {"message": "boom", "code": 502}}), "HTTP 502"),
    "an error of a choice": (
        reply(200, {"choices": [{"error": {"message": "boom", "code": "429"}}]}),
        "HTTP 429",
    ),
    "an error without a code": (reply(200, {"error": "loading"}), "HTTP 200"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_may_pass_is_asked_again_with_growing_pauses_until_it_passes(fault: str) -> None:
    with fake(FAULTS[fault][0], FAULTS[fault][0], said("at last")) as server:
        assert say(server.endpoint(), ASKED, [], SAMPLING).text == "at last"
    assert len(server.asked) == 3 and 0 < server.pauses[0] < server.pauses[1]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_never_passes_is_unanswered_with_its_reason(fault: str) -> None:
    with fake(FAULTS[fault][0]) as server, pytest.raises(Unanswered) as raised:
        say(server.endpoint(1000.0), ASKED, [], SAMPLING)
    assert raised.value.reason == FAULTS[fault][1]
    assert len(server.asked) == ATTEMPTS == len(server.pauses) + 1


def test_a_request_that_is_wrong_is_not_repeated() -> None:
    error = {"error": {"message": f"too long, {KEY}"}}
    with fake(reply(400, error)) as server, pytest.raises(Unanswered, match="too long") as raised:
        say(server.endpoint(), ASKED, [], SAMPLING)
    assert len(server.asked) == 1 and KEY not in str(raised.value)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "the prompt is too long", "code": 400}},
        {"object": "error", "message": "the prompt is too long", "code": 400},
        {"id": "x", "choices": None, "error": {"message": "the prompt is too long", "code": 400}},
    ],
)
def test_an_error_in_an_answer_is_the_providers_own_words(body: dict) -> None:
    with fake(reply(200, body)) as server, pytest.raises(Unanswered) as raised:
        say(server.endpoint(), ASKED, [], SAMPLING)
    assert str(raised.value) == "HTTP 400: the prompt is too long" and len(server.asked) == 1


TEXT = {"type": "text", "text": "1"}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([TEXT, {"type": "text", "text": "2"}], "12"),
        ([THOUGHT, TEXT], "<think>\nhm\n</think>\n\n1"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
        ([], ""),
    ],
)
def test_content_in_parts_is_their_text(content: list, text: str) -> None:
    with fake(said(content)) as server:
        assert say(server.endpoint(), ASKED, [], SAMPLING).text == text


@pytest.mark.parametrize(
    "part", [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text"}, 7]
)
def test_a_part_that_is_no_text_is_no_answer(part: object) -> None:
    with fake(said([TEXT, part])) as server, pytest.raises(Unanswered, match="is no text"):
        say(server.endpoint(), ASKED, [], SAMPLING)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_that_every_request_would_meet_stops_everything(status: int) -> None:
    body = {"error": {"message": f"no {KEY} here"}}
    with fake(reply(status, body)) as server, pytest.raises(InputError) as raised:
        say(server.endpoint(), ASKED, [], SAMPLING)
    assert str(status) in str(raised.value) and KEY not in str(raised.value)
    assert len(server.asked) == 1


def test_the_key_is_in_no_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    endpoint = endpoint_of("openai:m", "http://127.0.0.1:1/v1")
    assert endpoint.key == KEY and KEY not in repr(endpoint) and endpoint.model == "m"


@pytest.mark.parametrize(
    "url", ["", "ftp://host/v1", "host/v1", "http://a:b@host/v1", "http://host/v1?key=x", "http://"]
)
def test_a_url_that_cannot_be_recorded_or_asked_is_refused(url: str, monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(InputError):
        endpoint_of("openai:m", url)


def test_an_image_goes_to_the_chat_endpoint_as_a_data_url_and_to_no_text(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    content = [{"type": "image_url", "image_url": {"url": "cat.png"}}]
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": content}], "gold": 1}))
    (row,) = read_rows(file, "messages")
    with fake(said("A cat.")) as server:
        assert say(server.endpoint(), row.prompt, (), SAMPLING).text == "A cat."
        with pytest.raises(DataError, match=r"rows\.jsonl:1: .*hermes.*cannot carry"):
            say(server.endpoint(), row.prompt, (), SAMPLING, "hermes")
    ((path, body, _),) = server.asked
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    sent = [{"type": "image_url", "image_url": {"url": url}}]
    assert path.endswith("chat/completions")
    assert body["messages"] == [{"role": "user", "content": sent}]
