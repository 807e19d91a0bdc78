"""The rows of a run's result tables, made from its facts. Scores and verdicts come from `judge`.

A cell without a measurement is None. Pages write it as "not run" or a dash, never as 0.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.compare.table import Line, Table
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.pages.words import Words
from assay.runs.checkpoints import read_selections
from assay.runs.records import ABSTAINED, RIGHT

if TYPE_CHECKING:  # gathering facts loads what a comparison does not need
    from assay.pages.facts import Measurement, RunFacts

OTHER = "other"
SHOWN_ERRORS = 7


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One checkpoint on one evaluation."""

    name: str
    label: str
    chosen: bool
    """Whether it was selected on dev items."""
    best_of: tuple[str, ...]
    """Stages that started from it and did not significantly improve on it."""
    line: Line | None
    """None: not run."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the score by checkpoint: its mean, None where no answer has it."""

    name: str
    shares: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The number of answers with this outcome, by checkpoint."""

    name: str
    counts: tuple[int, ...]
    shares: tuple[float | None, ...]
    """Of all answers of the checkpoint; None where its outcomes are not known."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """One training stage."""

    name: str
    method: str
    start: str
    data: str
    done: int
    """Last step with metrics."""
    optimizer: str
    adapt: str
    detail: str
    """Settings of this method alone."""
    seconds: float | None
    """None where another trainer did not say it."""


def checkpoint_label(name: str, words: Words) -> str:
    """The label of a checkpoint such as `sft.step-000040`."""
    reference = parse_checkpoint(name)
    if reference is None or reference.stage is None:
        return words("checkpoint.base") if name == "base" else name
    if reference.step is None:
        return f"{reference.stage}.{reference.which}"
    if reference.step == 0:
        return words("checkpoint.start", stage=reference.stage)
    return words("checkpoint.step", stage=reference.stage, step=reference.step)


def marked_start(start: str, words: Words) -> str:
    """A stage's start, marked where its rule corrects for no looks."""
    reference = parse_checkpoint(start.rpartition("@")[2])
    loose = reference is not None and reference.rule not in (None, "gate")
    return words("promotion.uncorrected", start=start) if loose else start


def result_rows(facts: "RunFacts", measurement: "Measurement", words: Words) -> list[ResultRow]:
    """The measured checkpoints, then those that are still missing."""
    lines: dict[str, Line | None] = {}
    if measurement.table is not None:
        lines = {line.name: line for line in measurement.table.lines}
    lines |= dict.fromkeys(measurement.missing)
    return [
        ResultRow(
            name,
            checkpoint_label(name, words),
            is_chosen(facts, name),
            kept_as_best(facts, name),
            line,
        )
        for name, line in lines.items()
    ]


def is_chosen(facts: "RunFacts", name: str) -> bool:
    """Whether the selection on dev items promoted a checkpoint over its stage's start."""
    chosen = read_selections(facts.run.path).values()
    return any(each.promoted and each.checkpoint == name for each in chosen)


def kept_as_best(facts: "RunFacts", name: str) -> tuple[str, ...]:
    """The stages that could not be shown to have improved on a checkpoint they started from."""
    chosen = read_selections(facts.run.path).items()
    return tuple(s for s, each in chosen if not each.promoted and each.checkpoint == name)


def score_parts(facts: "RunFacts", table: Table) -> list[Part]:
    """The parts of the score in the order in which answers first name them."""
    columns = [_part_means(facts.answers(table.evaluation, line.name)) for line in table.lines]
    names = list(dict.fromkeys(name for column in columns for name in column))
    return [Part(name, tuple(column.get(name) for column in columns)) for name in names]


def _part_means(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean of every part over the answers that were scored and have it."""
    scored = [json.loads(answer["parts"]) for answer in answers if answer["score"] is not None]
    names = list(dict.fromkeys(name for parts in scored for name in parts))
    values = {name: [parts[name] for parts in scored if name in parts] for name in names}
    return {name: sum(found) / len(found) for name, found in values.items()}


def outcomes(table: Table) -> list[Outcome]:
    """Right answers, error types by how frequent they are, the rarest together, abstentions.

    Empty where no outcome is known, as of another tool's file.
    """
    columns = [Counter(line.outcomes) for line in table.lines]
    totals = sum(columns, Counter())
    if not totals:
        return []
    errors = [n for n, _ in totals.most_common() if n not in (RIGHT, ABSTAINED)]
    shown, rare = errors[:SHOWN_ERRORS], errors[SHOWN_ERRORS:]
    counts = {name: [column[name] for column in columns] for name in (RIGHT, *shown)}
    if rare:
        counts[OTHER] = [sum(column[name] for name in rare) for column in columns]
    if totals[ABSTAINED]:
        counts[ABSTAINED] = [column[ABSTAINED] for column in columns]
    answers = [column.total() for column in columns]
    return [
        Outcome(
            name,
            tuple(row),
            tuple(count / of if of else None for count, of in zip(row, answers, strict=True)),
        )
        for name, row in counts.items()
    ]


def stage_rows(facts: "RunFacts") -> list[StageRow]:
    """The training stages in file order."""
    rows = []
    for name, stage in facts.experiment.stage.items():
        lines = facts.metrics.get(name, [])
        rows.append(
            StageRow(
                name=name,
                method=stage.method,
                start=stage.start,
                data=stage.data,
                done=lines[-1]["step"] if lines else 0,
                optimizer=f"{stage.optimizer.name}, lr {stage.optimizer.lr:g}",
                adapt=stage.adapt.kind,
                detail=_detail(stage.model_dump()),
                seconds=None
                if None in (took := [line["seconds"] for line in lines])
                else sum(took),
            )
        )
    return rows


def _detail(stage: Mapping[str, Any]) -> str:
    """The settings that tell stages of one method apart."""
    names = ("algorithm", "prompts", "group", "batch", "epochs", "reward", "sampling", "kl")
    found = {name: stage[name] for name in names if stage.get(name) is not None}
    if not found.get("kl", {}).get("coef"):
        found.pop("kl", None)
    return settings_text(found)


def setting_text(value: Any) -> str:
    """A value as an experiment file writes it: `true`, and numbers in six digits."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as `name value`, nested ones with their path, a true one by its name alone; what is
    not set is left out."""
    parts = []
    for name, value in settings.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            inner = settings_text(value)
            parts.append(f"{name} ({inner})" if inner else "")
        elif value is True:
            parts.append(name)
        else:
            parts.append(f"{name} {setting_text(value)}")
    return ", ".join(part for part in parts if part)
