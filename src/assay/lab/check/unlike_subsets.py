"""Rows taken from the start of a source against the others: lengths, turns and functions called."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.data.hashing import canonical_json
from assay.data.row import Row
from assay.data.splits import conversation_of
from assay.data.tools import function_names
from assay.experiment.data_table import Take
from assay.judge.findings import Finding
from assay.judge.holm import holm
from assay.judge.subset import Unlike, names_unlike, values_unlike
from assay.lab.check.subject import Number, Seen

CHANCE = 0.01
"""A subset that is farther from the rest than all but this share of random ones is unlike it."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One way in which a subset may differ from the rest."""

    name: str
    words: str
    found: Unlike


def unlike(place: str, rows: Sequence[Row], wanted: Take) -> Seen:
    """How the first rows differ from the others, conversation by conversation.

    A conversation that was made into several rows is judged once, by the last of them, which holds
    the most of it.
    """
    size = len({conversation_of(row) for row in rows[: wanted.rows]})
    talks = list({conversation_of(row): row for row in rows}.values())
    if size == len(talks):
        return
    gaps = list(gaps_of(talks, size))
    adjusted = holm([gap.found.p_value for gap in gaps])
    for gap in gaps:
        yield Number(place, f"first_rows_distance: {gap.name}", gap.found.distance)
    strange = min(adjusted) < CHANCE
    said = ", and they are not like the others" if strange else ""
    yield Finding(
        "warning" if strange else "note",
        f"{place}: the first {wanted.rows} of {len(rows)} rows are taken{said}",
        "; ".join(
            f"{gap.words} (distance {gap.found.distance:.2f}, {likely(p_value)})"
            for gap, p_value in zip(gaps, adjusted, strict=True)
        ),
        'take them at random: how = "random"' if strange else "nothing, if their order is random",
    )


def gaps_of(talks: Sequence[Row], size: int) -> Iterator[Gap]:
    """Lengths in characters, answers in a conversation, and functions, each against the rest."""
    for name, unit, values in (
        ("length", "characters", [characters(row) for row in talks]),
        ("turns", "assistant messages", [turns(row) for row in talks]),
    ):
        first, rest = values[:size], values[size:]
        means = [sum(part) / len(part) for part in (first, rest)]
        words = f"{means[0]:,.1f} {unit} on average, the others {means[1]:,.1f}"
        yield Gap(name, words, values_unlike(first, rest))
    calls = [Counter(c.name for m in row.messages for c in m.tool_calls) for row in talks]
    what = "called"
    if not any(calls):
        calls, what = [Counter(function_names(row.tools)) for row in talks], "described"
    if any(calls):
        have, others = (len(set().union(*part)) for part in (calls[:size], calls[size:]))
        words = f"{have} functions {what}, by the others {others}"
        yield Gap("functions", words, names_unlike(calls, size))


def characters(row: Row) -> int:
    """Characters of a row with its tools and calls: tokens are not needed to see a shift."""
    said = sum(len(message.content) + len(message.reasoning) for message in row.messages)
    calls = [dict(call.arguments) for message in row.messages for call in message.tool_calls]
    return said + len(canonical_json([calls, list(row.tools)]))


def turns(row: Row) -> int:
    """Assistant messages."""
    return sum(message.role == "assistant" for message in row.messages)


def likely(p_value: float) -> str:
    """How many random subsets are as far, in words."""
    if p_value < 0.001:
        return "fewer than 1 in 1,000 random subsets are as far"
    return f"{p_value:.1%} of random subsets are as far"
