"""Matrices from records: what stands in a cell, what is compared, refused and recommended."""

import json

import numpy as np
import pytest

from assay.errors import InputError
from assay.judge.families import holm
from assay.judge.intervals import wilson
from assay.judge.paired import compare
from assay.lab.sweep.model import Matrix, SweepCell
from assay.runs.records import read_scores
from tests.lab.pivot_lab import DEV, HARD, LAST, PivotLab, ones, score
from tests.written import as_written

BATCH, RATE = "stage.sft.batch", "stage.sft.optimizer.lr"
HEAD = 'name = "cot"\nbase = "base.toml"\non = ["test"]\n'
GRID = f"{HEAD}[axes]\n{BATCH} = [4, 8]\n{RATE} = [1e-5, 2e-5]\n"
AGAINST_BASE = GRID.replace("[axes]", 'baseline.checkpoint = "base"\n[axes]')
SWEEP = f"""\
{HEAD}baseline.where = {{ arm = "plain" }}
[axes]
{BATCH} = [4, 8]
[arms.plain]
[arms.more]
set.data.sums.take.rows = 200
"""


def grid_run(lab: PivotLab, batch: int, rate: float, **given):
    name = f"cot.batch-{batch}.lr-{rate}"
    return lab.run(name, f"{BATCH}={batch}", f"{RATE}={rate}", **given)


def fill_grid(lab: PivotLab, skip: int | None = None, items: int = 60) -> None:
    """Runs over two batches and two rates, right on more items one after the other."""
    for index, (batch, rate) in enumerate((b, r) for b in (4, 8) for r in (1e-5, 2e-5)):
        if index != skip:
            run = grid_run(lab, batch, rate)
            score(run, "base", ones(10, items))
            score(run, LAST, ones(20 + 6 * index, items))


def at(matrix: Matrix, *place: object) -> SweepCell:
    return matrix.cells[place]  # type: ignore[index]


def test_runs_stand_where_their_settings_put_them(lab):
    fill_grid(lab)
    matrix = lab.matrix(GRID)
    assert (matrix.rows, matrix.columns) == ((4, 8), (1e-5, 2e-5))
    cell = at(matrix, 8, 1e-5)
    assert cell.name == f"cot.batch-8.lr-1e-05@{LAST}"
    assert cell.score == pytest.approx(32 / 60)
    assert cell.interval == wilson(32, 60)
    assert (cell.items, cell.repeats, cell.seeds) == (60, 1, 1)


@pytest.mark.parametrize("status", [None, "running", "failed"])
def test_an_unfinished_run_shows_its_state_and_no_figure(lab, status):
    fill_grid(lab, skip=2)
    if status is not None:
        score(grid_run(lab, 8, 1e-5, status=status), LAST, ones(60, 60))
    matrix = lab.matrix(GRID)
    cell = at(matrix, 8, 1e-5)
    # No living process holds the run, so that one that says `running` was interrupted.
    assert cell.state == {None: "not run", "running": "interrupted"}.get(status, status)
    assert (cell.score, cell.interval, cell.against) == (None, None, {})
    assert (matrix.tally.run, matrix.tally.missing) == (3, 1)


def test_cells_are_compared_with_their_own_base_as_one_family(lab):
    fill_grid(lab)
    matrix = lab.matrix(AGAINST_BASE)
    raw = []
    for cell in matrix.cells.values():
        (origin,) = cell.origins
        before = read_scores(origin.run, origin.record, "base")
        raw.append(compare(before, cell.parts[0].scores).p_value)
    found = [cell.against["baseline"].adjusted_p for cell in matrix.cells.values()]
    assert found == pytest.approx(holm(raw))
    assert matrix.tally.better == 4 and matrix.tally.improved == 4
    assert matrix.tally.largest_gain == repr((8, 2e-5))
    assert matrix.tally.groups == 1


