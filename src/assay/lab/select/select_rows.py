"""Selects rows by what a run recorded of them: by learning impact (LIMR) or by pass rate.

Each rule scores the measured rows and says why it drops one; the selection is written once, with
where its numbers come from. Formulas are in `judge`, the file in `lab.setup.run_rows`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.data.row import Row
from assay.errors import InputError, look_up, nearest
from assay.experiment.data_tables import PassRate, Recorded
from assay.experiment.experiment import Experiment
from assay.judge.intervals import wilson
from assay.judge.learning_impact import learning_impact
from assay.lab.setup.prepare import asked_rows, rows_by_id
from assay.lab.setup.reward_parts import full_reward
from assay.lab.setup.run_rows import (
    ABSTAINED,
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
from assay.runs.history import Sample, files_sha256, read_description
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
    """Visits of one epoch of the stage; None for an evaluation."""
    role: str | None
    """Of the evaluation; None for a stage."""


def measured_rows(root: Path, run: str, table: Recorded, part: str | None) -> Measured:
    """What a run recorded of a stage or an evaluation; `part` names one set of a mixture. Raises
    InputError, RunNotFound, InputError, DamagedFile."""
    found = records_of(root, run, table)
    experiment = experiment_of(found.run)
    if table.stage is not None:
        return of_data(root, found, experiment, experiment.stage[table.stage].data, part)
    stored = read_description(found.files[0].with_name("evaluation.json"))
    name, role = stored.benchmark, stored.role
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


def epochs_of(measured: Measured, steps_per_epoch: int | None) -> tuple[list[int], int]:
    """The epoch of each of a stage's answers, from 0, and how many are whole: of so many steps
    each, else as the stage visited its rows. Later answers belong to none of the whole ones.

    Raises InputError where not even one is whole, and where steps are missing.
    """
    answers, run = measured.found.answers, measured.found.run
    steps = sorted({answer.step or 0 for answer in answers})
    if missing := set(range(1, steps[-1] + 1)).difference(steps):
        problem = f"{run} has no samples of step {min(missing)}"
        raise InputError(problem, fix="restore them: epochs are counted from the first step on")
    if steps_per_epoch is not None:
        of = [((answer.step or 0) - 1) // steps_per_epoch for answer in answers]
        done, size, unit = steps[-1], steps_per_epoch, "steps"
    else:
        places: dict[tuple[int | None, str, int], int] = {}
        visited = [(answer.step, answer.row, answer.visit) for answer in answers]
        size, unit = measured.epoch_rows or 0, "rows"
        if not size:
            fix = "give --steps-per-epoch"
            raise InputError(f"{run} does not say how many rows an epoch has", fix=fix)
        of = [places.setdefault(visit, len(places)) // size for visit in visited]
        done = len(places)
    if done < size:
        fix = "train for whole epochs, or give --steps-per-epoch"
        raise InputError(f"{run} visited {done} of the {size} {unit} of one epoch", fix=fix)
    return of, done // size


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
BAND = (0.1, 0.9)
NEAR = 1e-9
"""A reward this close below the full one is the full one: parts are added up."""
INCOMPLETE = "not answered in every epoch"


@dataclass(frozen=True)
class Request:
    """What to select by; None is the rule's own value, or an option that it does not have."""

    by: str
    run: str
    to: str
    stage: str | None = None
    evaluation: str | None = None
    checkpoint: str | None = None
    data: str | None = None
    passes: float | None = None
    threshold: float | None = None
    steps_per_epoch: int | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Scored:
    """All rows of a stage or an evaluation as a rule scored them."""

    rule: Mapping[str, Any]
    rows: Sequence[ScoredRow]
    """By the ids that the answers have, and no hash of what they say yet."""
    recorded: Mapping[str, Any] = field(default_factory=dict)
    """More on which answers were used."""


@dataclass(frozen=True)
class Bin:
    """Rows with a score of at least `low`, and below `high`; None is no bound."""

    low: float | None
    high: float | None
    rows: int
    kept: int


@dataclass(frozen=True)
class Selected:
    """A selection that was written, and what to know about it."""

    file: Path
    selection: RowSelection
    bins: tuple[Bin, ...]
    warnings: tuple[str, ...]


