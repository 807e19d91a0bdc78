"""Improvements of a run in words: each with its evidence, value, cost and risk, in rank order.

Figures and ranks are those of `judge.improvements`; nothing is judged here.
"""

from collections.abc import Sequence
from typing import Any

from assay.judge.improvements import Cost, Fact, Improvement, Stake
from assay.pages.page import Block, Bullets, Heading, Mark, Text
from assay.pages.words import Words, visible

MINUTE, HOUR = 60, 3600
AIMS = {"protect": "error", "correct": "warning"}


def improvement_blocks(
    run: str, found: Sequence[Improvement], looked_at: Sequence[str], words: Words
) -> list[Block]:
    """The list in rank order."""
    if not found:
        looked = words.listing.join(looked_at) or "–"
        return [Text(words("improve.none", run=run, looked=looked), fit="whole")]
    blocks: list[Block] = [Heading(words("improve.title", run=run))]
    for rank, each in enumerate(found, 1):
        lines = _lines(each, words)
        blocks += [_heading(rank, each, words), Bullets(lines, [1] * len(lines))]
    return [*blocks, Text(words("improve.rule"), "soft")]


def _heading(rank: int, found: Improvement, words: Words) -> Heading:
    said = words(
        "improve.heading",
        rank=rank,
        aim=words(f"improve_aim.{found.aim}"),
        about=visible(found.about),
        change=change_text(found, words),
    )
    return Heading(Mark(said, AIMS.get(found.aim, "strong")))


def _lines(found: Improvement, words: Words) -> list[str]:
    return [
        *(_evidence(fact, words) for fact in found.evidence),
        words("improve.value", value=value_text(found.stake, words)),
        words("improve.cost", cost=cost_text(found.cost, words)),
        words("improve.risk", risk=words(f"improve_risk.{found.risk}")),
    ]


def change_text(found: Improvement, words: Words) -> str:
    """What to do."""
    said = [words(key, about=visible(found.about)) for key in found.change]
    return words.semicolon.join(said)


def _evidence(fact: Fact, words: Words) -> str:
    return words("improve.evidence", text=fact_text(fact, words), place=visible(fact.place))


def fact_text(fact: Fact, words: Words) -> str:
    """One piece of evidence."""
    figures = {name: visible(value) for name, value in fact.figures.items()}
    if "verdict" in figures:
        figures["verdict"] = words(f"verdict_name.{figures['verdict']}")
    return words(fact.template, **figures)


def value_text(stake: Stake, words: Words) -> str:
    """What it can be worth: the share, and whether that is an upper bound."""
    said = words(f"improve_unit.{stake.unit}", share=f"{100 * stake.share:.1f}")
    return words("improve.at_most", value=said) if stake.at_most else said


def cost_text(cost: Cost, words: Words) -> str:
    """The work, and what the same work took in the run."""
    work = words(f"improve_work.{cost.work}")
    if cost.work == "settings":
        return work
    if cost.seconds is None:
        return words("improve.nothing_known", work=work)
    return words("improve.takes", work=work, seconds=_duration(cost.seconds, words))


def _duration(seconds: float, words: Words) -> str:
    for unit, size in (("hours", HOUR), ("minutes", MINUTE)):
        if seconds >= size:
            return words(f"improve.{unit}", count=f"{seconds / size:.1f}")
    return words("improve.seconds", count=f"{seconds:.2g}")


def improvement_values(found: Improvement, words: Words) -> dict[str, Any]:
    """One improvement for programs: figures as they are, and the same in words."""
    return {
        "rule": found.rule,
        "about": found.about,
        "aim": found.aim,
        "change": change_text(found, words),
        "evidence": [
            {"text": fact_text(fact, words), "figures": fact.figures, "place": fact.place}
            for fact in found.evidence
        ],
        "value": found.stake,
        "cost": found.cost,
        "risk": found.risk,
    }
