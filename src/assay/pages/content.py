"""The sections of a run's page as plain values, shared by HTML, Markdown and the terminal.

Numbers come from `result_tables` and `judge`; only words and units are added here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assay.compare.table import Line, Pairing, Table
from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison, as_scored
from assay.pages.charts import interval_bar
from assay.pages.drawn import score_bars, score_plot
from assay.pages.picked_content import picked_sentences
from assay.pages.result_tables import (
    OTHER,
    ResultRow,
    checkpoint_label,
    is_chosen,
    kept_as_best,
    outcomes,
    result_rows,
    score_parts,
    settings_text,
)
from assay.pages.words import Words, difference_text, number, percent, score_text, visible
from assay.runs.checkpoints import read_selection
from assay.runs.records import ABSTAINED, RIGHT

if TYPE_CHECKING:  # gathering facts loads what a comparison does not need
    from assay.pages.facts import Measurement, RunFacts

Section = dict[str, Any]
"""Values of one section, by the names that the templates use."""

WIDE_ENOUGH = 5.0
"""Percent of a bar that a count fits into."""
STYLES = {"better": "green", "worse": "red", "undecided": "yellow", "equivalent": "cyan"}
"""The colour of a verdict in a terminal."""
COLOURS = {RIGHT: "e0", OTHER: "e8", ABSTAINED: "e9"}


def headline(facts: "RunFacts", words: Words) -> Section | None:
    """The best checkpoint's score, compared with the control and the stage before.

    The best checkpoint is the one selected on dev items for the last stage. It is the last measured
    one if none was selected or the selected one was not measured.
    """
    if facts.main is None or facts.main.table is None:
        return None
    table = facts.main.table
    stages = list(facts.experiment.stage)
    best = read_selection(facts.run.path, stages[-1]) if stages else None
    chosen = [line for line in table.lines if best is not None and line.name == best.checkpoint]
    line = (chosen or table.lines)[-1]
    pairings = [p for p in (line.to_control, line.to_previous) if p is not None]
    return {
        "checkpoint": line.name,
        "score": score_text(line.score, line.interval),
        "interval": interval_text(line.interval, words),
        "what": words(
            "table.score_of",
            label=checkpoint_label(line.name, words),
            items=number(line.items),
            benchmark=table.evaluation.benchmark,
            passes=passes(line.repeats, words),
        ),
        "abstained": abstained_text(line, words),
        "badges": badges(is_chosen(facts, line.name), kept_as_best(facts, line.name), words),
        "verdict": pairings[0].comparison.verdict if pairings else "",
        "against": [{**sentence(p, words), **(pairing_view(p, words) or {})} for p in pairings],
    }


def main_section(facts: "RunFacts", words: Words) -> Section | None:
    """The main evaluation: its table and its comparisons in words."""
    if facts.main is None:
        return None
    measurement = facts.main
    rows = result_rows(facts, measurement, words)
    scale = shared_scale([row.line for row in rows if row.line])
    table = measurement.table
    pairings = [p for row in rows if row.line for p in (row.line.to_control, row.line.to_previous)]
    return {
        "about": about_evaluation(table, words) if table else "",
        "control": checkpoint_label(table.control.name if table else "base", words),
        "rows": [row_view(row, scale, words) for row in rows],
        "plot": score_plot(score_bars(measured_rows(rows)), scale),
        "sentences": [sentence(p, words) for p in pairings if p is not None],
        "picked": picked_sentences(table, _labels(table, words), words) if table else [],
    }


def _labels(table: Table, words: Words) -> dict[str, str]:
    return {line.name: checkpoint_label(line.name, words) for line in table.lines}


def other_rows(facts: "RunFacts", words: Words) -> list[Section]:
    """The other reporting evaluations, one row for each of their checkpoints."""
    measured = [(m, result_rows(facts, m, words)) for m in facts.reported[1:]]
    lines = [row.line for _, rows in measured for row in rows if row.line]
    scale = shared_scale(lines)
    return [
        {**row_view(row, scale, words), "evaluation": m.name, "settings": settings(m)}
        for m, rows in measured
        for row in rows
    ]


def others_plot(facts: "RunFacts", words: Words) -> str:
    """The scores of the other reporting evaluations, drawn in characters; empty without any."""
    found = [
        (f"{m.name} · {label}", line)
        for m in facts.reported[1:]
        for label, line in measured_rows(result_rows(facts, m, words))
    ]
    return score_plot(score_bars(found), shared_scale([line for _, line in found]))


def measured_rows(rows: Sequence[ResultRow]) -> list[tuple[str, Line]]:
    """The rows that were measured, by their labels."""
    return [(row.label, row.line) for row in rows if row.line is not None]


def settings(measurement: "Measurement") -> str:
    """Benchmark, options and sampling of an evaluation, in the words of its file; of one that could
    not be run, why."""
    record = measurement.table.evaluation if measurement.table else None
    if record is not None:
        parts: list[str] = [record.benchmark, settings_text(record.options)]
        return "; ".join(p for p in (*parts, settings_text(record.sampling)) if p)
    spec = measurement.spec
    name = (spec.benchmark or spec.data or "") if spec else ""
    return "; ".join(filter(None, [name, measurement.why]))


def about_evaluation(table: Table, words: Words) -> str:
    """How the main evaluation measured."""
    record = table.evaluation
    return words(
        "page.results_about",
        evaluation=record.name,
        items=number(len(record.items)),
        benchmark=record.benchmark,
        passes=passes(record.repeats, words),
        sampling=_clause("sampling", settings_text(record.sampling), words),
        checker=_clause("checker", record.checker, words),
        fewer=_clause("fewer", settings_text(record.fewer), words),
    )


def _clause(name: str, value: str, words: Words) -> str:
    """A part of the sentence about an evaluation; "" if there is none."""
    return words(f"page.results_{name}", **{name: value}) if value else ""


def row_view(row: ResultRow, scale: tuple[float, float], words: Words) -> Section:
    """One checkpoint as a table shows it; `line` is None where it was not run."""
    line = row.line
    if line is None:
        return {"label": row.label, "badges": badges(row.chosen, row.best_of, words), "line": None}
    return {
        "label": row.label,
        "badges": badges(row.chosen, row.best_of, words),
        "line": line,
        "score": score_text(line.score, line.interval),
        "interval": interval_text(line.interval, words),
        "graph": interval_bar(line.score, line.interval, scale),
        "size": size_text(f"{items_text(line, words)} × {line.repeats}", line.clusters, words),
        "abstained": abstained_text(line, words),
        "to_control": pairing_view(line.to_control, words),
        "to_previous": pairing_view(line.to_previous, words),
    }


def items_text(line: Line, words: Words) -> str:
    """The number of items, and the total if only a part was used."""
    if line.part_of is None:
        return number(line.items)
    return words("table.asked", items=number(line.items), all=number(line.part_of))


def size_text(size: str, clusters: int | None, words: Words) -> str:
    """The number of items, and of clusters if items share sources."""
    if clusters is None:
        return size
    return words("table.clustered", size=size, clusters=number(clusters))


def abstained_text(line: Line, words: Words) -> str:
    """The number of answers without a score, and the bounds that they leave; "" for none."""
    if not line.abstained:
        return ""
    low, high = map(percent, line.possible)
    return words("table.abstained", count=number(line.abstained), low=low, high=high)


def badges(chosen: bool, best_of: Sequence[str], words: Words) -> list[str]:
    """Whether the selection on dev items promoted or kept a checkpoint."""
    promoted = [words("table.chosen")] if chosen else []
    return [*promoted, *(words("table.best_of", stage=stage) for stage in best_of)]


def pairing_view(pairing: Pairing | None, words: Words) -> dict[str, str] | None:
    """A comparison as a table's cell shows it."""
    if pairing is None:
        return None
    found = pairing.comparison
    figures = {
        "difference": difference_text(found.difference, found.interval),
        "low": difference_text(found.interval.low, found.interval),
        "high": difference_text(found.interval.high, found.interval),
    }
    name = words(f"verdict_name.{found.verdict}")
    in_points = "difference" if found.interval.share else "short"
    return {
        "kind": found.verdict,
        "verdict": name,
        "difference": words(f"table.{in_points}", **figures),
        "short": words("table.short", **figures),
        "detectable": beside(found, words),
    }


