"""Matrices from records: what stands in a cell, what is compared, refused and recommended."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.errors import InputError
from assay.judge.families import holm
from assay.judge.intervals import wilson
from assay.judge.paired import compare
from assay.lab.sweep.model import Cell, Matrix
from assay.lab.sweep.request import Request, make_matrix
from assay.runs.records import read_scores
from tests.lab.pivot_lab import DEV, HARD, LAST, TEST, PivotLab, make_pivot_lab, ones, score
from tests.written import as_written

BATCH, RATE = "stage.sft.batch", "stage.sft.optimizer.lr"
GRID = Request(rows=BATCH, columns=RATE)
SWEEP = """\
name = "cot"
base = "base.toml"
on = ["test"]
baseline.where = { arm = "plain" }
[axes]
stage.sft.batch = [4, 8]
[arms.plain]
[arms.more]
set.data.sums.take.rows = 200
"""


@pytest.fixture
def lab(tmp_path: Path) -> PivotLab:
    return make_pivot_lab(tmp_path)


def fill_grid(lab: PivotLab, skip: int | None = None, items: int = 60) -> None:
    """Runs g0 to g3 over two batches and two rates, right on more items one after the other."""
    for index, (batch, rate) in enumerate((b, r) for b in (4, 8) for r in (1e-5, 2e-5)):
        if index != skip:
            run = lab.run(f"g{index}", f"{BATCH}={batch}", f"{RATE}={rate}")
            score(run, "base", ones(10, items))
            score(run, LAST, ones(20 + 6 * index, items))


def at(matrix: Matrix, *place: object) -> Cell:
    return matrix.cells[place]  # type: ignore[index]


def state(matrix: Matrix, *place: object) -> str:
    return at(matrix, *place).state


def test_runs_stand_where_their_settings_put_them(lab):
    fill_grid(lab)
    matrix = make_matrix(lab.root, ["g*"], GRID)
    assert (matrix.rows, matrix.columns) == ((4, 8), (1e-5, 2e-5))
    cell = at(matrix, 8, 1e-5)
    assert cell.name.endswith(f"@{LAST}") and cell.name.startswith("g2/")
    assert cell.score == pytest.approx(32 / 60)
    assert cell.interval == wilson(32, 60)
    assert (cell.items, cell.repeats, cell.seeds) == (60, 1, 1)


def test_a_missing_cell_is_not_run_and_never_zero(lab):
    fill_grid(lab, skip=2)
    matrix = make_matrix(lab.root, ["g*"], GRID)
    cell = at(matrix, 8, 1e-5)
    assert (cell.state, cell.score, cell.interval, cell.comparison) == ("not run", None, None, None)
    assert (matrix.tally.run, matrix.tally.missing) == (3, 1)
    row = next(m for m in matrix.margins if m.key == BATCH and m.value == 8)
    assert row.average is not None
    assert (row.average.cells, row.cells) == (1, 2)
    assert row.average.mean == pytest.approx(38 / 60)


@pytest.mark.parametrize("status", ["running", "failed"])
def test_an_unfinished_run_shows_its_state_and_no_figure(lab, status):
    fill_grid(lab, skip=2)
    run = lab.run("g2", f"{BATCH}=8", f"{RATE}=1e-5", status=status)
    score(run, LAST, ones(60, 60))
    matrix = make_matrix(lab.root, ["g*"], GRID)
    # No living process holds the run, so that one that says `running` was interrupted.
    assert state(matrix, 8, 1e-5) == ("interrupted" if status == "running" else status)
    assert at(matrix, 8, 1e-5).score is None
    assert matrix.tally.run == 3


def test_two_runs_in_one_cell_are_told_apart_by_the_key_that_is_named(lab):
    fill_grid(lab)
    lab_run = lab.run("g9", f"{BATCH}=8", f"{RATE}=1e-5", "stage.sft.steps=20")
    score(lab_run, "sft.step-000020", ones(3, 60))
    with pytest.raises(InputError, match=r"add --layers stage\.sft\.steps") as raised:
        make_matrix(lab.root, ["g*"], GRID)
    assert "\n" not in str(raised.value)
    matrix = make_matrix(lab.root, ["g*"], replace(GRID, layers=("stage.sft.steps",)))
    assert at(matrix, 8, 1e-5, 20).score == pytest.approx(3 / 60)
    assert state(matrix, 4, 1e-5, 20) == "not run"


def test_cells_are_compared_with_their_own_base_as_one_family(lab):
    fill_grid(lab)
    matrix = make_matrix(lab.root, ["g*"], replace(GRID, baseline="base"))
    cells = [cell for cell in matrix.cells.values() if cell.comparison]
    raw = []
    for cell in cells:
        assert cell.unit is not None
        (origin,) = cell.origins
        before = read_scores(origin.run, origin.record, "base")
        raw.append(compare(before, cell.unit.parts[0].scores).p_value)
    found = [cell.comparison.adjusted_p for cell in cells if cell.comparison]
    assert found == pytest.approx(holm(raw))
    assert matrix.tally.better == 4 and matrix.tally.improved == 4
    assert matrix.tally.largest_gain == repr((8, 2e-5))
    assert matrix.tally.groups == 1


def test_an_undeclared_difference_is_not_comparable_unless_allowed(lab):
    fill_grid(lab)
    run = lab.run("other", f"{BATCH}=8", "stage.sft.loss_on=last")
    score(run, LAST, ones(50, 60))
    ask = Request(rows=BATCH, columns="name", baseline="g0")
    cell = at(make_matrix(lab.root, ["g0", "other"], ask), 8, "other")
    assert cell.comparison is not None
    assert cell.comparison.verdict == "not comparable"
    assert set(cell.comparison.confounds) == {"stages.sft.loss_on", f"stages.{RATE[6:]}"}
    allowed = replace(ask, allow=("stage.sft.loss_on", "stage.sft.optimizer"))
    cell = at(make_matrix(lab.root, ["g0", "other"], allowed), 8, "other")
    assert cell.comparison is not None and cell.comparison.verdict == "better"


@pytest.mark.parametrize(
    ("checkpoint", "verdict"), [(LAST, "better"), ("sft.step-000020", "not comparable")]
)
def test_a_cell_is_compared_with_the_checkpoint_that_it_started_from(lab, checkpoint, verdict):
    start = lab.run("start")
    score(start, "base", ones(1, 60))
    score(start, LAST, ones(20, 60))
    folder = start.checkpoint("sft", int(checkpoint[-6:])).relative_to(lab.root).as_posix()
    weights = {"source": "run:start@sft.last", "sha256": "another", "checkpoint": folder}
    went_on = lab.run("went_on", seed=2, manifest={"base_weights": weights, "seed": 2})
    score(went_on, LAST, ones(50, 60))
    matrix = make_matrix(lab.root, ["start", "went_on"], Request(rows="name", baseline="start"))
    found = at(matrix, "went_on", None).comparison
    assert found is not None and found.verdict == verdict
    matrix = make_matrix(lab.root, ["start", "went_on"], Request(rows="name", baseline="base"))
    found = at(matrix, "start", None).comparison
    assert found is not None and found.verdict == "better"


def test_a_cell_that_was_trained_on_its_items_is_refused_whatever_is_allowed(lab):
    fill_grid(lab)
    run = lab.run("leaked", f"{BATCH}=8")
    score(run, LAST, ones(59, 60))
    (record,) = run.evaluations.glob("*/evaluation.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "shared": {"train": 3}}))
    as_written(record)
    ask = Request(rows=BATCH, columns="name", baseline="g0", allow=("stage", "data"))
    with pytest.raises(
        InputError, match=r"leaked.*was trained on test items: 3 rows of data.train"
    ):
        make_matrix(lab.root, ["g0", "leaked"], ask)


def test_a_data_axis_declares_the_rows_that_follow_from_it_and_no_other_file(lab):
    for rows in (100, 200):
        run = lab.run(f"d{rows}", f"data.sums.take.rows={rows}", rows=rows)
        score(run, LAST, ones(rows // 5, 60))
    ask = Request(rows="data.sums.take.rows", baseline="data.sums.take.rows=100")
    matrix = make_matrix(lab.root, ["d*"], ask)
    found = at(matrix, 200, None).comparison
    assert found is not None and found.verdict == "better"
    run = lab.run("d300", "data.sums.take.rows=300", rows=300, manifest={"task": "other"})
    score(run, LAST, ones(50, 60))
    found = at(make_matrix(lab.root, ["d*"], ask), 300, None).comparison
    assert found is not None and found.confounds == ("task",)


def test_the_average_of_nested_samples_is_not_surer_than_the_largest(lab):
    draw = np.random.default_rng(1).random(200) < 0.5
    run = lab.run("n")
    for items in (50, 100, 200):
        record = replace(TEST, name=f"n{items}")
        score(run, LAST, draw[:items].astype(float), record)
    matrix = make_matrix(lab.root, ["n"], Request(rows="evaluation.items"))
    assert matrix.rows == (50, 100, 200)
    whole = next(m for m in matrix.margins if m.key == "")
    assert whole.average is not None
    largest = at(matrix, 200, None).interval
    assert largest is not None and whole.average.interval.half_width > largest.half_width


def test_checkpoints_are_an_axis_and_an_arm_may_lack_some(lab):
    for name, batch, steps in (("a", 4, (20, 40)), ("b", 4, (20, 40, 60)), ("c", 8, (20,))):
        run = lab.run(name, f"{BATCH}={batch}", "stage.sft.steps=60", rows=80)
        score(run, "base", ones(10, 60))
        for step in steps:
            score(run, f"sft.step-{step:06d}", ones(10 + step // 2, 60))
    lab.run("d", f"{BATCH}=4", "stage.sft.steps=60", status="failed")
    matrix = make_matrix(lab.root, ["?"], Request(rows="name", columns="step"))
    assert matrix.columns == (20, 40, 60)
    assert state(matrix, "b", 60) == "measured"
    assert state(matrix, "a", 60) == state(matrix, "c", 40) == "no checkpoint"
    assert state(matrix, "d", 20) == "failed"
    assert matrix.tally.missing == 3
    epochs = make_matrix(lab.root, ["a", "b", "c"], Request(rows="name", columns="epoch"))
    assert epochs.columns == (1, 2, 3)
    assert at(epochs, "c", 2).score == pytest.approx(20 / 60)
    assert state(epochs, "c", 1) == "no checkpoint"


def test_seeds_are_pooled_and_counted(lab):
    draws = np.random.default_rng(4)
    for name, chance in (("a", 0.4), ("b", 0.7)):
        for seed in (1, 2, 3):
            run = lab.run(name, f"{RATE}={1e-5 if name == 'a' else 2e-5}", seed=seed)
            score(run, LAST, (draws.random(80) < chance).astype(float))
    matrix = make_matrix(lab.root, ["a", "b"], Request(rows=RATE, baseline=f"{RATE}=1e-5"))
    cell = at(matrix, 2e-5, None)
    assert (cell.seeds, cell.items) == (3, 80)
    assert cell.comparison is not None
    assert cell.comparison.method == "t over seeds and items"
    by_seed = make_matrix(lab.root, ["a", "b"], Request(rows="seed", columns="name"))
    assert by_seed.rows == (1, 2, 3)


def sweep_runs(lab: PivotLab, right: dict[str, int], dev: dict[str, int]) -> None:
    for name, hits in right.items():
        arm, batch = name.split("-")
        rows = 200 if arm == "more" else 100
        run = lab.run(
            f"cot.{arm}.batch-{batch}",
            *(["data.sums.take.rows=200"] if arm == "more" else []),
            f"{BATCH}={batch}",
            rows=rows,
        )
        score(run, LAST, ones(hits, 60))
        if name in dev:
            score(run, LAST, ones(dev[name], 40), DEV, first=500)


RIGHT = {"plain-4": 20, "more-4": 33, "plain-8": 22, "more-8": 21}
DEVS = {"plain-4": 10, "more-4": 22, "plain-8": 11, "more-8": 12}


def test_a_sweep_shows_its_cells_its_arms_and_what_it_recommends(lab):
    sweep_runs(lab, RIGHT, DEVS)
    matrix = make_matrix(lab.root, [str(lab.sweep(SWEEP))], Request())
    assert matrix.layout.keys == (BATCH, "arm")
    best = at(matrix, 4, "more")
    assert best.comparison is not None and best.comparison.verdict == "better"
    advice = matrix.recommendation
    assert advice.reason == "chosen" and advice.cell == best
    assert advice.choice is not None and advice.choice.looks == 2
    assert advice.choice.comparison is not None
    raw = advice.choice.comparison.p_value
    assert advice.choice.comparison.adjusted_p == pytest.approx(2 * raw)


def test_a_recommendation_asks_dev_items_and_never_those_that_report(lab):
    """The best reported cell is not the best on dev."""
    sweep_runs(lab, {**RIGHT, "more-8": 60}, DEVS)
    matrix = make_matrix(lab.root, [str(lab.sweep(SWEEP))], Request())
    assert matrix.recommendation.cell == at(matrix, 4, "more")


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
    matrix = make_matrix(lab.root, [str(lab.sweep(SWEEP))], Request())
    assert matrix.recommendation.reason == reason


def test_more_looks_take_back_what_one_look_showed(lab):
    sweep_runs(lab, RIGHT, {**DEVS, "more-4": 16})
    file = str(lab.sweep(SWEEP))
    assert make_matrix(lab.root, [file], Request()).recommendation.reason == "chosen"
    text = SWEEP.replace("[4, 8]", "[4, 8, 12, 16]")
    sweep_runs(lab, {"plain-12": 20, "more-12": 20, "plain-16": 20, "more-16": 20}, {
        "plain-12": 10, "more-12": 10, "plain-16": 10, "more-16": 10
    })  # fmt: skip
    found = make_matrix(lab.root, [str(lab.sweep(text))], Request()).recommendation
    assert found.reason == "unproven" and found.choice is not None and found.choice.looks == 4


def test_a_run_of_a_cells_name_made_otherwise_is_left_out_and_said(lab):
    sweep_runs(lab, {name: right for name, right in RIGHT.items() if name != "plain-4"}, {})
    run = lab.run("cot.plain.batch-4", f"{BATCH}=4", "stage.sft.steps=20")
    score(run, LAST, ones(60, 60))
    matrix = make_matrix(lab.root, [str(lab.sweep(SWEEP))], Request())
    assert state(matrix, 4, "plain") == "not run"
    assert [(note.code, note.values["name"]) for note in matrix.notes] == [
        ("made_otherwise", str(run)),
        ("no_baseline", f"cot.more.batch-4@{LAST}"),
    ]


def test_several_benchmarks_are_one_harmonic_value(lab):
    for batch, right in ((4, 30), (8, 45)):
        run = lab.run(f"h.batch-{batch}", f"{BATCH}={batch}")
        score(run, LAST, ones(right, 60))
        score(run, LAST, ones(right // 2, 50), HARD, first=900)
    text = SWEEP.partition("[arms")[0].replace('name = "cot"', 'name = "h"')
    text = text.replace('arm = "plain"', f'"{BATCH}" = 4')
    text = text.replace('["test"]', '["test", "hard"]\nratios_to = { hard = 0.3, test = 0.5 }')
    matrix = make_matrix(lab.root, [str(lab.sweep(text))], Request())
    cell = at(matrix, 8, None)
    assert cell.score == pytest.approx(2 / (0.5 / (45 / 60) + 0.3 / (22 / 50)))
    assert cell.items == 110 and cell.interval is not None and cell.score is not None
    assert cell.interval.low < cell.score < cell.interval.high
    assert cell.comparison is not None and cell.comparison.verdict == "better"


@pytest.mark.parametrize(
    ("names", "request_", "words"),
    [
        (["g*"], replace(GRID, checkpoint="last"), "'last' is not a checkpoint"),
        (["g*"], replace(GRID, baseline="arm=x"), "the baseline's 'arm' is no axis"),
        (["g*"], replace(GRID, baseline=f"{BATCH}=5"), f"no cell has the baseline's {BATCH} = 5"),
        (["g*"], replace(GRID, baseline="nobody"), "no run named 'nobody'"),
        (["g*", "x.toml"], GRID, "one sweep file, or runs"),
    ],
)
def test_bad_requests_are_one_line_with_a_way_out(lab, names, request_, words):
    fill_grid(lab)
    with pytest.raises(InputError) as raised:
        make_matrix(lab.root, names, request_)
    assert words in str(raised.value) and "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_a_damaged_record_is_named_and_the_others_are_shown(lab):
    fill_grid(lab)
    file = next((lab.root / "runs" / "g1").glob(f"*/evaluations/*/{LAST}.parquet"))
    file.write_bytes(b"no parquet")
    matrix = make_matrix(lab.root, ["g*"], replace(GRID, baseline="base"))
    assert state(matrix, 4, 2e-5) == "damaged"
    assert at(matrix, 4, 2e-5).score is None
    (note,) = matrix.notes
    assert note.code == "damaged" and str(file) in note.values["name"]
    assert matrix.tally.run == matrix.tally.compared == 3


def test_cells_of_which_one_was_scored_by_a_fallback_metric_are_refused(lab):
    """With a baseline and without: cells stand side by side and are averaged either way."""
    fill_grid(lab, skip=3)
    run = lab.run("g3", f"{BATCH}=8", f"{RATE}=2e-5")
    score(run, "base", ones(10, 60))
    score(run, LAST, ones(20, 60), fallback=4)
    for baseline in (None, "base"):
        with pytest.raises(InputError, match=r"a fallback scored .*4 of 60 answers of g3/"):
            make_matrix(lab.root, ["g*"], replace(GRID, baseline=baseline))
    assert make_matrix(lab.root, ["g0", "g1", "g2"], GRID).tally.run == 3
