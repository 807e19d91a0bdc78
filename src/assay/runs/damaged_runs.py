"""Which runs cannot be read, and why, so that one of them never hides the others.

Looks at what a list or a comparison needs of a run that it was not asked about by name: its status,
its manifest, its experiment and the descriptions of its records. A run that was asked for is read,
and its damage raised, where it is used.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.runs.manifest_file import read_manifest
from assay.runs.measurements import evaluation_records
from assay.runs.run_directory import RunDirectory
from assay.runs.status import stored_status


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """A run that cannot be read."""

    run: RunDirectory
    why: str

    def __str__(self) -> str:
        return f"{self.run} is damaged and left out: {self.why}"


def apart(runs: Iterable[RunDirectory]) -> tuple[list[RunDirectory], list[DamagedRun]]:
    """The runs that can be read and those that cannot, each in the order given."""
    sound, broken = [], []
    for run in runs:
        why = damage(run)
        if why:
            broken.append(DamagedRun(run, why))
        else:
            sound.append(run)
    return sound, broken


def damage(run: RunDirectory) -> str:
    """Why a run cannot be read, in one line; "" where it can."""
    try:
        stored_status(run.path)
        read_manifest(run)
        read_experiment(run.spec)
        evaluation_records(run)
    except InputError as error:
        return str(error)
    return ""