def beside(found: Comparison, words: Words) -> str:
    """Notes on a verdict: a part of the items, the detectable difference."""
    shared = words("table.shared", items=found.items) if found.asked_of_one else ""
    return words.semicolon.join(filter(None, (shared, detectable(found, words))))


def detectable(found: Comparison, words: Words) -> str:
    """The detectable difference, next to an undecided verdict."""
    if found.verdict != "undecided":
        return ""
    if as_scored(found) != "undecided":
        return words("table.undone")
    smallest = found.minimum_detectable_difference
    if smallest is None:
        return words("table.nothing_detectable")
    if not found.interval.share:
        return words("table.detectable_plain", smallest=number(smallest))
    return words("table.detectable", smallest=f"{smallest * 100:.1f}")


def sentence(pairing: Pairing, words: Words) -> dict[str, str]:
    """A comparison in words."""
    other, control = (checkpoint_label(n, words) for n in (pairing.other, pairing.control))
    flips = words(
        "table.flips",
        gained=len(pairing.flips.gained),
        lost=len(pairing.flips.lost),
        unchanged=len(pairing.flips.unchanged),
        agreement=percent(pairing.agreement),
    )
    return {
        "what": words("table.against", other=other, control=control),
        "text": pairing.explanation(words.verdicts),
        "flips": flips,
    }


