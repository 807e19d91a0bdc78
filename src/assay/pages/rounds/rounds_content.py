"""The section of a run's page about its rounds: learning curves, reward parts, lengths.

Adds words to the figures of `round_charts`; what was not recorded is said in a line.
"""

from collections.abc import Sequence

from assay.pages.answer_lengths import LengthsOfRecord, lengths_of_record
from assay.pages.content import interval_text
from assay.pages.drawn import curve_line
from assay.pages.facts import Curve, RunFacts
from assay.pages.page import (
    Block,
    Bullets,
    Column,
    Figure,
    Heading,
    Line,
    Mark,
    Only,
    Panels,
    Table,
    Text,
)
from assay.pages.result_tables import checkpoint_label
from assay.pages.rounds.round_charts import (
    Round,
    by_reward,
    learning_chart,
    length_bins_chart,
    lengths_chart,
    part_panel,
    rounds_of,
)
from assay.pages.words import Words, number, percent, visible

SEVERAL = 2
MOST_RECORDS = 4
"""Checkpoints whose answers are shown by length: the control and the last ones."""


def rounds_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """The figures of all sampling stages; nothing where there is nothing to draw."""
    rounds, records = rounds_of(facts), length_blocks(facts, words)
    labels = [_label(each, words) for each in rounds]
    completions = number(sum(each.completions for each in rounds))
    blocks: list[Block] = []
    if len(rounds) >= SEVERAL:
        lines = [
            _drawn(label, each.reward, each.steps)
            for each, label in zip(rounds, labels, strict=True)
        ]
        blocks += [
            Text(words("figure.about"), "soft"),
            Heading(words("figure.learning")),
            *drawn(Figure(learning_chart(rounds, labels, words)), lines),
            Text(_learning_about(rounds, completions, words), "soft"),
        ]
    if names := list(dict.fromkeys(name for each in rounds for name in each.parts)):
        about = Text(words("figure.parts_about", completions=completions), "soft")
        panels = [part_figure(name, rounds, words) for name in names]
        lines = [line for _, line in panels]
        blocks += [Heading(words("figure.parts")), about]
        blocks += drawn(Panels([figure for figure, _ in panels]), lines)
    if steps := [each for each in rounds if each.lengths]:
        lines = [_lengths_drawn(each, words) for each in steps]
        blocks += [
            Heading(words("figure.lengths")),
            *drawn(Figure(lengths_chart(rounds, labels, words)), lines),
            Only(("html",), [Text(_key(words))]),
            Text(_lengths_about(steps, words), "soft"),
        ]
    return [*blocks, *records]


def drawn(figure: Block, lines: Sequence[Line]) -> list[Block]:
    """A drawing, and the same in characters where there is none."""
    return [figure, Only(("markdown",), [Bullets(lines)])]


def curve_in_characters(label: str, first: str, drawn: str, last: str) -> Line:
    """A curve as a row of blocks between its first and last value."""
    return f"{label} {first} ", Mark(drawn, "code"), f" {last}"


def _label(each: Round, words: Words) -> str:
    """A round and the checkpoint that it started from."""
    start = visible(checkpoint_label(each.start, words))
    return words("figure.round", stage=visible(each.stage), start=start)


def _drawn(label: str, curve: Curve | None, steps: int) -> Line:
    """The reward of one round in characters."""
    name = f"{label} · {number(steps)}:"
    if curve is None:
        return f"{name} –"
    ends = number(curve.values[0]), number(curve.last)
    return curve_in_characters(name, ends[0], curve_line(curve.values), ends[1])


def _learning_about(rounds: Sequence[Round], completions: str, words: Words) -> str:
    """The numbers behind the learning curves, and whether rewards have one scale."""
    said = [words("figure.learning_about", completions=completions)]
    dev = {score.items for each in rounds for score in each.dev}
    if dev:
        said.append(words("figure.dev_about", items=number(max(dev))))
    if len(by_reward(rounds)) > 1:
        said.append(words("figure.other_rewards"))
    return " ".join(said)


def part_figure(name: str, rounds: Sequence[Round], words: Words) -> tuple[Figure, Line]:
    """A part of the rewards as a panel and in characters."""
    values = [v for each in rounds if name in each.parts for v in each.parts[name].values]
    known = [value for value in values if value is not None]
    first, last = number(known[0]), number(known[-1])
    label = visible(name)
    drawing = part_panel(name, rounds, f"{label}: {first} → {last}", words)
    line = curve_in_characters(label + words.colon, first, curve_line(values), last)
    return Figure(drawing, label, last), line


def _lengths_about(rounds: Sequence[Round], words: Words) -> str:
    """How many completions the lengths are of."""
    found = [length for each in rounds for length in each.lengths]
    return words(
        "figure.lengths_about",
        completions=number(sum(length.completions for length in found)),
        truncated=number(sum(length.truncated for length in found)),
    )


def _key(words: Words) -> Line:
    """The two lines of the chart by their colours."""
    return Mark(words("figure.right"), "better"), " ", Mark(words("figure.wrong"), "worse")


def _lengths_drawn(each: Round, words: Words) -> Line:
    """The lengths of a round in characters."""
    found: list[str | Mark] = [visible(each.stage)]
    for kind in ("right", "wrong"):
        means = [getattr(length, kind) for length in each.lengths]
        found += [words.comma, words(f"figure.{kind}"), words.colon]
        found += [Mark(curve_line(means), "code"), f" {number(means[-1])}"]
    return found


def length_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """The answers of the main evaluation by length, by checkpoint."""
    table = facts.main.table if facts.main else None
    if table is None:
        return []
    lines = table.lines
    shown = lines if len(lines) <= MOST_RECORDS else (lines[0], *lines[1 - MOST_RECORDS :])
    every = [
        lengths_of_record(each.name, facts.answers(table.evaluation, each.name)) for each in shown
    ]
    records = [found for found in every if found is not None]
    if not records:
        return []
    labels = [checkpoint_label(found.checkpoint, words) for found in records]
    both = list(zip(records, labels, strict=True))
    panels = [Figure(length_bins_chart(found, label, words), label) for found, label in both]
    heads = [words("table.checkpoint"), words("figure.range"), Column(words("figure.share"), True)]
    heads += [words("table.interval"), Column(words("figure.answers"), True)]
    rows = [(label, *row) for found, label in both for row in _bins(found, words)]
    return [
        Heading(words("figure.bins", evaluation=table.evaluation.name)),
        Text(words("figure.bins_about"), "soft"),
        Panels(panels, wide=True),
        Only(("markdown",), [Table(heads, rows)]),
    ]


def _bins(found: LengthsOfRecord, words: Words) -> list[Sequence[str]]:
    bins = [(f"{each.low}–{each.high}", each) for each in found.bins]
    if found.truncated is not None:
        bins.append((words("figure.cut"), found.truncated))
    return [
        (
            name,
            percent(each.share),
            interval_text(each.interval, words),
            number(each.answers),
        )
        for name, each in bins
    ]
