"""Selects rows by what a run recorded of them: by learning impact (LIMR).

Each rule scores the measured rows and says why it drops one; the selection is written once, with
where its numbers come from. Formulas are in `judge`, the file in `lab.setup.run_rows`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.data.row import Row
from assay.errors import InputError, nearest
from assay.experiment.data_tables import Recorded
from assay.experiment.experiment import Experiment
from assay.judge.trends import learning_impact
from assay.lab.setup.prepare import rows_by_id
from assay.lab.setup.reward_parts import full_reward
from assay.lab.setup.run_rows import (
    Records,
    RowSelection,
    ScoredRow,
    check_unchanged,
    free_selection_file,
    records_of,
    row_sha256,
    rows_sha256,
    write_row_selection,
)
from assay.runs.history import Sample, files_sha256
from assay.runs.manifest_file import read_manifest
from assay.runs.run_names import experiment_of
from assay.tasks.task import task


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
    """Visits of one epoch of the stage; None where it is not known."""


def measured_rows(root: Path, run: str, table: Recorded, part: str | None) -> Measured:
    """What a run recorded of a stage; `part` names one set of a mixture. Raises
    RunNotFound, InputError, DamagedFile."""
    found = records_of(root, run, table)
    experiment = experiment_of(found.run)
    data, dot, dev = experiment.stage[table.stage or ""].data.partition(".")
    check_unchanged(found.run, experiment, data, root)
    leaf, prefix = one_set(experiment, data, part)
    rows = {f"{prefix}{id_}": row for id_, row in rows_by_id(experiment, leaf, root).items()}
    noted = read_manifest(found.run).get("data", {})
    side = noted.get(data, {}).get(dev or "train", {})
    epoch = side.get("epoch_rows", side.get("rows"))
    train = noted.get(leaf, {}).get(dev or "train", {}).get("rows")
    source = experiment.data[leaf].origin
    return Measured(found, f"{leaf}{dot}{dev}", source, prefix, rows, train, epoch)


def one_set(experiment: Experiment, data: str, part: str | None) -> tuple[str, str]:
    """The set whose rows are to be selected, and what stands before their ids in `data`."""
    waiting, sets = [(data, "")], dict[str, str]()
    for name, prefix in waiting:
        mix = experiment.data[name].mix
        waiting += [(inner, f"{prefix}{inner}/") for inner in mix or ()]
        if mix is None:
            sets[name] = prefix
    if part is None and len(sets) > 1:
        fix = f"say which with --data: {', '.join(sets)}"
        raise InputError(f"data.{data} is a mixture, and a selection is of one set", fix=fix)
    wanted = part or next(iter(sets))
    if wanted not in sets:
        fix = nearest(wanted, sets)
        raise InputError(f"data.{data} holds no rows of {wanted!r}", field="--data", fix=fix)
    return wanted, sets[wanted]


def epochs_of(measured: Measured) -> tuple[list[int], int]:
    """The epoch of each of a stage's answers, from 0, and how many are whole, as the stage visited
    its rows. Later answers belong to none of the whole ones.

    Raises InputError where not even one is whole, and where steps are missing.
    """
    answers, run = measured.found.answers, measured.found.run
    steps = sorted({answer.step or 0 for answer in answers})
    if missing := set(range(1, steps[-1] + 1)).difference(steps):
        problem = f"{run} has no samples of step {min(missing)}"
        raise InputError(problem, fix="restore them: epochs are counted from the first step on")
    if not (size := measured.epoch_rows or 0):
        raise InputError(f"{run} does not say how many rows an epoch has", fix="train longer")
    places: dict[tuple[int | None, str, int], int] = {}
    visited = [(answer.step, answer.row, answer.visit) for answer in answers]
    of = [places.setdefault(visit, len(places)) // size for visit in visited]
    if len(places) < size:
        problem = f"{run} visited {len(places)} of the {size} rows of one epoch"
        raise InputError(problem, fix="train for whole epochs, or train longer")
    return of, len(places) // size


def curves(
    answers: Sequence[Sample], epochs: Sequence[int], whole: int, passes: float
) -> dict[str, tuple[float | None, ...]]:
    """For each row the share of its answers with a reward of at least `passes`, by whole epoch.
    Abstentions do not count; an epoch without a reward is None."""
    rewards: dict[str, list[list[float]]] = {}
    for answer, epoch in zip(answers, epochs, strict=True):
        if epoch < whole:
            by_epoch = rewards.setdefault(answer.row, [[] for _ in range(whole)])
            if answer.reward is not None:
                by_epoch[epoch].append(answer.reward)
    return {
        row: tuple(sum(r >= passes for r in found) / len(found) if found else None for found in own)
        for row, own in rewards.items()
    }


THRESHOLD = 0.6
NEAR = 1e-9
"""A reward this close below the full one is the full one: parts are added up."""
INCOMPLETE = "not answered in every epoch"


@dataclass(frozen=True)
class Request:
    """What to select by; None is the rule's own value, or an option that it does not have."""

    by: str
    run: str
    to: str
    stage: str
    data: str | None = None
    passes: float | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Selected:
    """A selection that was written, and what to know about it."""

    file: Path
    selection: RowSelection
    warnings: tuple[str, ...]


