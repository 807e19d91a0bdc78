"""Reads an experiment file and says everything that is wrong with it at once: values, the rules
between tables, names of registers, files that are not there.

What is in the files, and whether the model can be trained, is for the checks.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.experiment.experiment import Experiment
from assay.experiment.overrides import parse_override
from assay.experiment.problems import Problem
from assay.experiment.read_file import SpecError, first_error, read_experiment
from assay.lab.setup.unknown_names import unknown_names


def read_whole(file: Path, overrides: Sequence[str], root: Path) -> Experiment:
    """The resolved experiment of `file` in the lab at `root`.

    Raises SpecError with all problems that can be known without opening data or model.
    """
    experiment, problems = None, []
    try:
        experiment = read_experiment(file, overrides)
    except SpecError as wrong:
        if wrong.rest is None:
            raise
        problems = list(wrong.problems)
        problems += [*unknown_names(wrong.rest), *absent_files(wrong.rest, root)]
    else:
        problems = [*unknown_names(experiment), *absent_files(experiment, root)]
    if experiment is None or problems:
        text = file.read_text(encoding="utf-8")
        raise first_error(problems, file, text, [parse_override(each) for each in overrides])
    return experiment


def absent_files(experiment: Experiment, root: Path) -> Iterator[Problem]:
    """Data files and model folders that are not there; relative ones count from `root`."""
    kind, _, name = experiment.model.partition(":")
    folder = root / Path(name).expanduser()
    if kind == "path" and not folder.is_dir():
        yield Problem(("model",), f"{folder}: no such folder", f"it counts from {root}")
    for name, data in experiment.data.items():
        kind, _, rest = data.source.partition(":")
        if kind == "path" and not (root / rest).exists():
            problem = f"{root / rest}: no such file"
            yield Problem(("data", name, "source"), problem, f"it counts from {root}")
