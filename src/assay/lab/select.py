"""Selects rows by what a run recorded of them: by learning impact (LIMR).

The measured rows are scored, with why one is dropped; the selection is written once, with where its
numbers come from. The formula is in `judge`, the file in `lab.data.run_rows`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.errors import InputError
from assay.experiment.data_tables import Recorded
from assay.judge.selection import learning_impact
from assay.lab.data.prepare import rows_by_id
from assay.lab.data.run_rows import (
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
from assay.lab.session.reward_parts import full_reward
from assay.runs.history import Sample, files_sha256
from assay.runs.run_directory import read_manifest
from assay.runs.run_names import experiment_of
from assay.tasks.task import task

THRESHOLD = 0.6
NEAR = 1e-9
"""A reward this close below the full one is the full one: parts are added up."""
INCOMPLETE = "not answered in every epoch"


@dataclass(frozen=True)
class Selected:
    """A selection that was written, and what to know about it."""

    file: Path
    selection: RowSelection
    warnings: tuple[str, ...]


def select_rows(
    root: Path,
    run: str,
    stage: str,
    to: str,
    passes: float | None = None,
    threshold: float = THRESHOLD,
) -> Selected:
    """Keep the rows whose learning curve in a stage is close enough to the mean curve of all rows,
    and write them as the selection `to`. `passes`: the smallest reward that is right, else the full
    one.

    Raises InputError for a name that is taken, for answers that are not there or give no scores,
    and where no row is kept. Nothing is written then.
    """
    table = Recorded(stage=stage)
    free_selection_file(root, to)
    records = records_of(root, run, table)
    experiment = experiment_of(records.run)
    data, dot, dev = experiment.stage[stage].data.partition(".")
    if experiment.data[data].mix is not None:
        fix = "name a stage that learned from one set"
        raise InputError(f"data.{data} is a mixture, and a selection is of one set", fix=fix)
    check_unchanged(records.run, experiment, data, root)
    known = rows_by_id(experiment, data, root)
    if passes is None:
        passes = full_reward_of(records, root, stage)
    counts = read_manifest(records.run).get("data", {}).get(data, {}).get(dev or "train", {})
    epochs, whole = epochs_of(records, counts.get("epoch_rows", counts.get("rows", 0)))
    shares = curves(records.answers, epochs, whole, passes - NEAR * max(1.0, abs(passes)))
    impact = learning_impact(shares)
    inside = [a for a, epoch in zip(records.answers, epochs, strict=True) if epoch < whole]
    judged = Counter(answer.row for answer in inside if answer.reward is not None)
    rows = []
    for id_, curve in shares.items():
        if id_ not in known:
            raise InputError(f"{records.run}: its data holds no row {id_!r} any more")
        score, why = impact.scores.get(id_), ""
        if score is None or score < threshold:
            why = INCOMPLETE if score is None else f"score below {threshold:g}"
        rows.append(ScoredRow(id_, row_sha256(known[id_]), score, judged[id_], curve, why))
    dropped = dict(sorted(Counter(row.dropped for row in rows if row.dropped).items()))
    kept = sum(not row.dropped for row in rows)
    if not kept:
        reasons = ", ".join(f"{why}: {n}" for why, n in dropped.items())
        raise InputError("no row is left", fix=reasons)
    total, source = counts.get("rows"), experiment.data[data].origin
    selection = RowSelection(
        rule={"by": "limr", "threshold": threshold, "passes": passes},
        run=str(records.run),
        recorded={
            **table.model_dump(mode="json", exclude_none=True),
            "steps": [1, max(answer.step or 0 for answer in inside)],
            "epochs": whole,
            "mean_curve": impact.mean,
            "files": len(records.files),
            "file_sha256": files_sha256(records.run, records.files),
        },
        data={"name": f"{data}{dot}{dev}", "source": source, "rows_sha256": rows_sha256(rows)},
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        counts={"in_data": total, "scored": len(rows), "kept": kept, "dropped": dropped},
        rows=tuple(rows),
    )
    warnings = tuple(warnings_of(selection, total or 0))
    return Selected(write_row_selection(root, to, selection), selection, warnings)


def epochs_of(records: Records, size: int) -> tuple[list[int], int]:
    """The epoch of each of a stage's answers, from 0, and how many are whole, as the stage visited
    its rows, `size` an epoch. Later answers belong to none of the whole ones.

    Raises InputError where not even one is whole, and where steps are missing.
    """
    answers, run = records.answers, records.run
    steps = sorted({answer.step or 0 for answer in answers})
    if missing := set(range(1, steps[-1] + 1)).difference(steps):
        problem = f"{run} has no samples of step {min(missing)}"
        raise InputError(problem, fix="restore them: epochs are counted from the first step on")
    places: dict[tuple[int | None, str, int], int] = {}
    visited = [(answer.step, answer.row, answer.visit) for answer in answers]
    order = [places.setdefault(visit, len(places)) for visit in visited]
    if not size or len(places) < size:
        problem = f"{run} visited {len(places)} of the {size or 'unknown'} rows of one epoch"
        raise InputError(problem, fix="train for whole epochs, or train longer")
    return [place // size for place in order], len(places) // size


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
        row: tuple(sum(r >= passes for r in each) / len(each) if each else None for each in own)
        for row, own in rewards.items()
    }


def full_reward_of(records: Records, root: Path, stage: str) -> float:
    """The full reward of a stage. Raises InputError where its reward has none."""
    experiment = experiment_of(records.run)
    reward = getattr(experiment.stage[stage], "reward", None)
    full = float("inf")
    if reward is not None:
        full = full_reward(task(experiment.task, root), reward, root)
    if abs(full) == float("inf"):
        problem = f"the reward of stage {stage!r} has no full value"
        raise InputError(problem, field="--passes", fix="write the smallest reward that is right")
    return full


def warnings_of(selection: RowSelection, total: int) -> list[str]:
    """What makes a selection worth less than it looks."""
    warnings = []
    if selection.recorded["epochs"] == 1:
        warnings.append("one epoch makes no curve: train longer")
    never = sum(not any(row.curve) for row in selection.kept.values())
    if never:
        warnings.append(
            f"{never} of the {len(selection.kept)} kept rows were never answered right: a mean "
            "curve near 0 is close to theirs (leave them out with pass_rate and where)"
        )
    if total > len(selection.rows):
        missing = total - len(selection.rows)
        warnings.append(f"{missing} of {total} rows were not measured, and are not kept")
    return warnings
