"""Which of the runs that a reader names is the control.

The one that was asked for, else the one that the other runs' experiment files name, else the first.
"""

from collections.abc import Sequence
from pathlib import Path

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.runs.run_names import find_run, parse_run_name


class TooFewRuns(InputError):
    """One run alone is compared with nothing."""


def arrange(root: Path, names: Sequence[str], control: str | None = None) -> list[str]:
    """The names of runs with the control first; one run alone is joined by its file's control.

    Raises TooFewRuns, and RunNotFound with the nearest names.
    """
    named = {name: _declared(root, name) for name in names}
    control = control or _named_by_the_others(named) or names[0]
    arranged = [control, *(name for name in names if name != control)]
    if len(arranged) < 2:
        fix = "name two, or a control in its experiment file"
        raise TooFewRuns(f"{names[0]!r} alone is compared with nothing", fix=fix)
    return arranged


def _declared(root: Path, name: str) -> str | None:
    """The control that the run's experiment file names."""
    return read_experiment(find_run(root, parse_run_name(name)).spec).control


def _named_by_the_others(named: dict[str, str | None]) -> str | None:
    """The control that all files name which name one: as it was given, where it was."""
    wanted = {control for control in named.values() if control is not None}
    if len(wanted) != 1:
        return None
    (control,) = wanted
    given = [name for name in named if parse_run_name(name).name == control]
    if len(given) == 1:
        return given[0]
    return control if not given and len(named) == 1 else None
