"""Judges sides of which at least one was measured by another tool, or refuses to.

The refusals are those of `compare`: other items, another metric or checker, unfinished runs. Where
the settings of a side are not known, fairness cannot be checked, and the table says so.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.errors import nearest
from assay.judge.confounds import Confound, differences
from assay.lab.compare import Table, Unfair, _judge, _Measured, _table
from assay.lab.foreign import NoSuchResult, Side, bounds
from assay.lab.records import EvaluationRecord


@dataclass(frozen=True, slots=True)
class Judged:
    """The table of `compare`, and what could not be checked about its sides."""

    table: Table
    sides: Mapping[str, Side]
    """By the name of their line."""
    unknown: tuple[str, ...]
    """Sides whose settings could not be compared with the control's."""
    unchecked: tuple[str, ...]
    """Sides of which it is not known what gave the scores."""


def compare_sides(
    sides: Sequence[Side], control: str | None = None, allow: Sequence[str] = ()
) -> Judged:
    """All sides against the control (the first one unless named), one family, item by item.

    Raises Unfair for what is never compared, NoSuchResult for an unknown control, ScoreError where
    no answer has a score.
    """
    names = [side.name for side in sides]
    if len(sides) < 2:
        fix = "name another file or run; 'assay report FILE' shows one alone"
        raise Unfair(f"only one run to compare: {', '.join(names)}", fix=fix)
    if len(set(names)) < len(names):
        raise Unfair("a run cannot be compared with itself", fix="name two runs")
    ordered = _control_first(sides, control)
    for side in ordered:
        _check_whole(side)
    for other in ordered[1:]:
        _check_same_task(ordered[0], other)
    return _judged(ordered, allow)


def _control_first(sides: Sequence[Side], control: str | None) -> list[Side]:
    if control is None:
        return list(sides)
    found = [side for side in sides if control in (side.name, side.name.rpartition("@")[2])]
    if len(found) != 1:
        fix = nearest(control, [side.name for side in sides])
        problem = f"{len(found) or 'no'} runs are called {control!r}"
        raise NoSuchResult(problem, field="--control", fix=fix)
    return [*found, *(side for side in sides if side is not found[0])]


def _judged(sides: Sequence[Side], allow: Sequence[str]) -> Judged:
    first, scale = sides[0], bounds(sides)
    measured = {s.name: _Measured(s.name, s.item_scores(scale), s.outputs) for s in sides}
    found = {side.name: _differences(first, side, allow) for side in sides[1:]}
    unfair = {name: [c.path for c in all_ if c.kind == "confound"] for name, all_ in found.items()}
    pairings = _judge([(first.name, name) for name in found], measured, unfair)
    every = {(c.path, str(c.other)): c for all_ in found.values() for c in all_}
    table = _table(_record(first), first.name, measured, pairings, tuple(every.values()))
    return Judged(
        table,
        {side.name: side for side in sides},
        unknown=tuple(s.name for s in sides if not (s.configured and s.format == first.format)),
        unchecked=tuple(s.name for s in sides if not s.checker),
    )


def _differences(control: Side, other: Side, allow: Sequence[str]) -> list[Confound]:
    """What both carry is compared; tools that name their settings differently share nothing."""
    left, right = {"repeats": control.repeats}, {"repeats": other.repeats}
    if control.format == other.format:
        shared = control.settings.keys() & other.settings.keys()
        left |= {part: control.settings[part] for part in shared}
        right |= {part: other.settings[part] for part in shared}
    return differences(left, right, (*control.vary, *other.vary), allow)


def _check_whole(side: Side) -> None:
    """Every item has as many answers as every other."""
    if side.unfinished:
        fix = "only finished runs are compared"
        raise Unfair(f"{side.name} is unfinished: {side.unfinished}", fix=fix)
    counts = Counter(item for item, _ in side.scores)
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = [item for item, count in counts.items() if count != usual]
    if odd:
        problem = (
            f"{side.name} has {usual} answers to most items and {counts[odd[0]]} to {odd[0]!r}; "
            f"{len(odd)} of {len(counts)} items are uneven"
        )
        raise Unfair(problem, fix="finish the run, or give each question an id of its own")


def _check_same_task(control: Side, other: Side) -> None:
    if control.format == other.format and control.benchmark != other.benchmark:
        problem = f"{control.name} is on {control.benchmark}, {other.name} on {other.benchmark}"
        raise Unfair(problem, fix="compare one benchmark at a time")
    for what in ("metric", "checker"):
        ours, theirs = getattr(control, what), getattr(other, what)
        if ours and theirs and ours != theirs:
            problem = f"{control.name} has the {what} {ours!r}, {other.name} {theirs!r}"
            raise Unfair(problem, fix=f"score both with one {what}")
    _check_same_items(control, other)


def _check_same_items(control: Side, other: Side) -> None:
    ours, theirs = set(control.items), set(other.items)
    if ours != theirs:
        problem = (
            f"{other.name} was measured on other items than {control.name}: "
            f"{len(ours)} and {len(theirs)}, {len(ours & theirs)} of them shared"
        )
        raise Unfair(problem, fix="evaluate both on the same items")
    both = control.questions.keys() & other.questions.keys()
    if control.format != other.format:
        return
    changed = sorted(item for item in both if control.questions[item] != other.questions[item])
    if changed:
        problem = f"{len(changed)} items ask something else in {other.name}, {changed[0]!r} for one"
        raise Unfair(problem, fix="evaluate both on the same questions")


def _record(control: Side) -> EvaluationRecord:
    """What the table is about, as far as it is known."""
    return EvaluationRecord(
        name=control.metric or "score",
        benchmark=control.benchmark or control.format,
        role="report",
        items=tuple(control.items),
        items_hash="",
        repeats=control.repeats,
        sampling={},
        rendering="",
        checker=control.checker,
        options={},
        seed=0,
    )
