"""A ledger that lost calls is noticed, and what a step cost survives a kill."""

import os
import re
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.lab.run.resume import resume
from assay.labs.math.rewards import REWARDS
from assay.runs.cost_ledger import LEDGER, MARK, CostLedger, LedgerCall, lost_calls, read_calls
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, all_runs, runs_of
from assay.runs.verify_files import verify_run
from assay.tasks.helper_model import HelperModel
from assay.tasks.judge_reward import JudgeReward, answers
from tests.cli.conftest import call
from tests.forked import forked
from tests.from_files import start
from tests.lab.run.test_costs_of_runs import lab

JUDGED = 4
"""Judgements of a step."""


def work(folder: Path, die_at: int, despite: str | None = None) -> None:
    """Start the run or go on with it; dies by SIGKILL after the judgement number `die_at`."""

    def dying(batch: list[tuple[Row, Completion]], helpers: dict[str, HelperModel]) -> list[Reward]:
        ((_, completion),) = batch
        if completion.id:
            with (folder / "calls").open("a") as log:
                log.write(f"{completion.id}\n")
            if len((folder / "calls").read_text().splitlines()) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
        answers(helpers["judge"], [(Message("user", "score"),)], [completion.id])
        return [Reward(float(len(completion.text) % 5))]

    REWARDS["asked"] = JudgeReward(dying, ("judge",))  # type: ignore[index]
    if runs := all_runs(folder):
        resume(runs[0], despite=despite)
    else:
        start(lab(folder), ["stage.rl.checkpoint_every=2"], root=folder)


def worked(folder: Path, die_at: int, *despite: str) -> RunDirectory:
    """The run, once a process of its own did its part of the work and died or not as told."""
    process = forked(work, folder, die_at, *despite, log=folder / "log.txt")
    process.join(120)
    expected = -signal.SIGKILL if die_at else 0
    assert process.exitcode == expected, (folder / "log.txt").read_text()[-2000:]
    (run,) = all_runs(folder)
    return run


