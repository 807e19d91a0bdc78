"""One name, one run: two starts at once make one, and what died at birth gives way."""

import os
import signal
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.monitor.observer import Silent
from assay.lab.run import runner
from assay.runs.cost_ledger import CostLedger, LedgerCall, read_calls
from assay.runs.registry import indexed_runs
from assay.runs.run_directory import RunDirectory, all_runs, create_run, hold_run, read_status
from tests.forked import assay, forked
from tests.from_files import launch_or_resume, start
from tests.tiny_labs import make_lab


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_lab(tmp_path, until="[stage.rl]", edits={"steps  = 40": "steps  = 1"})


def born_dead(folder: Path) -> None:
    """Die by SIGKILL between the run's folder and its manifest."""
    runner.work = lambda session: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    start(folder / "tiny.toml", root=folder)


def dead(folder: Path) -> RunDirectory:
    process = forked(born_dead, folder, log=folder / "log.txt")
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    (run,) = all_runs(folder)
    assert read_status(run.path).status == "interrupted" and not run.manifest.exists()
    return run


def test_two_starts_of_one_name_at_once_make_one_run(file: Path) -> None:
    words = ("run", file, "--lab", file.parent, "--or-resume")
    both = [assay(*words, log=file.parent / f"{n}.txt") for n in (1, 2)]
    for process in both:
        process.join(200)
    (run,) = all_runs(file.parent)
    assert read_status(run.path).status == "finished"
    for number, process in enumerate(both, 1):
        shown = (file.parent / f"{number}.txt").read_text()
        assert process.exitcode in (0, 2) and "Traceback" not in shown, shown


def test_a_run_that_appears_while_the_checks_run_is_not_doubled(file, monkeypatch) -> None:
    """The other process makes its run when this one has looked and found none."""
    checked = runner.looked_at
    held = []

    def meanwhile(session, despite=None):
        other = create_run(file.parent, "tiny", seed=7, spec=file.read_text(), new=True)
        held.append(hold_run(other.path))
        held[0].__enter__()
        return checked(session, despite)

    monkeypatch.setattr(runner, "looked_at", meanwhile)
    with pytest.raises(InputError, match="it is running"):
        launch_or_resume(file, [], root=file.parent, observer=Silent())
    held[0].__exit__(None, None, None)
    assert len(all_runs(file.parent)) == 1


def test_a_run_that_died_before_its_manifest_is_not_listed_once_its_name_starts(file) -> None:
    first = dead(file.parent)
    start(file, root=file.parent)
    (second,) = all_runs(file.parent)
    assert second != first and not first.path.exists()
    assert [row.id for row in indexed_runs(file.parent)] == [second.id]


def test_what_a_dead_run_paid_for_is_in_the_ledger_of_the_next(file) -> None:
    first, ledger = dead(file.parent), CostLedger()
    ledger.move_to(first.path)
    ledger.add([LedgerCall("2026-11-24T02:13:44.123Z", "judge", "scripted:x", cost=5)])
    ledger.close()
    start(file, root=file.parent)
    (second,) = all_runs(file.parent)
    assert [call.cost for call in read_calls(second.path)] == [5]