def test_a_cell_that_was_trained_on_its_items_is_refused_whatever_is_allowed(lab):
    fill_grid(lab, skip=3)
    run = grid_run(lab, 8, 2e-5)
    score(run, "base", ones(10, 60))
    score(run, LAST, ones(59, 60))
    (record,) = run.evaluations.glob("*/evaluation.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "shared": {"train": 3}}))
    as_written(record)
    with pytest.raises(InputError, match=r"was trained on test items: 3 rows of data.train"):
        lab.matrix(AGAINST_BASE, allow=("stage", "data"))


def test_an_axis_declares_what_follows_from_it_and_nothing_else(lab):
    for rows in (100, 200, 300):
        made = {"task": "other"} if rows == 300 else None
        run = lab.run(f"cot.rows-{rows}", f"data.sums.take.rows={rows}", rows=rows, manifest=made)
        score(run, LAST, ones(rows // 6, 60))
    text = f'{HEAD}baseline.where = {{ "data.sums.take.rows" = 100 }}\n'
    text += "[axes]\ndata.sums.take.rows = [100, 200, 300]\n"
    matrix = lab.matrix(text)
    assert at(matrix, 200, None).against["baseline"].verdict == "better"
    refused = at(matrix, 300, None).against["baseline"]
    assert (refused.verdict, refused.confounds) == ("not comparable", ("task",))
    allowed = at(lab.matrix(text, allow=("task",)), 300, None).against["baseline"]
    assert allowed.verdict == "better"


def test_seeds_are_pooled_and_counted(lab):
    lab.base.write_text(lab.base.read_text().replace("seeds = [1]", "seeds = [1, 2, 3]"))
    draws = np.random.default_rng(4)
    for rate, chance in ((1e-5, 0.4), (2e-5, 0.7)):
        for seed in (1, 2, 3):
            run = lab.run(f"cot.lr-{rate}", f"{RATE}={rate}", seed=seed)
            score(run, LAST, (draws.random(80) < chance).astype(float))
    text = f'{HEAD}baseline.where = {{ "{RATE}" = 1e-5 }}\n[axes]\n{RATE} = [1e-5, 2e-5]\n'
    cell = at(lab.matrix(text), 2e-5, None)
    assert (cell.seeds, cell.items, cell.seeds_missing) == (3, 80, 0)
    assert cell.against["baseline"].method == "t over seeds and items"


def sweep_runs(lab: PivotLab, right: dict[str, int], dev: dict[str, int]) -> None:
    for name, hits in right.items():
        arm, batch = name.split("-")
        rows = 200 if arm == "more" else 100
        more = ["data.sums.take.rows=200"] if arm == "more" else []
        run = lab.run(f"cot.{arm}.batch-{batch}", *more, f"{BATCH}={batch}", rows=rows)
        score(run, LAST, ones(hits, 60))
        if name in dev:
            score(run, LAST, ones(dev[name], 40), DEV, first=500)


RIGHT = {"plain-4": 20, "more-4": 33, "plain-8": 22, "more-8": 21}
DEVS = {"plain-4": 10, "more-4": 22, "plain-8": 11, "more-8": 12}


def test_a_recommendation_asks_dev_items_and_never_those_that_report(lab):
    """The best reported cell is not the best on dev."""
    sweep_runs(lab, {**RIGHT, "more-8": 60}, DEVS)
    matrix = lab.matrix(SWEEP)
    assert matrix.layout.keys == (BATCH, "arm")
    advice = matrix.recommendation
    assert advice.reason == "chosen" and advice.cell == at(matrix, 4, "more")
    assert advice.choice is not None and advice.choice.looks == 2
    assert advice.choice.comparison is not None
    raw = advice.choice.comparison.p_value
    assert advice.choice.comparison.adjusted_p == pytest.approx(2 * raw)


@pytest.mark.parametrize(
    ("dev", "reason"),
    [
        ({}, "no_select"),
        ({**DEVS, "more-4": 13}, "unproven"),
        ({**DEVS, "plain-8": 39}, "baseline_best"),
        ({"more-4": 22, "more-8": 12}, "no_dev_baseline"),
    ],
)
def test_without_evidence_nothing_is_recommended_and_the_reason_is_given(lab, dev, reason):
    sweep_runs(lab, RIGHT, dev)
    assert lab.matrix(SWEEP).recommendation.reason == reason


def test_more_looks_take_back_what_one_look_showed(lab):
    sweep_runs(lab, RIGHT, {**DEVS, "more-4": 16})
    assert lab.matrix(SWEEP).recommendation.reason == "chosen"
    more = [f"{arm}-{batch}" for arm in ("plain", "more") for batch in (12, 16)]
    sweep_runs(lab, dict.fromkeys(more, 20), dict.fromkeys(more, 10))
    advice = lab.matrix(SWEEP.replace("[4, 8]", "[4, 8, 12, 16]")).recommendation
    assert advice.reason == "unproven" and advice.choice is not None and advice.choice.looks == 4


def test_a_run_of_a_cells_name_made_otherwise_is_left_out_and_said(lab):
    sweep_runs(lab, {name: right for name, right in RIGHT.items() if name != "plain-4"}, {})
    run = lab.run("cot.plain.batch-4", f"{BATCH}=4", "stage.sft.steps=20")
    score(run, LAST, ones(60, 60))
    matrix = lab.matrix(SWEEP)
    assert at(matrix, 4, "plain").state == "not run"
    assert [(note.code, note.values["name"]) for note in matrix.notes] == [
        ("made_otherwise", str(run)),
        ("no_baseline", f"cot.more.batch-4@{LAST}"),
    ]


def test_several_benchmarks_are_one_harmonic_value(lab):
    for batch, right in ((4, 30), (8, 45)):
        run = lab.run(f"cot.batch-{batch}", f"{BATCH}={batch}")
        score(run, LAST, ones(right, 60))
        score(run, LAST, ones(right // 2, 50), HARD, first=900)
    text = SWEEP.partition("[arms")[0].replace('arm = "plain"', f'"{BATCH}" = 4')
    text = text.replace('["test"]', '["test", "hard"]\nratios_to = { hard = 0.3, test = 0.5 }')
    cell = at(lab.matrix(text), 8, None)
    assert cell.score == pytest.approx(2 / (0.5 / (45 / 60) + 0.3 / (22 / 50)))
    assert cell.items == 110 and cell.interval is not None and cell.score is not None
    assert cell.interval.low < cell.score < cell.interval.high
    assert cell.against["baseline"].verdict == "better"
    assert at(lab.matrix(text, on="hard"), 8, None).score == pytest.approx(22 / 50)


def test_an_evaluation_or_a_control_that_is_not_there_is_one_line(lab):
    fill_grid(lab)
    for text, on, words in (
        (GRID, "tst", "no reporting evaluation 'tst'"),
        (GRID.replace("[axes]", 'baseline.run = "nobody"\n[axes]'), None, "no run named 'nobody'"),
    ):
        with pytest.raises(InputError) as raised:
            lab.matrix(text, on=on)
        assert words in str(raised.value) and "\n" not in str(raised.value)


def test_a_run_that_is_damaged_or_made_despite_errors_is_named(lab):
    fill_grid(lab, skip=2)
    checked = {"checked": {"despite": "a reason", "errors": []}}
    run = grid_run(lab, 8, 1e-5, manifest=checked)
    score(run, LAST, ones(20, 60))
    (broken,) = (lab.root / "runs/cot.batch-4.lr-1e-05").glob("*/manifest.json")
    broken.write_text("{")
    matrix = lab.matrix(GRID)
    notes = {note.code: note.values["name"] for note in matrix.notes}
    assert notes["made_despite"] == f"{run} (a reason)"
    assert "manifest.json" in notes["damaged_run"]
    assert (at(matrix, 4, 1e-5).state, matrix.tally.run) == ("not run", 3)


def test_a_damaged_record_is_named_and_the_others_are_shown(lab):
    fill_grid(lab)
    file = next((lab.root / "runs/cot.batch-4.lr-2e-05").glob(f"*/evaluations/*/{LAST}.parquet"))
    file.write_bytes(b"no parquet")
    matrix = lab.matrix(AGAINST_BASE)
    assert (at(matrix, 4, 2e-5).state, at(matrix, 4, 2e-5).score) == ("damaged", None)
    (note,) = matrix.notes
    assert note.code == "damaged" and str(file) in note.values["name"]
    assert matrix.tally.run == matrix.tally.compared == 3


def test_cells_of_which_one_was_scored_by_a_fallback_metric_are_refused(lab):
    """With a baseline and without: cells stand side by side either way."""
    fill_grid(lab, skip=3)
    assert lab.matrix(GRID).tally.run == 3
    run = grid_run(lab, 8, 2e-5)
    score(run, "base", ones(10, 60))
    score(run, LAST, ones(20, 60), fallback=4)
    for text in (GRID, AGAINST_BASE):
        with pytest.raises(InputError, match=r"a fallback scored .*4 of 60 answers of cot"):
            lab.matrix(text)