def finished(folder: Path, *deaths: int) -> RunDirectory:
    return [worked(folder, die_at) for die_at in (*deaths, 0)][-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return finished(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def run(whole: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(whole.root, tmp_path, dirs_exist_ok=True)
    (run,) = runs_of(tmp_path, "tiny")
    return run


def judged_metrics(run: RunDirectory) -> list[dict[str, float]]:
    """Metrics, but for times, memory, and the check that a resumed stage repeats."""
    again = re.compile(r".*seconds|.*_mb|self_check_.*")
    lines = read_metrics(run.metrics)
    return [{k: v for k, v in line.items() if not again.fullmatch(k)} for line in lines]


def results(run: RunDirectory) -> dict[str, list[dict]]:
    """Samples and records, but for the seconds that they took."""
    files = [*run.path.glob("samples/*/*.parquet"), *run.path.glob("evaluations/*/*.parquet")]
    tables = {file.name: pq.read_table(file) for file in files}
    return {
        name: table.select([c for c in table.column_names if c != "seconds"]).to_pylist()
        for name, table in tables.items()
    }


def test_a_run_killed_while_it_judges_pays_for_none_twice_and_ends_as_if_it_never_was(
    whole, tmp_path
) -> None:
    deaths = (2, 3 * JUDGED)  # in the middle of a step, and after a checkpoint
    run = finished(tmp_path, *deaths)
    assert judged_metrics(run) == judged_metrics(whole)
    assert all(line["helper/judge/cost"] > 0 for line in judged_metrics(run))
    assert results(run) == results(whole)
    asked_for = Counter((tmp_path / "calls").read_text().split())
    assert asked_for.total() == len(asked_for) + len(deaths), "the interrupted ones alone again"
    assert not [*run.path.glob("judgements-*")], "what is recorded is journalled no longer"


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    with sqlite3.connect(file) as store:
        store.execute("DELETE FROM calls WHERE id > 9")


@pytest.mark.parametrize("fault", [Path.unlink, emptied, cut])
def test_a_ledger_that_lost_calls_is_told_by_verify_costs_and_resume(
    run: RunDirectory, fault: Callable[[Path], None]
) -> None:
    assert not lost_calls(run) and not verify_run(run).faults
    for beside in ("-wal", "-shm"):
        (run.path / f"{LEDGER}{beside}").unlink(missing_ok=True)
    fault(run.path / LEDGER)
    (found,) = verify_run(run).faults
    assert found.file == LEDGER and found.kind == ("missing" if fault is Path.unlink else "damaged")
    shown = call("costs", "tiny", "--lab", run.root)
    assert "Calls are lost and the sums are too low" in shown.stdout
    assert "asked no helper model" not in shown.stdout


@pytest.mark.parametrize("mark", ['{"calls": 4, "ended": 3, "most": "x"}', '{"calls": 1e400}', "["])
def test_a_state_that_is_none_is_named_in_one_line(run: RunDirectory, mark: str) -> None:
    (run.path / MARK).write_text(mark)
    (found,) = verify_run(run).faults
    assert found.file == LEDGER and MARK in found.problem
    shown = call("costs", "tiny", "--lab", run.root)
    assert shown.exit_code == 2 and MARK in shown.stderr and "Traceback" not in shown.stderr


def test_a_ledger_without_tables_or_with_unreadable_rows_is_told(run: RunDirectory) -> None:
    with closing(sqlite3.connect(run.path / LEDGER)) as store, store:
        store.execute("UPDATE calls SET problem = CAST(X'ff' AS TEXT) WHERE id = 2")
    (found,) = verify_run(run).faults
    assert found.file == LEDGER and "UTF-8" in found.problem
    for name in (MARK, "costs.json"):
        (run.path / name).unlink(missing_ok=True)
    for kept in run.path.glob("checkpoints/*/*/costs.json"):
        kept.unlink()
    with closing(sqlite3.connect(run.path / LEDGER)) as store, store:
        store.execute("DROP TABLE calls")
    assert "no such table: calls" in lost_calls(run)


@pytest.mark.parametrize("broken", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_goes_on_without_its_ledger_only_with_a_reason(tmp_path, broken) -> None:
    run = worked(tmp_path, 2 * JUDGED + 2)
    for file in run.path.glob(f"{LEDGER}*"):
        file.unlink()
    if broken:
        (run.path / LEDGER).write_bytes(b"no database, and longer than a header of one" * 9)
    with pytest.raises(InputError, match=r"held \d+ calls when rl/step-000002"):
        resume(run)
    assert (run.path / LEDGER).exists() == broken
    shown = call("resume", "tiny", "--lab", tmp_path)
    assert shown.exit_code == 2 and "--despite" in shown.stderr
    worked(tmp_path, 0, "the disk was lost")
    assert "when rl/step-000002 was made" in lost_calls(run)


def pay_and_die(folder: Path, paid: LedgerCall) -> None:
    ledger = CostLedger()
    ledger.move_to(folder)
    ledger.add([replace(paid, cost=7)] * 3)
    os.kill(os.getpid(), signal.SIGKILL)


def test_calls_that_only_the_write_ahead_log_held_are_known_and_told(tmp_path) -> None:
    run = worked(tmp_path, JUDGED + 2)
    with closing(sqlite3.connect(run.path / LEDGER)) as store:
        store.execute("PRAGMA wal_checkpoint")  # what is older than the log is in the file
    paid = read_calls(run.path)
    forked(pay_and_die, run.path, paid[0], log=tmp_path / "log.txt").join(60)
    assert len(read_calls(run.path)) == len(paid) + 3
    (run.path / f"{LEDGER}-wal").unlink()
    lost = f"holds {len(paid)} calls"
    assert lost in lost_calls(run)
    assert "21 nano-units at most more" in lost_calls(run)
    (found,) = verify_run(run).faults
    assert found.file == LEDGER and lost in found.problem
    with pytest.raises(InputError, match=lost):
        resume(run)
    worked(tmp_path, 0, "the disk was lost")
    assert "after its last call, 21 nano-units" in lost_calls(run)
