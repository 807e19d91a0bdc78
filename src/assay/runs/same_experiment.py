"""Finds the runs of one experiment by name and settings, and separates those that cannot be read.

A damaged run is listed with its reason, so that it never hides the others. A run that was asked for
by name is read, and its damage raised, where it is used. Makes the folder of a new one; starts and
resumes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.tables import EngineSpec
from assay.judge.confounds import differences
from assay.runs.cost_ledger import take_ledger
from assay.runs.history import evaluation_records
from assay.runs.registry import check_index, remove_run
from assay.runs.run_code import keep_code
from assay.runs.run_directory import (
    RunDirectory,
    begun,
    create_run,
    hold_lab,
    hold_run,
    never_begun,
    read_manifest,
    read_status,
    seed_or_damage,
    stored_status,
)
from assay.runs.run_names import experiment_of


def way_on(run: RunDirectory) -> str:
    """The commands that a user may want for an existing run."""
    status = read_status(run.path)
    if status.status == "finished":
        return f"it is finished: see 'assay report {run.name}', or start another with --new"
    if status.status == "running":
        return "it is running; start another with --new"
    if status.guard:
        return f"{status.message}; 'assay resume {run.name} --past-guard', or --new for another"
    return f"it is {status.status}: 'assay resume {run.name}', or start another with --new"


def refuse_existing(root: Path, name: str, new: bool, seeds: Sequence[int] | None = None) -> None:
    """Raise InputError if the name has started runs (of some `seeds`), unless another is wanted."""
    earlier = begun(root, name)
    if seeds is not None:
        earlier = [run for run in earlier if seed_or_damage(run.path) in seeds]
    if earlier and not new:
        problem = f"a run named {name!r} exists"
        raise InputError(problem, fix=way_on(earlier[-1]))


@contextmanager
def fresh_run(
    root: Path, name: str, seed: int, spec: str, *, new: bool, beside: bool = False
) -> Iterator[RunDirectory]:
    """A new run of `spec` (TOML), held by this process from the instant that others can see it,
    `beside` runs of other seeds.

    It takes the place of runs that ended before they had a manifest, and their ledger. Raises
    InputError.
    """
    with ExitStack() as held:
        with hold_lab(root):
            refuse_existing(root, name, new, [seed] if beside else None)
            check_index(root)
            run = create_run(root, name, seed=seed, spec=spec, new=True)
            held.enter_context(hold_run(run.path))
            keep_code(run)
            for dead in never_begun(root, name):
                if take_ledger(dead, run):
                    remove_run(dead)
        yield run


def newest(root: Path, name: str, seed: int) -> RunDirectory | None:
    """The newest of these runs that has the seed."""
    runs = [run for run in begun(root, name) if stored_status(run.path).seed == seed]
    return runs[-1] if runs else None


def changed_settings(run: RunDirectory, experiment: Experiment) -> list[str]:
    """Settings in which a run and an experiment differ; its seed is its own.

    A reporting evaluation that only one of them has makes no other run: it changes no weight.
    """
    own = experiment_of(run)
    before, now = _compared(own, experiment), _compared(experiment, own)
    return [difference.path for difference in differences(before, now)]


def check_same(run: RunDirectory, experiment: Experiment) -> None:
    """Raise InputError unless the run was made from these settings."""
    if changed := changed_settings(run, experiment):
        fix = "start another with --new, or give the experiment another name"
        if all(path.startswith("evaluate.") for path in changed):
            fix = f"write new values of an evaluate. axis behind the others; else {fix}"
        raise InputError(f"{run} was made with other settings: {', '.join(changed)}", fix=fix)


def _compared(experiment: Experiment, other: Experiment) -> dict[str, Any]:
    """The settings of one side that are compared with the other's; `[log]` changes no result, and
    neither does where evaluations are answered; how many processes train changes nothing but
    rounding."""
    left_out = {"seeds": True, "log": True}
    table = experiment.model_dump(mode="json", exclude=left_out)
    engine = experiment.engine or EngineSpec()
    table["engine"] = engine.model_dump(mode="json", include={"sample"})
    table["evaluate"] = {
        name: table["evaluate"][name]
        for name, spec in experiment.evaluate.items()
        if name in other.evaluate or spec.role == "select"
    }
    return table


def made_so(run: RunDirectory, experiment: Experiment) -> bool:
    """Whether a run was made from these settings, whatever its seed."""
    return not changed_settings(run, experiment)


def newest_by_seed(runs: Iterable[RunDirectory]) -> list[RunDirectory]:
    """The last of the runs of each seed, in the order of the seeds' first runs."""
    return list({stored_status(run.path).seed: run for run in runs}.values())


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """A run that cannot be read."""

    run: RunDirectory
    why: str

    def __str__(self) -> str:
        return f"{self.run} is damaged and left out: {self.why}"


def apart(runs: Iterable[RunDirectory]) -> tuple[list[RunDirectory], list[DamagedRun]]:
    """The runs that can be read and those that cannot, each in the order given."""
    why = {run: damage(run) for run in runs}
    broken = [DamagedRun(run, problem) for run, problem in why.items() if problem]
    return [run for run, problem in why.items() if not problem], broken


def damage(run: RunDirectory) -> str:
    """Why a run cannot be read, in one line; "" where it can."""
    try:
        stored_status(run.path)
        read_manifest(run)
        experiment_of(run)
        evaluation_records(run)
    except InputError as error:
        return str(error)
    return ""