def parts_section(facts: "RunFacts", words: Words) -> list[Section]:
    """The parts of the score by checkpoint; a part that no answer has is N/A."""
    table = facts.main.table if facts.main else None
    if table is None:
        return []
    return [
        {"name": part.name, "shares": ["N/A" if s is None else percent(s) for s in part.shares]}
        for part in score_parts(facts, table)
    ]


def outcome_sections(facts: "RunFacts", words: Words) -> list[Section]:
    """The outcomes of each reporting evaluation that has any, the main one first."""
    tables = [m.table for m in facts.reported if m.table is not None]
    found = [
        {
            "name": table.evaluation.name,
            "labels": [checkpoint_label(line.name, words) for line in table.lines],
            "rows": outcome_rows(table, words),
        }
        for table in tables
    ]
    return [section for section in found if section["rows"]]


def outcome_rows(table: Table, words: Words) -> list[Section]:
    """Answers by outcome, with the width of each in its checkpoint's bar."""
    colours = iter(f"e{n}" for n in range(1, 9))
    views = []
    for row in outcomes(table):
        widths = [100 * (share or 0.0) for share in row.shares]
        views.append(
            {
                "name": visible(words.known("outcome", row.name)),
                "counts": row.counts,
                "cells": [
                    words("table.unknown")
                    if share is None
                    else words("table.count_share", count=number(count), share=percent(share))
                    for count, share in zip(row.counts, row.shares, strict=True)
                ],
                "widths": [f"{width:.3f}" for width in widths],
                "wide": [width >= WIDE_ENOUGH for width in widths],
                "colour": COLOURS.get(row.name) or next(colours),
            }
        )
    return views


def interval_text(interval: Interval, words: Words) -> str:
    """The limits of a score's interval."""
    low, high = (score_text(end, interval) for end in (interval.low, interval.high))
    return words("table.interval_text", low=low, high=high)


def passes(repeats: int, words: Words) -> str:
    """The number of repeats of each item."""
    return words("table.one_pass" if repeats == 1 else "table.many_passes", repeats=repeats)


def shared_scale(lines: Sequence[Line]) -> tuple[float, float]:
    """The scale of the scores: 0 to 1 if all lie within, else their range."""
    low = min((line.interval.low for line in lines), default=0.0)
    high = max((line.interval.high for line in lines), default=1.0)
    return min(low, 0.0), max(high, 1.0)
