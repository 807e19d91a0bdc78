"""Answers that were paid for: a kill pays for none twice, and a hostile one costs itself alone."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from assay.lab.evaluate.endpoint_answerer import (
    JOURNAL,
    TOGETHER,
    Place,
    ReplyJournal,
    RequestSlots,
    request_hash,
)
from assay.rollout.engines.endpoint.client import Said, Unanswered
from assay.runs.records import read_columns
from assay.runs.run_files import DamagedFile
from tests.cli.conftest import answer, assert_one_line, call
from tests.forked import assay, kill
from tests.rollout.engines.endpoint.raw_server import chat
from tests.rollout.engines.endpoint.test_client import Answer, Fake, fake, reply, said

KEY = "sk-0123456789abcdef"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


def words(root: Path, benchmark: str, take: int) -> list[str]:
    """`assay eval` of the model at the endpoint."""
    return ["eval", "openai:m", "--benchmark", benchmark, "--take", str(take), "--lab", str(root)]


def environment(server: Fake) -> dict[str, str]:
    return {"OPENAI_BASE_URL": server.endpoint().url, "OPENAI_API_KEY": KEY}


@pytest.mark.parametrize(
    ("benchmark", "take", "first"),
    [
        ("bfcl/simple_python", 12, 5),
        pytest.param("bfcl/multi_turn_base", 2, 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_kill_between_answers_pays_for_none_of_them_twice(
    tmp_path: Path, benchmark: str, take: int, first: int
) -> None:
    asked: Counter[str] = Counter()
    answered: set[str] = set()
    lock, again = threading.Lock(), threading.Event()

    def some(handler: BaseHTTPRequestHandler, body: Any) -> None:
        question = json.dumps(body["messages"])
        with lock:
            asked[question] += 1
            now = len(answered) < first or again.is_set()
            if now:
                answered.add(question)
        if not now:
            handler.server.released.wait(60)  # type: ignore[attr-defined]
            return
        said("I do not know.")(handler, body)

    with fake(some) as server:
        log = tmp_path / "log.txt"
        process = assay(*words(tmp_path, benchmark, take), log=log, **environment(server))
        end = time.monotonic() + 120
        while lines_of(tmp_path) < first and time.monotonic() < end:
            assert process.is_alive(), log.read_text()
            time.sleep(0.02)
        kill(process)
        paid = set(answered)
        again.set()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment(server).items():
                patch.setenv(name, value)
            result = call(*words(tmp_path, benchmark, take))
    assert result.exit_code == 0, result.stderr
    assert len(paid) == first and {asked[question] for question in paid} == {1}
    (file,) = tmp_path.glob("runs/*/*/evaluations/*/base.parquet")
    assert read_columns(file, ["output", "why"])["why"] == [""] * take
    assert not list(tmp_path.rglob(JOURNAL))


def lines_of(root: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in root.rglob(JOURNAL))


HOSTILE: dict[str, Answer] = {
    "half a pair": reply(200, chat("\ud800", USAGE)),
    "usage": reply(200, chat("x", {"completion_tokens": 10**30})),
    "negative": reply(200, chat("x", {"prompt_tokens": -1})),
    "NaN": reply(200, chat("x", {"cost": float("nan")})),
    "deep": reply(200, b'{"choices":' + b"[" * 50_000),
    "digits": reply(200, b'{"choices":' + b"7" * 5000 + b"}"),
    "kinds": reply(200, chat([7], USAGE)),
}
ODD = {
    "controls": "\x00\x1b[31m\x07\r\n\x85\u2028\ufffe</script><!--",
    "key": f"it is {KEY}",
    "half in a call": '<tool_call>\n{"name": "f", "arguments": {"a": "\\ud800"}}\n</tool_call>',
    "digits in a call": '<tool_call>\n{"name": "f", "arguments": {"a": 1' + "0" * 6000 + "}}\n",
}


@pytest.mark.parametrize("benchmark", ["bfcl/simple_python", "bfcl/multi_turn_base"])
def test_hostile_answers_cost_themselves_and_every_file_and_page_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: str
) -> None:
    monkeypatch.setattr("assay.rollout.engines.endpoint.client.FIRST_PAUSE", 0.001)
    odd = [reply(200, chat(text, USAGE)) for text in ODD.values()]
    single = benchmark == "bfcl/simple_python"
    kinds = [*HOSTILE.values(), *odd] if single else [HOSTILE["usage"], *odd]
    take = len(kinds) + 1 if single else 3
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def each(handler: BaseHTTPRequestHandler, body: Any) -> None:
        question = json.dumps(body["messages"])
        with lock:
            number = seen.setdefault(question, len(seen))
        (kinds[number] if number < len(kinds) else said("No."))(handler, body)

    with fake(each) as server:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        result = call(*words(tmp_path, benchmark, take), "--json")
        assert result.exit_code == 0, result.stderr
        file = Path(answer(result)["result"]["file"])
    columns = read_columns(file, ["output", "score", "why"])
    assert columns["score"].count(None) == (len(HOSTILE) if single else 1)
    if single:
        reasons = [why for why in columns["why"] if why.startswith("endpoint: unusable answer: ")]
        assert len(reasons) == len(HOSTILE)
        assert ODD["controls"] in columns["output"] and "it is [key]" in columns["output"]
    run = f"{file.parents[2].parent.name}/{file.parents[2].name}"
    items = sorted(set(read_columns(file, ["item_id"])["item_id"]))
    for verb in (["runs"], *(["report", f"{run}:{item}"] for item in items), ["report", run]):
        shown = call(*verb, "--lab", tmp_path)
        assert shown.exit_code == 0, (verb, shown.stderr)
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and KEY.encode() in f.read_bytes()]
    for page in tmp_path.rglob("*.html"):
        page.read_text(encoding="utf-8")


def test_requests_that_wait_hold_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, order = threading.Lock(), []

    def busy(handler: BaseHTTPRequestHandler, body: Any) -> None:
        question = json.dumps(body["messages"])
        with lock:
            order.append(question)
            number = len(set(order))
            fresh = order.count(question) == 1
        if number <= 8 and fresh:
            handler.send_response(429)
            handler.send_header("Retry-After", "2")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        else:
            said("No.")(handler, body)

    with fake(busy) as server:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        result = call(*words(tmp_path, "bfcl/simple_python", 16), "--json")
    assert result.exit_code == 0 and answer(result)["result"]["abstained"] == 0
    assert len(order) == 16 + 8
    assert len(set(order[:16])) == 16, (
        "the eight that are not turned away come before any second try"
    )


def test_a_slot_is_free_while_its_holder_waits_and_nobody_begins_after_the_end() -> None:
    slots = RequestSlots(1)
    done: list[str] = []

    def waits() -> None:
        with slots.held():
            done.append("waits")
            try:
                slots.pause(60)
            except RuntimeError:
                done.append("woken")

    thread = threading.Thread(target=waits)
    thread.start()
    while not done:
        time.sleep(0.001)
    with slots.held():
        done.append("other")
    slots.close()
    thread.join(10)
    assert done == ["waits", "other", "woken"]
    with pytest.raises(RuntimeError), slots.held():
        done.append("late")


PLACE = Place("item", 0, 0, request_hash(["hi"]))
SAID = Said("text \x00 \u2028", "length", 7, None)


def test_a_journal_gives_back_what_came_and_forgets_a_torn_line(tmp_path: Path) -> None:
    journal = ReplyJournal(tmp_path)
    journal.add(PLACE, SAID)
    journal.add(Place("other", 1, 2, "x"), Unanswered("HTTP 400", "too long"))
    file = tmp_path / JOURNAL
    whole = file.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        file.write_bytes(whole[:cut])
        journal = ReplyJournal(tmp_path)
        assert journal.known(PLACE) == SAID
        assert journal.known(Place("other", 1, 2, "x")) is None
        journal.add(Place("third", 0, 0, "y"), SAID)
        journal = ReplyJournal(tmp_path)
        assert journal.known(Place("third", 0, 0, "y")) == SAID
    file.write_bytes(whole)
    journal = ReplyJournal(tmp_path)
    failed = journal.known(Place("other", 1, 2, "x"))
    assert isinstance(failed, Unanswered) and str(failed) == "HTTP 400: too long"
    assert journal.known(Place("item", 0, 0, request_hash(["ho"]))) is None


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b"\xff",
        b'{"item": 5, "repeat": 0, "turn": 0, "request": "x", "reason": "", "detail": ""}',
        b'{"item": "i", "repeat": true, "turn": 0, "request": "x", "reason": "", "detail": ""}',
    ],
)
def test_a_damaged_line_of_a_journal_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(line + b"\n")
    with pytest.raises(DamagedFile, match=f"{JOURNAL}:1: "):
        ReplyJournal(tmp_path)


def test_a_disk_that_takes_no_reply_stops_the_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        if path.name == JOURNAL:
            raise OSError(28, "No space left on device")

    with fake(said("No.")) as server:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("assay.lab.evaluate.endpoint_answerer.sync", full)
        result = call(*words(tmp_path, "bfcl/simple_python", 20))
    assert_one_line(result, JOURNAL, "No space left", code=1)
    assert len(server.asked) <= TOGETHER
