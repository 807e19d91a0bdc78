"""Stored selections are made before a run learns from them, whatever stops the work, and
runs that learned from different ones are not compared.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

from assay.data.files import append_line
from assay.errors import InputError
from assay.lab.monitor.observer import Silent
from assay.labs.demos import generate as generate_selections
from assay.labs.demos.generate import Generated
from tests.cli.conftest import answer, assert_one_line, call
from tests.from_files import generate_tables, start
from tests.labs.demos.kinds_lab import EXPERIMENT, KINDS, make_kinds_lab


def merged(lab: Path, name: str = "best") -> Path:
    (found,) = lab.glob(f"generated/{name}-*/selections.json")
    return found


def made(folder: Path) -> list[Generated]:
    return generate_tables(folder / "kinds.toml", (), folder, "best", Silent())


@pytest.fixture(scope="module")
def whole(lab: Path) -> bytes:
    """The selections as one process made them."""
    return merged(lab).read_bytes()


def test_a_run_makes_what_is_missing_and_learns_from_it(lab):
    (run,) = (lab / "runs" / "kinds").iterdir()
    table = json.loads((run / "manifest.json").read_text())["data"]["beams"]
    assert table["train"]["rows"] == 12
    assert table["selections"]["kind"] == "beam" and len(table["selections"]["file_sha256"]) == 64


def test_the_first_selection_of_a_query_holds_what_helps_it_most(lab):
    """Two demonstrations of the query's kind are better than one, and any beats none."""
    for key, entry in json.loads(merged(lab).read_text()).items():
        if key.isdecimal():
            best = entry["pointer_candidates"][0]
            kinds = [number % KINDS for number in best["pointer_global"]]
            pool = [number % KINDS for number in entry["candidate_pool_ids"]]
            assert kinds.count(int(key) % KINDS) == min(2, pool.count(int(key) % KINDS))
            assert int(key) not in entry["candidate_pool_ids"]


def test_half_a_line_is_made_again(tmp_path, whole, monkeypatch):
    """Two lines and a half of a third are there; nothing is lost in the end."""
    make_kinds_lab(tmp_path)
    lines: list[str] = []

    def append(file: Path, line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            with file.open("a") as stream:
                stream.write(line[: len(line) // 2])
            sys.exit()
        append_line(file, line)

    monkeypatch.setattr(generate_selections, "append_line", append)
    with pytest.raises(SystemExit):
        made(tmp_path)
    monkeypatch.undo()
    (journal,) = tmp_path.glob("generated/best-*/queries.jsonl")
    assert journal.read_bytes().count(b"\n") == 2
    (found,) = made(tmp_path)
    assert found.made == 10
    assert merged(tmp_path).read_bytes() == whole


def test_selections_of_another_script_are_refused(tmp_path):
    make_kinds_lab(tmp_path)
    made(tmp_path)
    with (tmp_path / "frozen.jsonl").open("a") as script:
        script.write("\n")
    with pytest.raises(InputError, match="were made of other frozen"):
        made(tmp_path)


def test_runs_on_different_selections_are_not_compared_unless_allowed(lab, tmp_path):
    root = tmp_path / "lab"
    shutil.copytree(lab, root)
    start(root / "kinds.toml", ("selections.best.width=2", "name=narrow"), root=root)
    words = ("compare", "kinds@weigh.last", "narrow@weigh.last", "--lab", root)
    compared = call(*words)
    assert "data.beams.selections" in compared.output, compared.output
    assert "not comparable" in " ".join(compared.output.split()), compared.output
    allowed = call(*words, "--allow", "data.beams")
    assert "not comparable" not in allowed.output, allowed.output


def test_check_says_what_is_missing_and_its_cost_and_makes_nothing(tmp_path):
    file = make_kinds_lab(tmp_path)
    checked = call("check", file, "--lab", tmp_path, "--json")
    assert checked.exit_code == 0, checked.output
    numbers = answer(checked)["result"]["numbers"]["selections.best"]
    # Per query 1 + 6 + 3 * 5 states and the 3 that are kept.
    assert numbers["probabilities to ask the frozen model for"] == 12 * (22 + 3)
    assert numbers["answers to ask the frozen model for"] == 12 * 3
    assert not (tmp_path / "generated").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('data  = "train"', 'data  = "beams"', "selections.best.data: the rows of 'beams'"),
        ('kind  = "beam"', 'kind  = "mixed"', "selections.best.selector: missing"),
        ("[model.frozen]", "[model.judge]", "there is no helper model 'frozen'"),
        ('kind  = "beam"\nwidth = 3', 'file  = "path:none.json"', "no such file"),
    ],
)
def test_a_table_that_cannot_be_is_refused_in_one_line(tmp_path, old, new, said):
    file = make_kinds_lab(tmp_path, EXPERIMENT.replace(old, new, 1))
    result = call("run", file, "--lab", tmp_path)
    assert said in result.output and result.exit_code == 2, result.output
    assert not (tmp_path / "runs").exists()


def test_a_name_that_no_table_has_is_refused(tmp_path):
    file = make_kinds_lab(tmp_path)
    assert_one_line(call("synthesise", file, "bset", "--lab", tmp_path), "bset", "best")
