"""Several controls, the first items of one record, and arms that stand at every checkpoint."""

from pathlib import Path

import numpy as np
import pytest

from assay.errors import InputError
from assay.judge.families import holm
from assay.judge.paired import compare
from assay.judge.scores import ItemScores
from assay.lab.sweep.missing_runs import missing_work
from assay.lab.sweep.model import CellBlock, Matrix, Place, SweepCell
from assay.lab.sweep.read_sweep import plan, read_sweep
from assay.lab.sweep.request import make_matrix
from tests.lab.pivot_lab import TEST, PivotLab, make_pivot_lab, score

ROWS, SHOTS = "evaluate.test.take.rows", "evaluate.test.options.shots"
SWEEP = f"""\
name = "kl"
base = "base.toml"
on = ["test"]
rows = "{ROWS}"
columns = "{SHOTS}"
baseline.where = {{ arm = "kl-15" }}

[controls]
random = {{ where = {{ arm = "random" }} }}
zero = {{ where = {{ arm = "zero" }} }}

[axes]
{ROWS} = [50, 100, 200]
{SHOTS} = [1, 2]
epoch = [1, 2]

[arms.kl-12]
set.stage.sft.optimizer.lr = 1e-5

[arms.kl-15]
set.stage.sft.optimizer.lr = 2e-5

[arms.random]
checkpoint = "base"

[arms.zero]
checkpoint = "base"
set.evaluate.test.options.shots = 0
"""
ITEMS = 200
RIGHT = {
    # Of 200 items, by arm, shots and checkpoint.
    ("kl-12", 1, 20): 0.55, ("kl-12", 1, 40): 0.65,
    ("kl-12", 2, 20): 0.60, ("kl-12", 2, 40): 0.70,
    ("kl-15", 1, 20): 0.55, ("kl-15", 1, 40): 0.50,
    ("kl-15", 2, 20): 0.58, ("kl-15", 2, 40): 0.55,
    ("random", 1, 0): 0.40, ("random", 2, 0): 0.45,
    ("zero", 0, 0): 0.30,
}  # fmt: skip


def make_lab(folder: Path) -> PivotLab:
    made = make_pivot_lab(folder)
    text = made.base.read_text()
    test = '[evaluate.test]\nbenchmark = "math/gsm8k"\n'
    assert test in text
    take = f'take = {{ rows = {ITEMS}, how = "first" }}\n'
    text = text.replace(test, test + take).replace("rows = 100", "rows = 80").replace(
        "split = { dev = 0.2 }", ""
    )  # fmt: skip
    text = text.replace('data = "sums.dev"', 'benchmark = "math/math500"')
    text = text.replace('reward = "accuracy"\n', "")
    made.base.write_text(text)
    return made