def select_rows(root: Path, request: Request) -> Selected:
    """Score the rows that a run measured, and write those that are kept as a selection.

    Raises InputError for a name that is taken, for options that do not fit the rule, for answers
    that are not there or give no scores, and where no row is kept. Nothing is written then.
    """
    if request.by != "limr":
        fix = "rows within a band of rates are taken by pass_rate and where of a data set"
        raise InputError(f"no rule {request.by!r}, only limr", field="--by", fix=fix)
    recorded = Recorded(stage=request.stage)
    free_selection_file(root, request.to)
    measured = measured_rows(root, request.run, recorded, request.data)
    selection = by_learning_impact(measured, root, request, recorded)
    if not selection.kept:
        reasons = ", ".join(f"{why}: {n}" for why, n in selection.counts["dropped"].items())
        raise InputError("no row is left", field=f"--by {request.by}", fix=reasons)
    file = write_row_selection(root, request.to, selection)
    warnings = tuple(warnings_of(measured, selection))
    return Selected(file, selection, warnings)


def by_learning_impact(
    measured: Measured, root: Path, request: Request, table: Recorded
) -> RowSelection:
    """LIMR: rows whose learning curve is close enough to the mean curve of all rows, of those that
    may be selected."""
    threshold = THRESHOLD if request.threshold is None else request.threshold
    passes = request.passes
    if passes is None:
        passes = full_reward_of(measured, root, request.stage)
    (run, files), answers = (measured.found.run, measured.found.files), measured.found.answers
    epochs, whole = epochs_of(measured)
    found = curves(answers, epochs, whole, passes - NEAR * max(1.0, abs(passes)))
    impact = learning_impact(found)
    inside = [a for a, epoch in zip(answers, epochs, strict=True) if epoch < whole]
    judged = Counter(answer.row for answer in inside if answer.reward is not None)
    low = f"score below {threshold:g}"
    rows = []
    for id_, curve in found.items():
        row, score = measured.rows.get(id_), impact.scores.get(id_)
        if row is None and id_.startswith(measured.prefix):
            raise InputError(f"{run}: its data holds no row {id_!r} any more")
        if row is not None:  # else of another set of a mixture
            why = INCOMPLETE if score is None else "" if score >= threshold else low
            rows.append(ScoredRow(row.id, row_sha256(row), score, judged[id_], curve, why))
    dropped = Counter(row.dropped for row in rows if row.dropped)
    return RowSelection(
        rule={"by": "limr", "threshold": threshold, "passes": passes},
        run=str(run),
        recorded={
            **table.model_dump(mode="json", exclude_none=True),
            "steps": [1, max(answer.step or 0 for answer in inside)],
            "epochs": whole,
            "mean_curve": impact.mean,
            "files": len(files),
            "file_sha256": files_sha256(run, files),
        },
        data={"name": measured.data, "source": measured.source, "rows_sha256": rows_sha256(rows)},
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        counts={
            "in_data": measured.train_rows,
            "scored": len(rows),
            "kept": sum(not row.dropped for row in rows),
            "dropped": dict(sorted(dropped.items())),
        },
        rows=tuple(rows),
    )


def full_reward_of(measured: Measured, root: Path, stage: str) -> float:
    """The full reward of a stage. Raises InputError where its reward has none."""
    experiment = experiment_of(measured.found.run)
    reward = getattr(experiment.stage[stage], "reward", None)
    full = float("inf")
    if reward is not None:
        full = full_reward(task(experiment.task, root), reward, root)
    if abs(full) == float("inf"):
        problem = f"the reward of stage {stage!r} has no full value"
        raise InputError(problem, field="--passes", fix="write the smallest reward that is right")
    return full


def warnings_of(measured: Measured, selection: RowSelection) -> list[str]:
    """What makes a selection worth less than it looks."""
    found = []
    if selection.recorded["epochs"] == 1:
        found.append("one epoch makes no curve: train longer")
    never = sum(not any(row.curve) for row in selection.kept.values())
    if never:
        found.append(
            f"{never} of the {len(selection.kept)} kept rows were never answered right: a mean "
            "curve near 0 is close to theirs (leave them out with pass_rate and where)"
        )
    missing = (measured.train_rows or 0) - len(selection.rows)
    if missing > 0:
        found.append(f"{missing} of {measured.train_rows} rows were not measured, and are not kept")
    return found
