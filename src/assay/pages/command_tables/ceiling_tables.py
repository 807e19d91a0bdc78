"""The table of `assay ceiling`. Measures and judges nothing."""

from typing import TYPE_CHECKING

from assay.judge.intervals import Estimate
from assay.pages.page import Block, Bullets, Column, Table

if TYPE_CHECKING:  # measuring loads torch
    from assay.lab.ceiling.measure import ArmLine, Ceiling

HEADS = ("demonstrations", "shots", "accuracy", "95% interval", "gap", "p", "share of the gap")


def ceiling_blocks(found: "Ceiling") -> list[Block]:
    """The table and what belongs to it."""
    title = (
        f"{found.benchmark}: {found.items} items, pools of {found.pool}, frozen model "
        f"{found.frozen}"
    )
    columns = [Column(head, right=place > 0) for place, head in enumerate(HEADS)]
    return [
        Table(columns, [_cells(line) for line in found.lines], title),
        Bullets(_sentences(found)),
    ]


def _cells(line: "ArmLine") -> list[str]:
    """The cells of an arm, as HEADS."""
    cells = [line.kind, str(line.shots), f"{line.score.value:.1%}", _interval(line.score)]
    if line.gap is None:
        return [*cells, "", "", ""]
    low, high = line.gap.interval.low * 100, line.gap.interval.high * 100
    gap = f"{line.gap.difference * 100:+.1f} ({low:+.1f} to {high:+.1f}) to {line.against}"
    share = "" if line.share is None or line.kind == "oracle" else f"{line.share:.0%}"
    return [*cells, gap, f"{line.gap.p_value:.2g}", share]


def _interval(estimate: Estimate) -> str:
    if estimate.interval is None:
        return ""
    return f"{estimate.interval.low:.1%} to {estimate.interval.high:.1%}"


def _sentences(found: "Ceiling") -> list[str]:
    """How it was searched, and what bounds it."""
    said, how = found.diagnostics, "all ordered selections"
    if found.breadth is not None:
        how = f"all singles; of more shots the {found.breadth} best so far, each extended by all "
        how += "others, so it is a lower bound"
    sentences = [
        f"oracle: the best by search ({how}); it has seen the right answers",
        f"random: {found.draws} draws for each item; similarity: the nearest by text, first",
        f"answer in pool: {_estimate(said.answer_in_pool)} of the items have a demonstration with "
        "a right answer",
        f"different predictions of an item over its single demonstrations: {said.predictions:.1f}",
    ]
    if said.with_answer is not None and said.without_answer is not None:
        sentences.append(
            f"accuracy after a single demonstration with a right answer "
            f"{_estimate(said.with_answer)}, without {_estimate(said.without_answer)}"
        )
    each = found.cpu_seconds / found.items
    sentences.append(
        f"cost: {found.asked} selections asked, {found.cpu_seconds:.0f} CPU-seconds, "
        f"{each:.2f} an item"
    )
    return sentences


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ({_interval(estimate)})"
