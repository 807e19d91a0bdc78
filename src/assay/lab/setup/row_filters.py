"""Rows left out for their length in tokens, and how the lengths of the others changed by it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.data.renderings.rendering import Renderer
from assay.data.row import Row
from assay.data.splits import Lengths, drop_long, drop_short, length_statistics
from assay.errors import InputError
from assay.experiment.tables import DataSpec
from assay.tasks.task import Task

TOO_LONG = "prompt longer than max_prompt_tokens"
LONGER = "conversation longer than max_tokens"
SHORTER = "conversation shorter than min_tokens"


@dataclass(frozen=True, slots=True)
class Shift:
    """Tokens of whole conversations before and after rows were left out for their length."""

    before: Lengths
    after: Lengths


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows that are left, and the ids of the others by reason."""

    rows: tuple[Row, ...]
    dropped: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shift: Shift | None = None
    """None where whole conversations were not measured."""


def by_length(rows: Sequence[Row], spec: DataSpec, task: Task, renderer: Renderer) -> Kept:
    """The rows within the limits of a data set's table. Raises RenderingError."""
    kept, dropped = tuple(rows), {}
    if spec.max_prompt_tokens is not None:
        lengths = [len(renderer.prompt(task.prompt(row), row.tools)) for row in kept]
        kept, out = drop_long(kept, lengths, spec.max_prompt_tokens)
        dropped[TOO_LONG] = tuple(d.row_id for d in out)
    shift = None
    if spec.min_tokens is not None or spec.max_tokens is not None:
        tokens = {row.id: conversation_tokens(renderer, task, row) for row in kept}
        before = kept
        limits: tuple[tuple[str, int | None, Callable], ...] = (
            (LONGER, spec.max_tokens, drop_long),
            (SHORTER, spec.min_tokens, drop_short),
        )
        for reason, limit, drop in limits:
            if limit is not None:
                kept, out = drop(kept, [tokens[row.id] for row in kept], limit)
                dropped[reason] = tuple(d.row_id for d in out)
        shift = Shift(*(length_statistics([tokens[r.id] for r in side]) for side in (before, kept)))
    return Kept(kept, {reason: ids for reason, ids in dropped.items() if ids}, shift)


def conversation_tokens(renderer: Renderer, task: Task, row: Row) -> int:
    """Tokens that training sees of a row with its answer, the end of that turn included; those of
    its prompt where it has no answer. Raises RenderingError.
    """
    prompt = task.prompt(row)
    try:
        target = task.target(row)
    except InputError:
        return len(renderer.prompt(prompt, row.tools))
    (turn,) = renderer.turns((*prompt, target), row.tools, "last")
    return len(turn.context) + len(turn.actions)
