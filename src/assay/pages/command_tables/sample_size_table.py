"""The answer of `assay plan` as blocks and plain values: designs, costs, assumptions.

Prints nothing and computes nothing.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from assay.compare.compare_names import Pilot, Wish
from assay.judge.sample_size import MOST_ITEMS, Plan, Planned
from assay.pages.page import Block, Heading, Mark, Table, Text
from assay.pages.words import Words, words


def plan_blocks(pilot: Pilot, wish: Wish, plan: Plan, lang: str = "en") -> list[Block]:
    """The table of designs, then the cheapest and the unknown variances."""
    w = words(lang)
    heads = ("items", "repeats", "seeds", "smallest", "answers")
    power = 100 * plan.power
    rows = [
        [Mark(cell, "strong" if each is plan.cheapest else "") for cell in _cells(each, w)]
        for each in plan.designs
    ]
    view = Table([w(f"plan.{head}", power=power) for head in heads], rows)
    level = plan.designs[0].design.alpha
    title = w(
        "plan.title",
        difference=100 * plan.difference,
        power=power,
        arms=wish.arms,
        level=100 * level,
    )
    return [Heading(title), view, Text(_cheapest(plan, w)), *map(Text, _notes(pilot, wish, w))]


def _cells(planned: Planned, w: Words) -> list[str]:
    d = planned.design
    if not d.items:
        return [w("plan.too_many", most=MOST_ITEMS), str(d.repeats), str(d.seeds), "–", "–"]
    smallest = planned.smallest
    seen = w("plan.nothing") if smallest is None else f"{100 * smallest:.1f}"
    return [f"{d.items:,}", str(d.repeats), str(d.seeds), seen, f"{d.answers:,}"]


def _cheapest(plan: Plan, w: Words) -> str:
    if plan.cheapest is None:
        return w("plan.none", difference=100 * plan.difference)
    d = plan.cheapest.design
    counts = {"items": d.items, "repeats": d.repeats, "seeds": d.seeds, "answers": d.answers}
    return w("plan.cheapest", **counts)


def _notes(pilot: Pilot, wish: Wish, w: Words) -> Iterator[str]:
    """The source of the variances, and those that are unknown."""
    v = pilot.variances
    if pilot.items:
        counts = {"items": pilot.items, "repeats": pilot.repeats, "seeds": pilot.seeds}
        yield w("plan.pilot", evaluation=pilot.evaluation, **counts)
    yield w("plan.by_items", value=v.items)
    for name in ("sampling", "luck", "seeds"):
        value = getattr(v, name)
        if value is not None:
            yield w(f"plan.by_{name}", value=value)
    if v.sampling is None and wish.repeats > 1:
        yield w("plan.unknown_sampling")
    if v.seeds is None:
        yield w("plan.unknown_seeds")


def plan_result(pilot: Pilot, wish: Wish, plan: Plan) -> dict[str, Any]:
    """The same for programs; scores and differences from 0 to 1, null where nothing is known."""
    return {
        "difference": plan.difference,
        "power": plan.power,
        "level": plan.designs[0].design.alpha,
        "evaluation": pilot.evaluation or None,
        "variances": asdict(pilot.variances),
        "designs": [_row(each) for each in plan.designs],
        "cheapest": _row(plan.cheapest) if plan.cheapest else None,
    }


def _row(planned: Planned) -> dict[str, Any]:
    d = planned.design
    found = {"repeats": d.repeats, "seeds": d.seeds, "arms": d.arms, "enough": planned.enough}
    counts = {"items": d.items or None, "answers": d.answers or None}
    return {**counts, **found, "smallest_difference": planned.smallest}
