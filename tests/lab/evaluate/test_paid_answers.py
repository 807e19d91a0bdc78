"""Answers that were paid for: a kill pays for none twice, and a hostile one costs itself alone."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from assay.runs.cost_ledger import LEDGER, CostLedger, LedgerUnusable, read_calls
from assay.runs.records import read_columns
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
    ("benchmark", "take", "first"), [("bfcl/simple_python", 12, 5), ("bfcl/multi_turn_base", 2, 3)]
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
        while answers_in(tmp_path) < first and time.monotonic() < end:
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
    assert not list(tmp_path.rglob(LEDGER))


def answers_in(root: Path) -> int:
    files = root.rglob(LEDGER)
    return sum(each.status == "answered" for file in files for each in read_calls(file.parent))


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


def test_a_disk_that_takes_no_reply_stops_the_evaluation_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: CostLedger, *entry: object) -> None:
        raise LedgerUnusable(f"{self.file}: No space left on device")

    with fake(said("No.")) as server:
        for name, value in environment(server).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(CostLedger, "write", full)
        result = call(*words(tmp_path, "bfcl/simple_python", 20))
    assert_one_line(result, LEDGER, "No space left", code=1)
    assert not server.asked
