"""The actions of a lab on experiment files, each read whole first as the command line does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.experiment.read_file import ExperimentSource, read_experiment
from assay.lab.check import all_checks
from assay.lab.run import resume, runner
from assay.lab.session import session
from assay.lab.session.validate import read_whole
from assay.runs.run_directory import RunDirectory


def start(
    source: ExperimentSource, overrides: Sequence[str] = (), *, root: Path, **options: Any
) -> list[RunDirectory]:
    return runner.start(read_whole(source, overrides, root), root=root, **options)


def run_from(file: Path, overrides: Sequence[str] = (), **options: Any) -> RunDirectory:
    """The one run of an experiment file that lies in its lab's root."""
    (run,) = start(file, overrides, root=file.parent, **options)
    return run


def launch_or_resume(
    source: ExperimentSource, overrides: Sequence[str] = (), *, root: Path, **options: Any
) -> list[resume.Launched]:
    experiment = read_experiment(source, overrides)
    return resume.launch_or_resume(experiment, root=root, **options)


def check_experiment(
    source: ExperimentSource, overrides: Sequence[str] = (), *, root: Path, **options: Any
) -> all_checks.CheckResult:
    experiment = read_whole(source, overrides, root)
    return all_checks.check_experiment(experiment, root=root, **options)


def generate_tables(
    source: ExperimentSource, overrides: Sequence[str], root: Path, *options: Any
) -> list[Any]:
    return session.generate_tables(read_whole(source, overrides, root), root, *options)
