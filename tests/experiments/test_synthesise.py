"""The shipped tables make what docs/synthesise.md says, by the scripted teacher beside them."""

import json
import runpy
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from assay.lab.monitor.observer import Silent
from assay.lab.synthesise.made_set import MadeSet
from tests.from_files import generate_tables

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "synthesise"


def make(root: Path, name: str, *overrides: str) -> MadeSet:
    """The table of one of the files, made in a lab that has the experiments of the checkout."""
    if not (root / "experiments").exists():
        (root / "experiments").symlink_to(ROOT / "experiments")
    teacher = runpy.run_path(str(FOLDER / "scripted_teacher.py"))["Teacher"]
    lines = (FOLDER / f"{name}-teacher.jsonl").read_text(encoding="utf-8").splitlines()
    teacher.rules = [json.loads(line) for line in lines]
    teacher.log_message = lambda *_: None
    server = ThreadingHTTPServer(("127.0.0.1", 0), teacher)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"model.teacher.endpoint=http://127.0.0.1:{server.server_port}/v1"
    try:
        given = (FOLDER / f"{name}.toml", (*overrides, endpoint), root, None, Silent())
        (found,) = generate_tables(*given, "synthesise")
    finally:
        server.shutdown()
        server.server_close()
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
    assert len(rows) == 12 and found.reasons == {"gold": 7, "same": 29}
    # She is six years younger: 14. The teacher says 10 each time.
    steady = {question: gold for question, gold in rows.items() if "Tom" in question}
    assert [*steady.values()] == ["10"]


def test_answers_about_documents_stand_in_them(tmp_path):
    found = make(tmp_path, "documents")
    assert len(found.rows) == 7 and found.reasons["gold"]
    for row in found.rows:
        assert str(row.gold).lower() in row.messages[0].content.lower()
    assert "Anne Lindboe" not in made_rows(found).values()
