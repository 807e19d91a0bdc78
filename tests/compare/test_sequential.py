"""Sequential comparisons of tables: the anytime-valid test decides, and every look is recorded."""

import json
from pathlib import Path

import pytest

from assay.compare.sequential import LOOKS, METHOD, compare_anytime, judged_sequentially, note_look
from assay.compare.table import Line, Pairing, Table
from assay.judge.families import holm
from assay.runs.run_files import DamagedFile
from tests.cli.conftest import call
from tests.compare.tables import results_table
from tests.compare.test_compare_names import side
from tests.english import english
from tests.judge.simulated import single_pass

ROWS = {"a": [0.0] * 40, "b": [1.0] * 12 + [0.0] * 28, "c": [1.0] * 7 + [0.0] * 33}


def table(items: int = 40) -> Table:
    return results_table(*(side(name, scores[:items]) for name, scores in ROWS.items()))


def against_control(line: Line) -> Pairing:
    assert line.to_control is not None
    return line.to_control


def test_every_comparison_is_the_anytime_valid_one_in_one_family():
    found = [against_control(line).comparison for line in judged_sequentially(table()).lines[1:]]
    raw = [compare_anytime(single_pass(ROWS["a"]), single_pass(ROWS[n])).p_value for n in "bc"]
    assert [c.p_value for c in found] == pytest.approx(raw)
    assert [c.adjusted_p for c in found] == pytest.approx(holm(raw))
    assert {c.method for c in found} == {METHOD}
    assert [c.verdict for c in found] == ["better", "undecided"]


def test_looks_are_counted_and_the_same_items_are_one_look(tmp_path: Path):
    for items, looks in ((20, "20"), (20, "20"), (40, "20, 40")):
        noted = note_look(tmp_path / "comparisons", table(items))
        assert english(noted.findings[-1]).evidence == f"items at each look: {looks}"
    assert english(noted.findings[-1]).what.startswith("look 2 ")
    lines = (tmp_path / "comparisons" / LOOKS).read_text().splitlines()
    assert [json.loads(line)["items"] for line in lines] == [20, 40]
    others = results_table(side("a", ROWS["a"]), side("b", ROWS["b"]))
    assert note_look(tmp_path / "comparisons", others).findings[-1].values["count"] == 1


@pytest.mark.parametrize("text", ["{\n", '{"items": "x"}\n'])
def test_a_damaged_file_of_looks_is_named(tmp_path: Path, text: str):
    (tmp_path / LOOKS).write_text(text)
    with pytest.raises(DamagedFile, match=LOOKS):
        note_look(tmp_path, table())


def test_the_command_compares_sequentially(tmp_path: Path):
    file = tmp_path / "scores.csv"
    for items in (10, 40):
        lines = [f"q{n},{run},{ROWS[run][n]}" for run in "ab" for n in range(items)]
        file.write_text("\n".join(["item,run,score", *lines]) + "\n")
        done = call("compare", str(file), "--sequential", "--lab", str(tmp_path))
        assert done.exit_code == 0, done.output
    assert "look 2 of a sequential comparison" in done.output and "better" in done.output
    lower = call("compare", str(file), "--sequential", "--lower-is-better", "--lab", str(tmp_path))
    assert lower.exit_code == 0 and "worse by" in lower.output and "better by" not in lower.output
    refused = call("compare", "a", "b", "--on", "x", "--on", "y", "--sequential")
    assert refused.exit_code == 2
