"""The winner of a search: ranked on dev, recorded once all points are there, named by others."""

import json
from dataclasses import replace

import numpy as np
import pytest

from assay.errors import InputError
from assay.lab.sweep.model import Matrix
from assay.lab.sweep.request import SweepWinner, settle
from assay.runs.protection import delete_named, protect_named
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import (
    RunNotFound,
    find_named,
    find_run,
    parse_run_name,
    read_winner,
    run_checkpoint,
)
from tests.lab.pivot_lab import DEV, LAST, TEST, PivotLab, ones, score

BATCH = "stage.sft.batch"
SWEEP = f"""\
name = "s"
base = "base.toml"
on = ["test"]
select = "dev"
[axes]
{BATCH} = [2, 4, 8]
"""
HITS = {2: (30, 15), 4: (20, 25), 8: (50, 5)}
"""Right answers to 60 test items and 40 dev items, by batch: dev and test disagree."""


def add(lab: PivotLab, batch: int, test: int, dev: int, seed: int = 1) -> RunDirectory:
    run = lab.run(f"s.batch-{batch}", f"{BATCH}={batch}", seed=seed)
    score(run, LAST, ones(test, 60))
    score(run, LAST, ones(dev, 40), DEV, first=500)
    run.checkpoint("sft", 40).mkdir(parents=True)
    return run


def settled(lab: PivotLab, text: str = SWEEP) -> tuple[Matrix, SweepWinner]:
    matrix = lab.matrix(text)
    return matrix, settle(lab.root, matrix)


def test_the_best_on_dev_wins_once_every_point_is_there_and_its_name_means_it(lab):
    for batch in (2, 4):
        add(lab, batch, *HITS[batch])
    _, early = settled(lab)
    assert early.winner is None and early.line == "no winner yet: 1 point is missing of 3"
    with pytest.raises(InputError, match="no sweep 's' has chosen a winner"):
        find_named(lab.root, "s@winner")
    add(lab, 8, *HITS[8])
    _, done = settled(lab)
    run, reference = find_named(lab.root, "s@winner")
    assert run.name == "s.batch-4" and (reference.stage, reference.step) == ("sft", 40)
    assert run_checkpoint("s@winner", lab.root)[2] == run.checkpoint("sft", 40)
    assert find_run(lab.root, parse_run_name("s@winner")) == run
    assert protect_named(lab.root, "s@winner", "kept") == run.checkpoint("sft", 40)
    assert done.line == f"winner: {run}@{LAST}, the best of 3 on dev"
    winner = read_winner(lab.root, "s")
    assert winner == done.winner and winner is not None
    assert winner.setting == {BATCH: 4} and winner.points == 3
    # What it scored on items that did not choose, not what made it win.
    assert winner.evidence["score"] == pytest.approx(20 / 60)
    assert winner.evidence["dev"] == {"dev": 25 / 40}
    assert winner.evidence["optimism"] > 0 and winner.evidence["beats_baseline"] is False
    assert winner.evidence["undecided_against"] == []


def test_the_record_stays_until_another_point_is_chosen(lab):
    for batch in (2, 4):
        add(lab, batch, *HITS[batch])
    two = SWEEP.replace("[2, 4, 8]", "[2, 4]")
    _, first = settled(lab, two)
    file = lab.root / "sweeps" / "s" / "winner.json"
    stored = file.read_bytes()
    assert settled(lab, two)[1].line == first.line and file.read_bytes() == stored
    # A larger search that is not finished has no other winner yet.
    assert "no winner yet" in settled(lab, SWEEP.replace("[2, 4, 8]", "[2, 4, 9]"))[1].line
    assert file.read_bytes() == stored
    add(lab, 9, 1, 30)
    _, then = settled(lab, SWEEP.replace("[2, 4, 8]", "[2, 4, 9]"))
    assert "is the winner in place of s.batch-4/" in then.note
    assert find_named(lab.root, "s@winner")[0].name == "s.batch-9"


def test_a_winner_is_not_deleted_while_its_sweep_names_it(lab):
    for batch, hits in HITS.items():
        add(lab, batch, *hits)
    settled(lab)
    with pytest.raises(InputError, match=r"the sweep 's' chose it.*winner\.json"):
        delete_named(lab.root, "s.batch-4")
    delete_named(lab.root, "s.batch-8")
    (lab.root / "sweeps/s/winner.json").unlink()
    delete_named(lab.root, "s.batch-4")


def test_every_seed_of_the_winner_has_a_name_and_the_first_is_meant(lab):
    lab.base.write_text(lab.base.read_text().replace("seeds = [1]", "seeds = [1, 2]"))
    text = SWEEP.replace("[2, 4, 8]", "[2]")
    add(lab, 2, 10, 10, seed=1)
    assert "1 point is missing" in settled(lab, text)[1].line
    second = add(lab, 2, 10, 30, seed=2)
    settled(lab, text)
    assert find_named(lab.root, "s#2@winner")[0] == second
    assert find_named(lab.root, "s@winner")[0] != second
    with pytest.raises(RunNotFound, match="it has seeds 1, 2"):
        find_named(lab.root, "s#3@winner")


