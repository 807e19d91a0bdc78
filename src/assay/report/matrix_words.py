"""What a matrix says in sentences: counts, dependence, strengths, the recommendation.

Every number comes from the matrix; here it only gets its words.
"""

from typing import Any

from assay.judge.families import Tally
from assay.judge.verdict import explain
from assay.lab.sweep.matrix.model import ArmView, Cell, Matrix, Overlap
from assay.report.matrix_view import (
    average_change_text,
    comparison_view,
    explained,
    leaf_names,
    limits,
    place_text,
    score_text,
    value_text,
)
from assay.report.words import Words, number, percent, visible

Section = dict[str, Any]


def tally_lines(found: Tally, matrix: Matrix, words: Words) -> list[str]:
    """Counts out of the cells that were run, by sign and by verdict, and the extremes."""
    lines = [words("matrix.run", run=found.run, missing=found.missing)]
    if not matrix.baseline:
        return lines
    lines.append(
        words(
            "matrix.by_sign",
            improved=found.improved,
            declined=found.declined,
            unchanged=found.unchanged,
            compared=found.compared,
            run=found.run,
        )
    )
    lines.append(
        words(
            "matrix.by_verdict",
            better=found.better,
            worse=found.worse,
            equivalent=found.equivalent,
            undecided=found.undecided,
            refused=found.not_comparable,
        )
    )
    named = {repr(place): cell for place, cell in matrix.cells.items()}
    for key, name in (("gain", found.largest_gain), ("loss", found.largest_loss)):
        cell = named.get(name or "")
        lines.append(
            words(f"matrix.largest_{key}", what=extreme(cell, matrix, words))
            if cell
            else words(f"matrix.no_{key}")
        )
    if 0 < found.groups < found.compared:
        lines.append(words("matrix.groups", compared=found.compared, groups=found.groups))
    return lines


def extreme(cell: Cell, matrix: Matrix, words: Words) -> str:
    """A cell with its difference and verdict, in a line."""
    comma = words("punctuation.comma")
    view = comparison_view(cell.comparison, matrix, words)
    change = comma.join((view["short"], view["verdict"])) if view else ""
    return f"{place_text(cell.place, matrix, words)}{words('punctuation.colon')}{change}"


def overlap_lines(matrix: Matrix, words: Words) -> list[tuple[str, bool]]:
    """The items and rows that values of each axis share; True marks what is not independent."""
    names = leaf_names(matrix)
    same = [o for o in matrix.overlaps if o.of == "items" and o.kind == "same"]
    lines = []
    if same:
        keys = words("punctuation.listing").join(names[o.key] for o in same)
        counts = sorted({count or 0 for o in same for _, count in o.sizes})
        count = " – ".join(number(c) for c in counts)
        lines.append((words("matrix.items_same", keys=keys, count=count), True))
    others = [o for o in matrix.overlaps if o not in same]
    return [*lines, *((overlap_line(o, names[o.key], words), o.kind != "apart") for o in others)]


def overlap_line(found: Overlap, key: str, words: Words) -> str:
    """One axis, named `key`, in words."""
    values = sorted(found.sizes, key=lambda pair: pair[1] or 0)
    sizes = " ⊂ ".join(
        words(f"matrix.{found.of}_size", value=value_text(v), count=number(n)) for v, n in values
    )
    if found.kind != "nested":
        sizes = sizes.replace(" ⊂ ", words("punctuation.listing"))
    return words(f"matrix.{found.of}_{found.kind}", key=key, sizes=sizes)


def nested_values(matrix: Matrix) -> dict[str, bool]:
    """Axes whose values lie within each other."""
    return {o.key: True for o in matrix.overlaps if o.kind in ("nested", "overlapping")}


def arm_views(matrix: Matrix, words: Words) -> list[Section]:
    """Strengths and weaknesses, arm by arm."""
    if not matrix.baseline:
        return []
    return [arm_view(arm, matrix, words) for arm in matrix.arms]


def arm_view(arm: ArmView, matrix: Matrix, words: Words) -> Section:
    """One arm: where it is shown to be better or worse, and the counts behind it."""
    t = arm.tally
    figures = {"better": t.better, "worse": t.worse, "compared": t.compared, "run": t.run}
    signs = {"improved": t.improved, "declined": t.declined}
    return {
        "title": f"{leaf_names(matrix)[arm.key]} = {value_text(arm.value)}",
        "baseline": t.run > 0 and arm.baselines == t.run,
        "counts": words("matrix.arm_counts", **figures, **signs),
        "change": average_change_text(arm.change, matrix, words),
        "strengths": [extreme(cell, matrix, words) for cell in arm.strengths],
        "weaknesses": [extreme(cell, matrix, words) for cell in arm.weaknesses],
    }


def recommendation_view(matrix: Matrix, words: Words) -> Section:
    """What the rule recommends, with its evidence, or why nothing."""
    found = matrix.recommendation
    cell, choice = found.cell, found.choice
    view: Section = {
        "chosen": found.reason == "chosen",
        "rule": words("matrix.rule"),
        "why": words(
            f"matrix.reason_{found.reason}",
            select=visible(found.select),
            problem=visible(found.problem),
        ),
        "setting": place_text(cell.place, matrix, words) if cell else "",
        "model": cell.name if cell else "",
        "evidence": [],
    }
    if cell is None or choice is None or found.dev is None:
        return view
    lines = [
        words(
            "matrix.evidence_dev",
            score=percent(found.dev.mean),
            items=number(len(found.dev.item_ids)),
            select=visible(found.select),
        )
    ]
    if choice.comparison is not None:
        said = explain(choice.comparison, words.verdicts)
        lines.append(words("matrix.evidence_test", said=said, looks=choice.looks))
    lines.append(
        words("matrix.optimism", looks=choice.looks, points=f"{choice.optimism * 100:.1f}")
    )
    if cell.score is not None and cell.interval is not None:
        score, interval = score_text(cell.score, matrix), limits(cell.interval, matrix, words)
        lines.append(words("matrix.evidence_report", score=score, interval=interval))
    if cell.comparison is not None:
        said = explained(cell.comparison, matrix, words)
        lines.append(words("matrix.evidence_report_test", said=said))
    if found.rivals:
        names = words("punctuation.semicolon").join(
            place_text(rival.place, matrix, words) for rival in found.rivals
        )
        lines.append(words("matrix.rivals", count=len(found.rivals), names=names))
    return {**view, "evidence": lines}


def note_lines(matrix: Matrix, words: Words) -> list[str]:
    """What was left out and what a reader must know, a line for each kind."""
    subjects: dict[str, list[str]] = {}
    for note in matrix.notes:
        subjects.setdefault(note.key, []).append(visible(note.subject))
    return [
        words(f"matrix.note_{key}", names=words("punctuation.listing").join(n))
        for key, n in subjects.items()
    ]
