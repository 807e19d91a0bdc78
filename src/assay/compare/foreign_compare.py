"""Judges sides of which at least one was measured by another tool, or refuses to.

The refusals are those of `judged_table`: other items, another metric or checker, unfinished runs.
Where the settings of a side are not known, fairness cannot be checked, and the table says so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from assay.compare.by_task import task_lines
from assay.compare.fairness import Unfair, check_fair, find_differences
from assay.compare.foreign_results import NoSuchResult, Side, bounds, named_apart
from assay.compare.judged_table import judge_pairs, make_table
from assay.compare.measured_arm import Measured, identical
from assay.compare.table import Table
from assay.data.raw_record import DataError
from assay.errors import InputError, nearest
from assay.judge.confounds import Confound, differences, leaf_paths, part_of
from assay.judge.findings import Finding
from assay.judge.identity import Twins, same_answers
from assay.judge.scores import ItemScores, on_one_scale
from assay.runs.manifest_file import DamagedManifest
from assay.runs.records import DamagedRecord, EvaluationRecord

UNKNOWN = "?"
SETTINGS_UNKNOWN = "settings unknown: fairness could not be checked"
LEFT_OUT = "left out, because the file has no scores of it"
CHECKER_UNKNOWN = "checker unknown: scores may come from different checkers"


def compare_named(
    names: Sequence[str],
    read: Callable[[str], list[Side]],
    control: str | None = None,
    allow: Sequence[str] = (),
) -> Table:
    """`compare_sides` of everything that `read` finds under the names.

    What is damaged is named in `left_out` and the others are still compared, unless it holds the
    control, or leaves fewer than two. Raises what `read` and `compare_sides` raise.
    """
    sides: list[Side] = []
    files: list[str] = []
    damaged: list[InputError] = []
    for name in names:
        try:
            found = read(name)
        except (DataError, DamagedRecord, DamagedManifest) as error:
            if name == names[0] and control is None:
                raise
            damaged.append(error)
            continue
        sides += found
        files += [name] * len(found)
    if damaged and len(sides) < 2:
        raise damaged[0]
    table = compare_sides(named_apart(sides, files), control, allow)
    return replace(table, left_out=tuple(Finding("error", str(e), "", "") for e in damaged))


def compare_sides(
    sides: Sequence[Side], control: str | None = None, allow: Sequence[str] = ()
) -> Table:
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


def _judged(sides: Sequence[Side], allow: Sequence[str]) -> Table:
    first, scale = sides[0], bounds(sides)
    own = [side.entrant for side in sides if side.entrant is not None]
    findings = check_fair(own) if own else []
    # What one side knows of the items' clusters holds for all.
    scored = on_one_scale(*(side.item_scores(scale) for side in sides))
    measured = {s.name: _measured(s, scores) for s, scores in zip(sides, scored, strict=True)}
    found = {side.name: _differences(first, side, allow) for side in sides[1:]}
    unfair = {name: [c.path for c in all_ if c.kind == "confound"] for name, all_ in found.items()}
    pairings = judge_pairs([(first.name, name) for name in found], measured, unfair)
    every = {(c.path, str(c.other)): c for all_ in found.values() for c in all_}
    findings += [*_unknown(sides), *_left_out(sides), *_twins(measured.values())]
    differing = tuple(every.values())
    table = make_table(_record(first), first.name, measured, pairings, differing, findings)
    tasks = task_lines(first.parts, {name: each.scores for name, each in measured.items()})
    return replace(table, compared=_compared(sides), tasks=tasks)


def _measured(side: Side, scores: ItemScores) -> Measured:
    if side.entrant is not None:
        return replace(side.entrant.measured, scores=scores)
    return Measured(side.name, scores, side.outputs, file=side.file)


def _differences(control: Side, other: Side, allow: Sequence[str]) -> list[Confound]:
    if control.entrant is not None and other.entrant is not None:
        return find_differences(control.entrant, other.entrant, None, allow)
    left, right = _carried(control, other)
    return differences(left, right, (*control.vary, *other.vary), allow, ["evaluation.repeats"])


def _carried(control: Side, other: Side) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both carry, as manifests; tools that name their settings differently share nothing."""
    left: dict[str, Any] = {"evaluation": {"repeats": control.repeats}}
    right: dict[str, Any] = {"evaluation": {"repeats": other.repeats}}
    if control.format == other.format:
        for part in control.settings.keys() & other.settings.keys():
            left[part] = {**left.get(part, {}), **control.settings[part]}
            right[part] = {**right.get(part, {}), **other.settings[part]}
    return left, right


def _compared(sides: Sequence[Side]) -> frozenset[str] | None:
    """The parts of which something is known of every side; None among runs of the lab."""
    if all(side.entrant is not None for side in sides):
        return None
    known = [map(leaf_paths, _carried(sides[0], other)) for other in sides[1:]]
    paths = set.intersection(*(one & two for one, two in known))
    checked = {"checker"} if all(side.checker for side in sides) else set()
    return frozenset({part_of(path) for path in paths} | checked)


def _unknown(sides: Sequence[Side]) -> list[Finding]:
    """What could not be checked about the sides, which every table of them carries."""
    kinds = {
        SETTINGS_UNKNOWN: [s for s in sides if not (s.configured and s.format == sides[0].format)],
        CHECKER_UNKNOWN: [side for side in sides if not side.checker],
    }
    fixes = {
        SETTINGS_UNKNOWN: "make sure that only what is under test differs",
        CHECKER_UNKNOWN: "make sure that one checker gave all scores",
    }
    return [
        Finding("warning", what, ", ".join(side.name for side in found), fixes[what])
        for what, found in kinds.items()
        if found
    ]


def _left_out(sides: Sequence[Side]) -> list[Finding]:
    """What a file was made to hold as well and does not."""
    missing = [f"{s.name}: {', '.join(s.left_out)}" for s in sides if s.left_out]
    return [Finding("note", LEFT_OUT, "; ".join(missing), "")] if missing else []


def _twins(measured: Iterable[Measured]) -> list[Finding]:
    """Runs that gave the same answers everywhere; their weights and decoding are not known."""
    return [
        same_answers(
            Twins(
                control=one.name,
                other=other.name,
                items=len(one.scores.item_ids),
                answers=len(one.outputs),
                distinct=len(set(one.outputs.values())),
                same_weights=None,
                changed_share=None,
                greedy=True,
            )
        )
        for one, other in identical(measured)
    ]


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
    if control.format != other.format:
        return
    both = control.questions.keys() & other.questions.keys()
    changed = sorted(item for item in both if control.questions[item] != other.questions[item])
    if changed:
        problem = f"{len(changed)} items ask something else in {other.name}, {changed[0]!r} for one"
        raise Unfair(problem, fix="evaluate both on the same questions")


def _record(control: Side) -> EvaluationRecord:
    """What the table is about, as far as it is known."""
    if control.entrant is not None:
        return control.entrant.record
    return EvaluationRecord(
        name=control.metric or "score",
        benchmark=control.benchmark or control.format,
        role="report",
        items=tuple(control.items),
        items_hash="",
        repeats=control.repeats,
        sampling={},
        rendering="",
        checker=control.checker or UNKNOWN,
        options={},
        seed=0,
    )