def select_rows(root: Path, request: Request) -> Selected:
    """Score the rows that a run measured, and write those that are kept as a selection.

    Raises InputError for a name that is taken, for options that do not fit the rule, for answers
    that are not there or give no scores, and where no row is kept. Nothing is written then.
    """
    rule = look_up(RULES, request.by, "rule")
    recorded = recorded_table(request)
    free_selection_file(root, request.to)
    measured = measured_rows(root, request.run, recorded, request.data)
    scored = rule(measured, root, request)
    selection = made_selection(measured, scored, recorded)
    if not selection.kept:
        reasons = ", ".join(f"{why}: {n}" for why, n in selection.counts["dropped"].items())
        raise InputError("no row is left", field=f"--by {request.by}", fix=reasons)
    file = write_row_selection(root, request.to, selection)
    warnings = tuple(warnings_of(measured, selection))
    return Selected(file, selection, histogram(selection.rows), warnings)


def recorded_table(request: Request) -> Recorded:
    """The answers that are asked for. Raises InputError for options that do not fit together."""
    if (request.stage is None) == (request.evaluation is None):
        found = "neither" if request.stage is None else "both"
        fix = "write --stage NAME, or --evaluation NAME --checkpoint CHECKPOINT"
        raise InputError(f"{found} of --stage and --evaluation given", fix=fix)
    if (request.evaluation is None) != (request.checkpoint is None):
        fix = "write both, such as --evaluation dev --checkpoint base"
        raise InputError("an evaluation has a record for each checkpoint", fix=fix)
    for option in ALIEN[request.by]:
        if getattr(request, option) is not None:
            name = f"--{option.replace('_', '-')}"
            raise InputError(f"--by {request.by} does not read it", field=name, fix="remove it")
    return Recorded(
        stage=request.stage, evaluation=request.evaluation, checkpoint=request.checkpoint
    )


def by_learning_impact(measured: Measured, root: Path, request: Request) -> Scored:
    """LIMR: rows whose learning curve is close enough to the mean curve of all rows."""
    threshold = THRESHOLD if request.threshold is None else request.threshold
    passes = request.passes
    if passes is None:
        passes = full_reward_of(measured, root, request.stage or "")
    answers = measured.found.answers
    epochs, whole = epochs_of(measured, request.steps_per_epoch)
    found = curves(answers, epochs, whole, passes - NEAR * max(1.0, abs(passes)))
    impact = learning_impact(found)
    inside = [a for a, epoch in zip(answers, epochs, strict=True) if epoch < whole]
    judged = Counter(answer.row for answer in inside if answer.reward is not None)
    low = f"score below {threshold:g}"
    rows = []
    for id_, curve in found.items():
        score = impact.scores.get(id_)
        why = INCOMPLETE if score is None else "" if score >= threshold else low
        rows.append(ScoredRow(id_, "", score, judged[id_], curve, why))
    last = max(answer.step or 0 for answer in inside)
    recorded = {"steps": [1, last], "epochs": whole, "mean_curve": impact.mean}
    rule = {"by": "limr", "threshold": threshold, "passes": passes}
    return Scored(rule | {"steps_per_epoch": request.steps_per_epoch}, rows, recorded)


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


def by_pass_rate(measured: Measured, root: Path, request: Request) -> Scored:
    """Rows of whose answers a share between two bounds passed, both included."""
    low = BAND[0] if request.low is None else request.low
    high = BAND[1] if request.high is None else request.high
    if not 0 <= low <= high <= 1:
        fix = f"such as {BAND[0]} and {BAND[1]}"
        raise InputError(f"{low:g} to {high:g} is no band of rates", field="--low", fix=fix)
    passes = PassRate.model_fields["passes"].default if request.passes is None else request.passes
    rewards: dict[str, list[float]] = {}
    for answer in measured.found.answers:
        own = rewards.setdefault(answer.row, [])
        own += [] if answer.reward is None else [answer.reward]
    rows = []
    for id_, found in rewards.items():
        rate = sum(reward >= passes for reward in found) / len(found) if found else None
        rows.append(ScoredRow(id_, "", rate, len(found), (), outside(rate, low, high)))
    steps = sorted({answer.step for answer in measured.found.answers if answer.step is not None})
    rule = {"by": "pass-rate", "low": low, "high": high, "passes": passes}
    return Scored(rule, rows, {"steps": [steps[0], steps[-1]]} if steps else {})


