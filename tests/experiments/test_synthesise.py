"""The shipped tables make what docs/synthesise.md says, by script and by a failing endpoint."""

import json
import re
import zlib
from collections import Counter
from pathlib import Path

import pytest

from assay.lab.monitor.observer import Silent
from assay.lab.setup.session import generate_tables
from assay.lab.synthesise.made_set import MadeSet
from assay.rollout.engines.endpoint import client
from tests.rollout.engines.endpoint.fault_server import FaultServer, drawn, fault_server

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "synthesise"
FAULTS = ("answer", "answer", "429", "later", "500", "truncated")


def make(root: Path, name: str, *overrides: str) -> MadeSet:
    """The table of one of the files, made in a lab that has the experiments of the checkout."""
    if not (root / "experiments").exists():
        (root / "experiments").symlink_to(ROOT / "experiments")
    given = (FOLDER / f"{name}.toml", overrides, root, None, "1/1", Silent())
    (found,) = generate_tables(*given, "synthesise")
    return found


def made_rows(found: MadeSet) -> dict[str, str]:
    return {row.messages[-2].content: str(row.gold) for row in found.rows}


@pytest.mark.slow
def test_calls_of_tools_are_kept_where_they_fit_and_apart_from_the_benchmark(tmp_path):
    found = make(tmp_path, "tools")
    assert (len(found.rows), found.stopped) == (11, "")
    assert found.held_out == ("bfcl/simple_python",)
    assert found.reasons["leaked"] > 0 < found.reasons["calls"]
    for row in found.rows:
        (call,) = row.messages[-1].tool_calls
        assert call.name in json.dumps(row.tools)


@pytest.mark.slow
def test_steps_that_come_to_another_answer_are_refused_and_steady_errors_get_in(tmp_path):
    found = make(tmp_path, "sums", "synthesise.sums.rows=20")
    rows = made_rows(found)
    assert len(rows) == 12 and found.reasons == {"gold": 1, "same": 35}
    # She is six years younger: 14. The teacher says 10 each time.
    steady = {question: gold for question, gold in rows.items() if "Tom" in question}
    assert [*steady.values()] == ["10"]


def test_answers_about_documents_stand_in_them(tmp_path):
    found = make(tmp_path, "documents")
    assert len(found.rows) == 7 and found.reasons["gold"]
    for row in found.rows:
        assert str(row.gold).lower() in row.messages[0].content.lower()
    assert "Anne Lindboe" not in made_rows(found).values()


def scripted(name: str):
    """The answers of a teacher's script, drawn by what is asked."""
    lines = (FOLDER / f"{name}-teacher.jsonl").read_text().splitlines()
    rules = [json.loads(line) for line in lines]

    def says(text: str) -> str:
        asked = f"user: {text}"
        rule = next(rule for rule in rules if re.search(rule["prompt"], asked))
        return rule["answer"][zlib.crc32(text.encode()) % len(rule["answer"])]

    return says


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tools", "sums", "documents"])
def test_an_endpoint_that_fails_at_random_is_paid_for_each_answer_once(name, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.001)
    with fault_server(FaultServer(drawn(FAULTS, 1), says=scripted(name))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        first = len(make(tmp_path, name).rows)
        found = make(tmp_path, name)
    assert found.teacher == "openai:gpt-4o-mini" and len(found.rows) >= first > 2
    lost = server.done["truncated"]
    total = found.total
    assert lost and total is not None and total.uncertain > 0
    assert server.charged == total.calls - total.failed + lost
    paid = Counter(row.extra["synthesis"]["cost"] > 0 for row in found.rows)
    assert paid == {True: len(found.rows)}
