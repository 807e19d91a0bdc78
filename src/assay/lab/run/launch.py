"""What to do with an experiment file whose name may have runs: start, go on, or leave them alone.

How a run is executed is `runner`'s part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.experiment.read_file import read_experiment
from assay.lab.monitor.observer import Observer
from assay.lab.run.measure_added import lacking, measure_added
from assay.lab.run.runner import resume, start
from assay.runs.run_directory import RunDirectory
from assay.runs.same_experiment import check_same, newest
from assay.runs.status import read_status

Did = Literal["started", "resumed", "measured", "left alone"]


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
    started = start(file, overrides, root=root, new=new, observer=observer, despite=despite)
    return [Launched(run, "started") for run in started]


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
