"""Comparisons from records: the figures are the judge's, and what is not fair is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.compare.judged_table import compare_checkpoints
from assay.compare.table import Line, Pairing
from assay.errors import InputError
from assay.judge.families import holm
from assay.judge.intervals import wilson
from assay.judge.paired import compare
from assay.judge.scores import item_scores
from assay.runs.history import find_record, measured_checkpoints
from assay.runs.records import RecordWriter
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import write_listed
from tests.compare.tables import runs_table
from tests.english import english
from tests.pages.synthetic import MANIFEST, RECORD, add_scores, answer, empty_run

BASE = [0.0] * 20
SFT = [1.0] * 9 + [0.0] * 11
RL = [1.0] * 8 + [0.0] + [1.0] * 4 + [0.0] * 7


def scores(values):
    return item_scores((f"simple_python_{i}", 0, value) for i, value in enumerate(values))


def control_of(line: Line) -> Pairing:
    assert line.to_control is not None
    return line.to_control


def previous_of(line: Line) -> Pairing:
    assert line.to_previous is not None
    return line.to_previous


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = empty_run(tmp_path)
    add_scores(run, "rl.step-000030", RL)
    add_scores(run, "base", BASE)
    add_scores(run, "sft.step-000014", SFT)
    return run


def test_scores_and_intervals_are_the_judges(run):
    line = compare_checkpoints(run, "held_out").lines[2]
    assert line.score == pytest.approx(12 / 20)
    assert line.interval == wilson(12, 20)
    assert (line.items, line.repeats, line.abstained) == (20, 1, 0)


def test_all_comparisons_of_a_table_are_one_family(run):
    table = compare_checkpoints(run, "held_out")
    first, second = table.lines[1:]
    assert second.to_previous is not None and second.to_previous.control == first.name
    assert first.to_previous is None
    raw = [compare(scores(a), scores(b)) for a, b in ((BASE, SFT), (BASE, RL), (SFT, RL))]
    expected = holm([comparison.p_value for comparison in raw])
    found = [control_of(first), control_of(second), previous_of(second)]
    assert [p.comparison.adjusted_p for p in found] == pytest.approx(expected)
    assert [p.comparison.difference for p in found] == [c.difference for c in raw]
    assert [p.comparison.verdict for p in found] == ["better", "better", "undecided"]


def test_abstentions_are_left_out_and_counted_never_zero(run):
    record = add_scores(run, "rl.step-000040", [1.0] * 19 + [None])
    line = compare_checkpoints(run, record.key, others=["rl.step-000040"]).lines[1]
    assert line.score == 1.0
    assert line.abstained == 1
    assert control_of(line).comparison.unscored == 1


def test_a_right_answer_that_costs_something_off_its_score_is_counted_as_right(run):
    def judged(line):
        line |= {"error": "" if line["score"] else "wrong"}
        return line | {"outcome": "right" if line["score"] else "wrong"}

    record = add_scores(run, "rl.step-000050", [0.93] * 12 + [0.0] * 8, change=judged)
    line = compare_checkpoints(run, record.key, others=["rl.step-000050"]).lines[1]
    assert line.outcomes == {"right": 12, "wrong": 8}


def test_a_record_in_the_making_is_refused(run):
    record = find_record(run, "held_out")
    file = record.file(run.evaluations, "rl.step-000030")
    file.rename(file.with_suffix(".parts"))
    assert "rl.step-000030" not in measured_checkpoints(run, record)
    with pytest.raises(InputError, match=r"rl\.step-000030 has no finished record"):
        compare_checkpoints(run, "held_out", others=["rl.step-000030"])


def test_two_records_of_one_name_must_be_told_apart(run):
    add_scores(run, "base", BASE, replace(RECORD, sampling={"temperature": 1.0}))
    with pytest.raises(InputError, match="2 records of 'held_out'"):
        find_record(run, "held_out")


def other_run(root: Path, manifest: dict, values=RL, name="other", record=RECORD) -> RunDirectory:
    run = empty_run(root, name)
    run.manifest.write_text(json.dumps(manifest))
    add_scores(run, "base", [0.0] * len(values), record)
    add_scores(run, "rl.step-000030", values, record)
    return run


def test_runs_are_compared_by_their_last_measured_checkpoint(run, tmp_path):
    other = other_run(tmp_path, MANIFEST, SFT)
    table = runs_table(run, other)
    names = [f"{each}@rl.step-000030" for each in (run, other)]
    assert [line.name for line in table.lines] == names
    assert control_of(table.lines[1]).comparison.difference == pytest.approx(-3 / 20)
    assert control_of(table.lines[1]).comparison.verdict == "undecided"


def test_what_else_the_runs_share_is_named_unless_the_reader_chose(run, tmp_path):
    other = other_run(tmp_path, MANIFEST, SFT)
    before = runs_table(run, other).findings
    for each in (run, other):
        add_scores(each, "base", BASE, replace(RECORD, name="sampled"))
    (found,) = set(runs_table(run, other).findings) - set(before)
    assert found.severity == "note" and "held_out" in english(found).what
    assert "sampled" in english(found).evidence
    assert runs_table(run, other, on="held_out").findings == before


def test_a_declared_difference_is_what_the_comparison_is_about(run, tmp_path):
    other = other_run(tmp_path, {**MANIFEST, "stages": {"rl": {"algorithm": "egpo"}}})
    table = runs_table(run, other, vary=["stage.rl.algorithm"])
    assert control_of(table.lines[1]).comparison.verdict == "undecided"
    assert [d.kind for d in table.differences] == ["declared"]
    assert table.allowed == ()


def test_the_declaration_of_the_experiment_file_counts(run, tmp_path):
    other = other_run(tmp_path, {**MANIFEST, "stages": {"rl": {"algorithm": "egpo"}}})
    write_listed(other.path, other.spec, 'vary = ["stage.rl.algorithm"]\n' + other.spec.read_text())
    assert control_of(runs_table(run, other).lines[1]).comparison.verdict == "undecided"


def test_records_whose_items_differ_inside_one_run_are_refused(run):
    record = find_record(run, "held_out")
    lines = [answer("held_out", "rl.step-000040", f"simple_python_{i}", 0, 1.0) for i in range(19)]
    with RecordWriter(run.evaluations, record, "rl.step-000040") as writer:
        writer.write_chunk(0, lines)
        writer.finish()
    with pytest.raises(InputError):
        compare_checkpoints(run, record.key)
