"""What to do with an experiment file whose name may have runs: start, go on, or leave them alone.

How a run is executed is `runner`'s part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.judge.confounds import differences
from assay.lab.monitor.observer import Observer
from assay.runs.run_directory import RunDirectory, runs_of
from assay.runs.status import is_held, read_status, stored_status

Did = Literal["started", "resumed", "measured", "left alone"]


class OtherExperiment(InputError):
    """The newest run of this name was made from other settings."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A run of the experiment, finished now, and what it took."""

    run: RunDirectory
    did: Did


def launch(
    file: Path,
    overrides: Sequence[str],
    *,
    root: Path,
    new: bool,
    observer: Observer,
    despite: str | None = None,
) -> list[Launched]:
    """Run the experiment, once per seed. Raises RunExists, unless `new`, with what can be done."""
    from assay.lab.run.runner import start

    started = start(file, overrides, root=root, new=new, observer=observer, despite=despite)
    return [Launched(run, "started") for run in started]


def begun(root: Path, name: str) -> list[RunDirectory]:
    """The runs of a name that are at work or have come as far as their manifest, oldest first.

    One that failed earlier, for a wrong path in its file perhaps, has nothing worth resuming.
    """
    runs = runs_of(root, name)
    return [run for run in runs if run.manifest.exists() or is_held(run.path)]


def way_on(run: RunDirectory) -> str:
    """What to do about a run that exists."""
    status = read_status(run.path)
    if status.status == "finished":
        return f"it is finished: see 'assay report {run.name}', or start another with --new"
    if status.status == "running":
        return "it is running; start another with --new"
    if status.guard:
        return f"{status.message}; 'assay resume {run.name} --past-guard', or --new for another"
    return f"it is {status.status}: 'assay resume {run.name}', or start another with --new"


def launch_or_resume(
    file: Path,
    overrides: Sequence[str],
    *,
    root: Path,
    observer: Observer,
    despite: str | None = None,
) -> list[Launched]:
    """For each seed: resume the newest run if it stopped, leave it alone if it is finished, start
    one where there is none. Nothing that is finished is trained again; reporting evaluations that
    the experiment has got since are measured.

    Raises OtherExperiment where the newest run of a seed has other settings.
    """
    from assay.lab.run.measure_added import lacking, measure_added
    from assay.lab.run.runner import resume, start

    experiment = read_experiment(file, overrides)
    done = []
    for seed in experiment.seeds:
        run = newest(root, experiment.name, seed)
        if run is None:
            only = [*overrides, f"seeds=[{seed}]"]
            (run,) = start(file, only, root=root, new=True, observer=observer, despite=despite)
            done.append(Launched(run, "started"))
            continue
        check_same(run, experiment)
        did: Did = "left alone"
        if read_status(run.path).status != "finished":
            observer.note(f"resuming {run}")
            run, did = resume(run, observer=observer, despite=despite), "resumed"
        if added := lacking(run, experiment):
            observer.note(f"measuring {run} on {', '.join(added)}")
            measure_added(run, added, observer)
            did = "resumed" if did == "resumed" else "measured"
        done.append(Launched(run, did))
    return done


def newest(root: Path, name: str, seed: int) -> RunDirectory | None:
    """The newest of the runs that have begun with a seed."""
    runs = [run for run in begun(root, name) if stored_status(run.path).seed == seed]
    return runs[-1] if runs else None


def check_same(run: RunDirectory, experiment: Experiment) -> None:
    """Raise OtherExperiment unless the run was made from these settings; its seed is its own.

    A reporting evaluation that only one of them has makes no other run: it changes no weight.
    """
    own = read_experiment(run.spec)
    before, now = _compared(own, experiment), _compared(experiment, own)
    changed = [difference.path for difference in differences(before, now)]
    if changed:
        fix = "start another with --new, or give the experiment another name"
        if all(path.startswith("evaluate.") for path in changed):
            fix = f"write new values of an evaluate. axis behind the others; else {fix}"
        raise OtherExperiment(f"{run} was made with other settings: {', '.join(changed)}", fix=fix)


def _compared(experiment: Experiment, other: Experiment) -> dict[str, Any]:
    """The settings of one side that count against the other's."""
    table = experiment.model_dump(mode="json", exclude={"seeds"})
    table["evaluate"] = {
        name: table["evaluate"][name]
        for name, spec in experiment.evaluate.items()
        if name in other.evaluate or spec.role == "select"
    }
    return table