def outside(rate: float | None, low: float, high: float) -> str:
    """Why a rate is dropped; "" for one within the bounds."""
    if rate is None:
        return ABSTAINED
    if rate < low:
        return f"rate below {low:g}"
    return f"rate above {high:g}" if rate > high else ""


RULES: Mapping[str, Callable[[Measured, Path, Request], Scored]] = {
    "limr": by_learning_impact,
    "pass-rate": by_pass_rate,
}
ALIEN: Mapping[str, Sequence[str]] = {
    "limr": ("evaluation", "low", "high"),
    "pass-rate": ("threshold", "steps_per_epoch"),
}
"""Options that a rule does not read."""


def made_selection(measured: Measured, scored: Scored, table: Recorded) -> RowSelection:
    """The selection of the rows that may be selected, with its provenance."""
    rows = []
    for score in scored.rows:
        row = measured.rows.get(score.id)
        if row is None and score.id.startswith(measured.prefix):
            raise InputError(f"{measured.found.run}: its data holds no row {score.id!r} any more")
        if row is not None:  # else of another set of a mixture
            rows.append(replace(score, id=row.id, sha256=row_sha256(row)))
    run, files = measured.found.run, measured.found.files
    dropped = Counter(row.dropped for row in rows if row.dropped)
    counts = {
        "in_data": measured.train_rows,
        "scored": len(rows),
        "kept": sum(not row.dropped for row in rows),
        "dropped": dict(sorted(dropped.items())),
    }
    return RowSelection(
        rule=scored.rule,
        run=str(run),
        recorded={
            **table.model_dump(mode="json", exclude_none=True),
            **({} if measured.role is None else {"role": measured.role}),
            **scored.recorded,
            "files": len(files),
            "file_sha256": files_sha256(run, files),
        },
        data={"name": measured.data, "source": measured.source, "rows_sha256": rows_sha256(rows)},
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        counts=counts,
        rows=tuple(rows),
    )


def warnings_of(measured: Measured, selection: RowSelection) -> list[str]:
    """What makes a selection worth less than it looks."""
    rule, recorded = selection.rule, selection.recorded
    found = []
    if recorded.get("role") == "report":
        found.append(
            f"{recorded['evaluation']} has role report: a run that trains on these rows is refused"
        )
    if rule["by"] == "limr":
        if recorded["epochs"] == 1:
            found.append("one epoch makes no curve: select by pass-rate, or train longer")
        never = sum(not any(row.curve) for row in selection.kept.values())
        if never:
            found.append(
                f"{never} of the {len(selection.kept)} kept rows were never answered right: a mean "
                "curve near 0 is close to theirs (leave them out with pass_rate and where)"
            )
    else:
        found += wide_rates(selection.rows, rule["low"], rule["high"])
    missing = (measured.train_rows or 0) - len(selection.rows)
    if missing > 0:
        found.append(f"{missing} of {measured.train_rows} rows were not measured, and are not kept")
    return found


def wide_rates(rows: Sequence[ScoredRow], low: float, high: float) -> list[str]:
    """A warning where most rates stand on so few answers that the band is inside their interval."""
    rated = [(row.score, row.answers) for row in rows if row.score is not None]
    wide = sum(covers(rate * answers, answers, low, high) for rate, answers in rated)
    if 2 * wide <= len(rated):
        return []
    needed = next(
        (n for n in range(2, 1001, 2) if not covers((low + high) / 2 * n, n, low, high)), None
    )
    fix = f"{needed} answers are enough in its middle" if needed else "widen it"
    return [
        f"{wide} of {len(rated)} rates could lie on either side of {low:g} to {high:g}: their 95% "
        f"intervals (Wilson) hold the whole band; {fix}"
    ]


def covers(passed: float, answers: int, low: float, high: float) -> bool:
    """Whether the interval of a rate reaches beyond both ends of a band."""
    interval = wilson(passed, answers)
    return interval.low < low and interval.high > high


EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def histogram(rows: Sequence[ScoredRow]) -> tuple[Bin, ...]:
    """The scored rows by score: below 0, in fifths, and of 1; bins without a row are left out."""
    scored = [(row.score, not row.dropped) for row in rows if row.score is not None]
    bins = []
    for low, high in zip((None, *EDGES), (*EDGES, None), strict=True):
        inside = [
            kept
            for score, kept in scored
            if (low is None or score >= low) and (high is None or score < high)
        ]
        bins += [Bin(low, high, len(inside), sum(inside))] if inside else []
    return tuple(bins)