def test_names_without_a_winner_are_one_line(lab):
    with pytest.raises(InputError, match="no sweep 's' has chosen a winner"):
        find_named(lab.root, "s@winner")
    with pytest.raises(InputError, match="is not"):
        parse_run_name("s/abc@winner")
    file = lab.root / "sweeps" / "s" / "winner.json"
    file.parent.mkdir(parents=True)
    for damaged in ('{"sweep": "s"}', '{"runs": {"1": {}}}', '{"runs": [1]}', "{", "[]"):
        file.write_text(damaged)
        with pytest.raises(DamagedFile, match=r"winner\.json") as raised:
            find_named(lab.root, "s@winner")
        assert "\n" not in str(raised.value)


def test_epochs_of_one_run_are_points_and_the_winner_is_one_of_them(lab):
    """Two runs of 6 epochs, measured after 3 and 6, as report 001 had them: four points."""
    base = lab.base.read_text().replace("steps = 40", "epochs = 6")
    lab.base.write_text(base.replace("every = 20", "every = { epochs = 3 }"))
    # 50 rows: the third epoch of batch 4 ends within step 38, of batch 8 within step 19.
    for batch, steps, dev in ((4, (38, 75), (10, 22)), (8, (19, 38), (30, 12))):
        run = lab.run(f"s.batch-{batch}", f"{BATCH}={batch}", rows=50)
        for step, right in zip(steps, dev, strict=True):
            score(run, f"sft.step-{step:06d}", ones(right, 60))
            score(run, f"sft.step-{step:06d}", ones(right, 40), DEV, first=500)
            run.checkpoint("sft", step).mkdir(parents=True)
        score(run, "sft.step-000010", ones(60, 60))
    text = SWEEP.replace("[2, 4, 8]", "[4, 8]\nepoch = [3, 6]")
    matrix, done = settled(lab, text)
    assert matrix.columns == (3, 6) and matrix.tally.run == 4
    assert matrix.cells[8, 3].name.endswith("@sft.step-000019")
    assert matrix.cells[4, 6].score == pytest.approx(22 / 60)
    assert done.winner is not None and done.winner.setting == {BATCH: 8, "epoch": 3}
    assert find_named(lab.root, "s@winner")[1].step == 19
    _, early = settled(lab, text.replace("[4, 8]", "[4, 16]").replace('"s"', '"t"', 1))
    assert early.line == "no winner yet: 4 points are missing of 4"


FOUR = {"amc": (16, 40), "gsm8k": (933, 1319), "math500": (206, 500), "olympiad": (73, 675)}
"""Right answers and items of report 001's best point; its score is in the report."""
RATIOS = {"amc": 0.30, "gsm8k": 0.716, "math500": 0.44, "olympiad": 0.096}


def report_search(lab: PivotLab) -> str:
    """Three points on four benchmarks and their dev halves: the reported one, one close to it, and
    one that is far behind."""
    evaluations = "".join(
        f'[evaluate.{name}]\nbenchmark = "math/gsm8k"\nrole = "report"\n'
        f'options = {{ path = "{name}.jsonl" }}\ncheckpoints = ["sft.last"]\n'
        f'[evaluate.{name}_dev]\ndata = "sums.dev"\nreward = "accuracy"\nrole = "select"\n'
        'checkpoints = ["sft.last"]\n'
        for name in FOUR
    )
    lab.base.write_text(lab.base.read_text().partition("[evaluate.dev]")[0] + evaluations)
    for batch, change in ((128, -12), (256, -2), (512, 0)):
        run = lab.run(f"s.batch-{batch}", f"{BATCH}={batch}")
        for at, (name, (right, items)) in enumerate(FOUR.items()):
            for dev, role in (("", "report"), ("_dev", "select")):
                record = replace(TEST, name=f"{name}{dev}", role=role, options={"path": name + dev})
                # The close one errs elsewhere, the far one on what the best has right.
                scores = np.roll(ones(right + change, items), 3 if change == -2 else 0)
                score(run, LAST, scores, record, first=10_000 * at + 5000 * bool(dev))
    ratios = RATIOS | {f"{name}_dev": value for name, value in RATIOS.items()}
    return f"""\
name = "s"
base = "base.toml"
on = {json.dumps(list(FOUR))}
select = {json.dumps([f"{name}_dev" for name in FOUR])}
ratios_to = {{ {", ".join(f"{name} = {value}" for name, value in ratios.items())} }}
[axes]
{BATCH} = [128, 256, 512]
"""


def test_report_001s_best_score_comes_out_of_its_counts(lab):
    matrix, done = settled(lab, report_search(lab))
    cell = matrix.cells[512, None]
    assert cell.score == 1.0758890919394155
    assert cell.interval is not None and cell.interval.low < 1.0758890919394155 < cell.interval.high
    advice = matrix.recommendation
    assert advice.dev_scores[512, None] == 1.0758890919394155
    assert advice.winner == cell and done.winner is not None
    assert done.winner.evidence["dev_score"] == 1.0758890919394155
    assert [rival.place for rival in advice.rivals] == [(256, None)]
    assert advice.choice is not None and 0.01 < advice.choice.optimism < 0.1
    # One benchmark at 0 makes the whole 0, and never the best.
    assert matrix.cells[128, None].score is not None
    assert matrix.cells[128, None].score < matrix.cells[256, None].score  # type: ignore[operator]
