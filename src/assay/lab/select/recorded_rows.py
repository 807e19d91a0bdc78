"""Collects, for each row, the answers that a stage or an evaluation recorded, and their epochs.

Nothing is judged again or scored here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.data.row import Row
from assay.errors import InputError, nearest
from assay.experiment.data_tables import Recorded
from assay.experiment.experiment import Experiment
from assay.lab.setup.prepare import asked_rows, rows_by_id
from assay.lab.setup.run_rows import Records, check_unchanged, records_of
from assay.runs.history import Sample
from assay.runs.manifest_file import read_manifest
from assay.runs.run_files import read_json
from assay.runs.run_names import experiment_of


class NoEpochs(InputError):
    """Answers that make no whole epoch."""


@dataclass(frozen=True)
class Measured:
    """The answers of a run, and the rows that they are to."""

    found: Records
    data: str
    """The data set, or the benchmark, as the run names it."""
    source: str
    prefix: str
    """What stands before the ids of the rows in the answers: the names of mixed sets."""
    rows: Mapping[str, Row]
    """The rows that may be selected, by the ids that the answers have."""
    train_rows: int | None
    """Rows that there were to measure; None where it is not known."""
    epoch_rows: int | None
    """Visits of one epoch of the stage; None for an evaluation."""
    role: str | None
    """Of the evaluation; None for a stage."""


def measured_rows(root: Path, run: str, table: Recorded, part: str | None) -> Measured:
    """What a run recorded of a stage or an evaluation; `part` names one set of a mixture.

    Raises NothingRecorded, RunNotFound, InputError, DamagedRecord.
    """
    found = records_of(root, run, table)
    experiment = experiment_of(found.run)
    if table.stage is not None:
        return of_data(root, found, experiment, experiment.stage[table.stage].data, part)
    stored = read_json(found.files[0].parent / "evaluation.json", dict)
    name, role = stored["benchmark"], stored["role"]
    if name.partition(".")[0] in experiment.data:
        return of_data(root, found, experiment, name, part, role)
    rows = asked_rows(found, table, root)
    return Measured(found, name, name, "", rows, None, None, role)


def of_data(
    root: Path,
    found: Records,
    experiment: Experiment,
    name: str,
    part: str | None,
    role: str | None = None,
) -> Measured:
    """The answers to rows of a data set, or of one set of a mixture."""
    data, dot, dev = name.partition(".")
    check_unchanged(found.run, experiment, data, root)
    leaf, prefix = one_set(experiment, data, part)
    rows = {f"{prefix}{id_}": row for id_, row in rows_by_id(experiment, leaf, root).items()}
    noted = read_manifest(found.run).get("data", {})
    side = noted.get(data, {}).get(dev or "train", {})
    epoch = side.get("epoch_rows", side.get("rows"))
    train = noted.get(leaf, {}).get(dev or "train", {}).get("rows")
    source = experiment.data[leaf].origin
    return Measured(found, f"{leaf}{dot}{dev}", source, prefix, rows, train, epoch, role)


def one_set(experiment: Experiment, data: str, part: str | None) -> tuple[str, str]:
    """The set whose rows are to be selected, and what stands before their ids in `data`."""
    sets = leaves(experiment, data)
    if part is None and len(sets) > 1:
        fix = f"say which with --data: {', '.join(sets)}"
        raise InputError(f"data.{data} is a mixture, and a selection is of one set", fix=fix)
    wanted = part or next(iter(sets))
    if wanted not in sets:
        fix = nearest(wanted, sets)
        raise InputError(f"data.{data} holds no rows of {wanted!r}", field="--data", fix=fix)
    return wanted, sets[wanted]


def leaves(experiment: Experiment, data: str, prefix: str = "") -> dict[str, str]:
    """The sets that are no mixtures in a set, each with what stands before its rows' ids."""
    mix = experiment.data[data].mix
    if mix is None:
        return {data: prefix}
    found = {}
    for part in mix:
        found |= leaves(experiment, part, f"{prefix}{part}/")
    return found


def own_row(measured: Measured, id_: str) -> Row | None:
    """The row of an answer; None for one of another set of a mixture. Raises InputError."""
    if id_ not in measured.rows and id_.startswith(measured.prefix):
        raise InputError(f"{measured.found.run}: its data holds no row {id_!r} any more")
    return measured.rows.get(id_)


@dataclass(frozen=True)
class Epochs:
    """The epochs that answers were sampled in."""

    of: tuple[int, ...]
    """Of each answer, from 0."""
    whole: int
    """Epochs that the stage went through to their end; later answers belong to none of them."""


def epochs_of(measured: Measured, steps_per_epoch: int | None) -> Epochs:
    """The epochs of a stage's answers: of so many steps each, else as the stage visited its rows.

    Raises NoEpochs where not even one is whole, and where steps are missing.
    """
    answers, run = measured.found.answers, measured.found.run
    steps = sorted({answer.step or 0 for answer in answers})
    if missing := set(range(1, steps[-1] + 1)).difference(steps):
        problem = f"{run} has no samples of step {min(missing)}"
        raise NoEpochs(problem, fix="restore them: epochs are counted from the first step on")
    if steps_per_epoch is not None:
        of = [((answer.step or 0) - 1) // steps_per_epoch for answer in answers]
        done, size, unit = steps[-1], steps_per_epoch, "steps"
    else:
        places: dict[tuple[int | None, str, int], int] = {}
        visited = [(answer.step, answer.row, answer.visit) for answer in answers]
        size, unit = measured.epoch_rows or 0, "rows"
        if not size:
            fix = "give --steps-per-epoch"
            raise NoEpochs(f"{run} does not say how many rows an epoch has", fix=fix)
        of = [places.setdefault(visit, len(places)) // size for visit in visited]
        done = len(places)
    if done < size:
        fix = "train for whole epochs, or give --steps-per-epoch"
        raise NoEpochs(f"{run} visited {done} of the {size} {unit} of one epoch", fix=fix)
    return Epochs(tuple(of), done // size)


def curves(
    answers: Sequence[Sample], epochs: Epochs, passes: float
) -> dict[str, tuple[float | None, ...]]:
    """For each row the share of its answers with a reward of at least `passes`, by whole epoch.

    Abstentions do not count; an epoch without a reward is None.
    """
    rewards: dict[str, list[list[float]]] = {}
    for answer, epoch in zip(answers, epochs.of, strict=True):
        if epoch < epochs.whole:
            by_epoch = rewards.setdefault(answer.row, [[] for _ in range(epochs.whole)])
            if answer.reward is not None:
                by_epoch[epoch].append(answer.reward)
    return {
        row: tuple(sum(r >= passes for r in found) / len(found) if found else None for found in own)
        for row, own in rewards.items()
    }