@pytest.fixture
def lab(tmp_path: Path) -> PivotLab:
    return make_lab(tmp_path)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep of a lab with every run and record of it, that nobody changes."""
    return fill(make_lab(tmp_path_factory.mktemp("kl")))


@pytest.fixture(scope="module")
def matrix(file: Path) -> Matrix:
    return make_matrix(file.parent, file)


def draws(arm: str, shots: int, step: int) -> np.ndarray:
    """The scores of one record: the same item draws for all, so that pairs agree often."""
    uniform = np.random.default_rng(7).random(ITEMS)
    return (uniform < RIGHT[arm, shots, step]).astype(float)


def fill(lab: PivotLab, without: tuple[str, ...] = ()) -> Path:
    """The runs and records that `assay fill` would leave."""
    file = lab.sweep(SWEEP)
    for planned in plan(read_sweep(file)):
        arm = planned.cells[0].place["arm"]
        if arm in without:
            continue
        run = lab.run(planned.name, *planned.overrides, rows=80)
        steps = (0,) if arm in ("random", "zero") else (20, 40)
        for name, spec in planned.experiment.evaluate.items():
            if not name.startswith("test"):
                continue
            shots = spec.options["shots"]
            for step in steps:
                checkpoint = f"sft.step-{step:06d}" if step else "base"
                record = TEST.__class__(**{**TEST.__dict__, "name": name, "options": spec.options})
                score(run, checkpoint, draws(arm, shots, step), record)
    return file


def at(matrix: Matrix, *place: object) -> SweepCell:
    return matrix.cells[place]  # type: ignore[index]


def block(matrix: Matrix, control: str, arm: str) -> CellBlock:
    (found,) = [b for b in matrix.blocks if b.control == control and ("arm", arm) in b.where]
    return found


def test_shorter_numbers_of_items_are_the_first_of_one_record(file, matrix):
    planned = plan(read_sweep(file))
    names = {name for each in planned for name in each.experiment.evaluate}
    assert {n for n in names if n.startswith("test")} == {"test", "test-shots-2"}
    assert planned[0].experiment.evaluate["test"].take.rows == ITEMS  # type: ignore[union-attr]
    assert (matrix.rows, matrix.columns) == ((50, 100, 200), (1, 2))
    for items in (50, 100, 200):
        cell = at(matrix, items, 2, 2, "kl-12")
        assert cell.items == items
        assert cell.score == pytest.approx(draws("kl-12", 2, 40)[:items].mean())
        assert len({origin.file for origin in cell.origins}) == 1


def test_every_control_is_paired_item_by_item_in_one_family(matrix):
    """Recomputed from the records: 12 cells against the baseline, 24 against each control."""
    assert list(matrix.controls) == ["baseline", "random", "zero"]
    raw: dict[tuple[str, Place], float] = {}
    for place, cell in matrix.cells.items():
        rows, shots, epoch, arm = place
        for control in cell.against:
            other = {"baseline": "kl-15", "random": "random", "zero": "zero"}[control]
            step = 20 * epoch if control == "baseline" else 0  # type: ignore[operator]
            before = draws(other, 0 if control == "zero" else shots, step)  # type: ignore[arg-type]
            after = draws(arm, shots, 20 * epoch)  # type: ignore[arg-type,operator]
            ids = tuple(map(str, range(rows)))  # type: ignore[arg-type]
            one, two = (ItemScores(ids, v[:rows, None]) for v in (before, after))  # type: ignore[misc]
            raw[control, place] = compare(one, two).p_value
    assert len(raw) == 12 + 24 + 24
    adjusted = dict(zip(raw, holm([*raw.values()]), strict=True))
    for (control, place), expected in adjusted.items():
        found = matrix.cells[place].against[control]
        assert found.adjusted_p == pytest.approx(expected)
        assert found.family == 60


def test_an_arm_of_one_checkpoint_stands_at_every_epoch_and_fills_one_table(matrix):
    assert [layer for layer in matrix.layers if layer[1] == "random"] == [(None, "random")]
    assert at(matrix, 50, 1, None, "random").is_control
    first, second = (at(matrix, 50, 1, epoch, "kl-12").against["random"] for epoch in (1, 2))
    assert first.control_score == second.control_score == draws("random", 1, 0)[:50].mean()
    assert not matrix.notes


def test_an_arm_that_sets_the_axis_of_an_evaluation_is_measured_once(file, matrix):
    (zero,) = [p for p in plan(read_sweep(file)) if p.cells[0].place["arm"] == "zero"]
    measured = {name: e for name, e in zero.experiment.evaluate.items() if "test" in name}
    assert {name: spec.options for name, spec in measured.items()} == {"test": {"shots": 0}}
    scores = {at(matrix, 200, shots, None, "zero").score for shots in (1, 2)}
    assert scores == {draws("zero", 0, 0).mean()}


def test_the_blocks_are_the_means_and_counts_of_their_cells(matrix):
    """Against the oracle of plain means over the 6 cells of each epoch."""
    found = block(matrix, "baseline", "kl-12")
    assert (found.axis, found.steps) == ("epoch", (1, 2))
    for index, epoch in enumerate((1, 2)):
        change = {
            (rows, shots): draws("kl-12", shots, 20 * epoch)[:rows].mean()
            - draws("kl-15", shots, 20 * epoch)[:rows].mean()
            for rows in (50, 100, 200)
            for shots in (1, 2)
        }
        tally, mean = found.tallies[index], found.overall.means[index]
        assert mean is not None and mean.mean == pytest.approx(np.mean([*change.values()]))
        assert tally.improved == sum(v > 0 for v in change.values())
        assert tally.declined == sum(v < 0 for v in change.values())
        assert tally.run + tally.missing == 6
        largest = max(change, key=lambda k: change[k])
        assert tally.largest_gain == repr((*largest, epoch, "kl-12"))
        for each in found.columns:
            inner = [v for (_, shots), v in change.items() if shots == each.value]
            assert each.means[index].mean == pytest.approx(np.mean(inner))  # type: ignore[union-attr]
        for each in found.rows:
            inner = [v for (rows, _), v in change.items() if rows == each.value]
            assert each.means[index].mean == pytest.approx(np.mean(inner))  # type: ignore[union-attr]
    assert [each.value for each in found.rows] == [50, 100, 200]
    assert [each.value for each in found.columns] == [1, 2]


def test_a_trend_is_the_change_of_the_difference_item_by_item(matrix):
    trend = block(matrix, "baseline", "kl-12").overall.trend
    first, second = block(matrix, "baseline", "kl-12").overall.means
    assert trend is not None and first is not None and second is not None
    assert trend.change.mean == pytest.approx(second.mean - first.mean)
    assert (trend.first, trend.last, trend.change.items) == (1, 2, ITEMS)
    assert trend.change.interval.low > 0


def test_where_the_same_items_moved_by_chance_no_trend_is_shown(lab, monkeypatch):
    same = {key: value for key, value in RIGHT.items() if key[0] != "kl-12"}
    noise = {("kl-12", s, e): RIGHT["kl-15", s, e] + 0.01 for s in (1, 2) for e in (20, 40)}
    monkeypatch.setitem(globals(), "RIGHT", {**same, **noise})
    trend = block(make_matrix(lab.root, fill(lab)), "baseline", "kl-12").overall.trend
    assert trend is not None
    assert trend.change.interval.low < 0 < trend.change.interval.high


def test_a_record_that_is_gone_leaves_its_cells_with_the_run_that_lacks_it(lab):
    file = fill(lab)
    (folder,) = (lab.root / "runs" / "kl.kl-12").glob("*/evaluations/test-shots-2-*")
    (folder / "sft.step-000020.parquet").unlink()
    matrix = make_matrix(lab.root, file)
    empty = {place: cell for place, cell in matrix.cells.items() if cell.score is None}
    assert {place[:3] for place in empty} == {(n, 2, 1) for n in (50, 100, 200)}
    assert {cell.run for cell in empty.values()} == {"kl.kl-12"}
    (job,) = missing_work(lab.root, read_sweep(file), "kl.kl-12").jobs
    assert job.had == "unmeasured"
    assert missing_work(lab.root, read_sweep(file), f"kl.kl-12#{job.seed}").jobs == (job,)
    for none in ("kl.kl-12#99", "kl.kl"):
        with pytest.raises(InputError, match=f"has no run '{none}'"):
            missing_work(lab.root, read_sweep(file), none)


def test_the_baseline_has_tables_against_the_other_controls_and_none_against_itself(matrix):
    arms = {(b.control, dict(b.where)["arm"]) for b in matrix.blocks}
    trained = {("random", "kl-12"), ("random", "kl-15"), ("zero", "kl-12"), ("zero", "kl-15")}
    assert arms == {("baseline", "kl-12"), *trained}
