"""The section of a run's page about its rounds: learning curves, reward parts, lengths.

Adds words to the figures of `round_charts`; what was not recorded is said in a line.
"""

from collections.abc import Sequence

from assay.pages.answer_lengths import LengthBin, LengthsOfRecord, lengths_of_record
from assay.pages.content import Section, interval_text
from assay.pages.drawn import curve_line
from assay.pages.facts import RunFacts
from assay.pages.result_tables import checkpoint_label
from assay.pages.rounds.round_charts import (
    by_reward,
    learning_chart,
    length_bins_chart,
    lengths_chart,
    part_panel,
)
from assay.pages.rounds.training_rounds import Round, rounds_of
from assay.pages.words import Words, number, percent, visible

SEVERAL = 2
MOST_RECORDS = 4
"""Checkpoints whose answers are shown by length: the control and the last ones."""


def rounds_section(facts: RunFacts, words: Words) -> Section | None:
    """The figures of all sampling stages; None where there is nothing to draw."""
    rounds, lengths = rounds_of(facts), length_views(facts, words)
    several, parts = len(rounds) >= SEVERAL, part_views(rounds, words)
    steps = [each for each in rounds if each.lengths]
    if not (several or parts or steps or lengths):
        return None
    labels = [_label(each, words) for each in rounds]
    completions = number(sum(each.completions for each in rounds))
    return {
        "learning": learning_chart(rounds, labels, words) if several else None,
        "learning_about": _learning_about(rounds, completions, words) if several else "",
        "rows": [_row(each, label) for each, label in zip(rounds, labels, strict=True)],
        "parts": parts,
        "parts_about": words("figure.parts_about", completions=completions),
        "lengths": lengths_chart(rounds, labels, words) if steps else None,
        "lengths_about": _lengths_about(steps, words) if steps else "",
        "lengths_drawn": [_lengths_drawn(each) for each in steps],
        "records": lengths,
    }


def _label(each: Round, words: Words) -> str:
    """A round and the checkpoint that it started from."""
    start = visible(checkpoint_label(each.start, words))
    return words("figure.round", stage=visible(each.stage), start=start)


def _row(each: Round, label: str) -> Section:
    """One round in characters."""
    curve = each.reward
    return {
        "label": label,
        "steps": number(each.steps),
        "drawn": curve_line(curve.values) if curve else "",
        "first": number(curve.values[0]) if curve else "–",
        "last": number(curve.last) if curve else "–",
    }


def _learning_about(rounds: Sequence[Round], completions: str, words: Words) -> str:
    """The numbers behind the learning curves, and whether rewards have one scale."""
    said = [words("figure.learning_about", completions=completions)]
    dev = {score.items for each in rounds for score in each.dev}
    if dev:
        said.append(words("figure.dev_about", items=number(max(dev))))
    if len(by_reward(rounds)) > 1:
        said.append(words("figure.other_rewards"))
    return " ".join(said)


def part_views(rounds: Sequence[Round], words: Words) -> list[Section]:
    """A panel for each part of the rewards."""
    names = list(dict.fromkeys(name for each in rounds for name in each.parts))
    views = []
    for name in names:
        values = [v for each in rounds if name in each.parts for v in each.parts[name].values]
        known = [value for value in values if value is not None]
        first, last = number(known[0]), number(known[-1])
        label = visible(name)
        views.append(
            {
                "label": label,
                "first": first,
                "last": last,
                "drawn": curve_line(values),
                "drawing": part_panel(name, rounds, f"{label}: {first} → {last}", words),
            }
        )
    return views


def _lengths_about(rounds: Sequence[Round], words: Words) -> str:
    """How many completions the lengths are of."""
    found = [length for each in rounds for length in each.lengths]
    return words(
        "figure.lengths_about",
        completions=number(sum(length.completions for length in found)),
        truncated=number(sum(length.truncated for length in found)),
    )


def _lengths_drawn(each: Round) -> Section:
    """The lengths of a round in characters."""
    return {
        "stage": visible(each.stage),
        "right": curve_line([length.right for length in each.lengths]),
        "wrong": curve_line([length.wrong for length in each.lengths]),
        "right_last": number(each.lengths[-1].right),
        "wrong_last": number(each.lengths[-1].wrong),
    }


def length_views(facts: RunFacts, words: Words) -> list[Section]:
    """The answers of the main evaluation by length, by checkpoint."""
    table = facts.main.table if facts.main else None
    if table is None:
        return []
    lines = table.lines
    shown = lines if len(lines) <= MOST_RECORDS else (lines[0], *lines[1 - MOST_RECORDS :])
    views = []
    for each in shown:
        found = lengths_of_record(each.name, facts.answers(table.evaluation, each.name))
        if found is not None:
            views.append(_record_view(found, words))
    return views


def _record_view(found: LengthsOfRecord, words: Words) -> Section:
    label = checkpoint_label(found.checkpoint, words)
    rows = [_bin_view(f"{each.low}–{each.high}", each, words) for each in found.bins]
    if found.truncated is not None:
        rows.append(_bin_view(words("figure.cut"), found.truncated, words))
    return {"label": label, "drawing": length_bins_chart(found, label, words), "rows": rows}


def _bin_view(name: str, each: LengthBin, words: Words) -> Section:
    return {
        "name": name,
        "share": percent(each.share),
        "interval": interval_text(each.interval, words),
        "answers": number(each.answers),
    }
