"""The patterns of a run's programs in words and figures, for both pages and the terminal.

Figures come from `lab.patterns`; nothing is computed or judged here. Programs are shown as text,
and cut where they are long.
"""

from collections.abc import Iterator
from typing import Any

from assay.judge.cluster_robust import Dependence
from assay.judge.findings import MOST_NEEDED
from assay.judge.group_effects import Contrast, Effect
from assay.lab.patterns.find_patterns import Patterns
from assay.lab.patterns.operator_choice import (
    PASS_RATE,
    THIRDS,
    BestChoice,
    Cell,
    ChoiceRow,
    ChoiceTable,
)
from assay.lab.patterns.reward_patterns import Kind, Pattern, Side, shown_first
from assay.pages.content import interval_text
from assay.pages.words import Words, flat, number, percent

Section = dict[str, Any]
KINDS: tuple[Kind, ...] = (
    *("valid", "operator", "combination", "calls", "structure", "length", "tree"),
)
IN_WORDS = ("valid", "structure")
"""Kinds whose values are words; those of the others are names and numbers."""
MOST_CHARACTERS = 4000
"""Of a program on a page."""


def patterns_section(found: Patterns, words: Words) -> Section:
    """Everything that the templates write."""
    choice, rewards = found.choice, found.rewards
    return {
        "title": words("patterns.title", run=found.run),
        "about": about(found, words),
        "shown": shown_lines(found, words),
        "sides": [side_view(rewards.high, "high", words), side_view(rewards.low, "low", words)],
        "figures": side_figures(rewards.high, rewards.low, words),
        "kinds": list(kind_views(rewards.patterns, words)),
        "more_about": words("patterns.more_about", scale=scale_text(found.bounds)),
        "left_out": left_out_line(found, words),
        "by_type": choice_view(choice.by_type, words),
        "difficulty_about": difficulty_text(found, words),
        "by_difficulty": choice_view(choice.by_difficulty, words),
        "adapts": [
            dependence_text("type", choice.on_type, words),
            dependence_text("difficulty", choice.on_difficulty, words),
        ],
        "best": [best_view(each, words) for each in choice.best],
    }


def about(found: Patterns, words: Words) -> list[str]:
    """Where the programs come from, and how many there are."""
    counts = {
        "completions": number(found.completions),
        "prompts": number(found.prompts),
        "valid": number(found.valid),
        "abstained": number(found.abstained),
    }
    groups = {"groups": found.rewards.groups, "signal": number(found.rewards.with_signal)}
    return [
        words("patterns.counts", source=source_text(found, words), **counts),
        words("patterns.groups", **groups),
    ]


def source_text(found: Patterns, words: Words) -> str:
    """The stage with its steps, or the evaluation with its checkpoint."""
    source = found.source
    if source.stage is None:
        named = {"evaluation": source.evaluation, "checkpoint": source.checkpoint}
        return words("patterns.of_evaluation", **named)
    steps = {"first": source.first, "last": source.last}
    return words("patterns.of_stage", stage=source.stage, **steps)


def scale_text(bounds: tuple[float, float]) -> str:
    """The ends of the rewards' scale."""
    return f"{number(bounds[0])} – {number(bounds[1])}"


def shown_lines(found: Patterns, words: Words) -> list[str]:
    """What has a verdict; that nothing has, where nothing does."""
    lines = [
        *(shown_line(pattern, words) for pattern in shown_first(found.rewards.patterns)),
        *shown_cells(found.choice.by_type, words),
        *(another_line(each, words) for each in found.choice.best if each.verdict == "another"),
    ]
    return lines or [words("patterns.nothing_shown")]


def shown_line(pattern: Pattern, words: Words) -> str:
    """One verdict on a pattern in a sentence."""
    kind, label = words(f"patterns.kind_{pattern.kind}"), pattern_label(pattern, words)
    name = f"{kind}{words.colon}{label}"
    return effect_line(name if pattern.kind not in IN_WORDS else label, pattern.effect, words)


def shown_cells(table: ChoiceTable, words: Words) -> Iterator[str]:
    """The verdicts on choices by type; a combination that is all that its operator was used in is
    told once."""
    told: set[tuple[str, str, int]] = set()
    for row in table.rows:
        for column, cell in row.cells.items():
            what = (column, row.value, cell.used)
            if cell.effect and cell.effect.verdict != "undecided" and what not in told:
                told.add(what)
                kind = column_text(column, words)
                name = f"{kind}{words.colon}{choice_text(row, words)}"
                yield effect_line(name, cell.effect, words)


def choice_text(row: ChoiceRow, words: Words) -> str:
    """The name of a choice, for a combination with a word that says so."""
    return row.value if row.kind == "operator" else f"{row.value} ({words('patterns.combination')})"


def effect_line(name: str, effect: Effect, words: Words) -> str:
    """A difference that has a verdict, in a sentence."""
    view = effect_view(effect, words)
    given = {key: view[key] for key in ("difference", "interval", "p")}
    return words("patterns.is_better", pattern=name, **given)


def another_line(best: BestChoice, words: Words) -> str:
    """That another combination pays more than the one chosen most."""
    assert best.effect is not None
    view = effect_view(best.effect, words)
    return words(
        "patterns.pays_more",
        type=flat(best.problem_type) or "–",
        chosen=best.chosen,
        share=percent(best.share),
        other=best.other,
        difference=view["difference"],
        interval=view["interval"],
        p=view["p"],
    )


def pattern_label(pattern: Pattern, words: Words) -> str:
    """The value of a pattern."""
    if pattern.kind in IN_WORDS:
        return words(f"patterns.{pattern.kind}_{pattern.value}")
    return pattern.value


def side_figures(high: Side, low: Side, words: Words) -> list[tuple[str, str, str]]:
    """The figures of both sides, line by line."""
    values = {
        "completions": (number(high.completions), number(low.completions)),
        "valid": (valid_share(high), valid_share(low)),
        "reward": (number(high.reward), number(low.reward)),
        "calls": (number(high.calls), number(low.calls)),
        "lines": (number(high.lines), number(low.lines)),
        "cost": (number(high.cost), number(low.cost)),
    }
    return [(words(f"patterns.{name}"), *signed(pair)) for name, pair in values.items()]


def signed(pair: tuple[str, str]) -> tuple[str, str]:
    """Numbers with a true minus sign before those below 0."""
    first, second = (f"−{each[1:]}" if each[0] == "-" else each for each in pair)
    return first, second


def valid_share(side: Side) -> str:
    """The share of valid programs; "–" of nothing."""
    return percent(side.valid / side.completions if side.completions else None)


def side_view(side: Side, name: str, words: Words) -> Section:
    """One side with the program that stands for it."""
    cut = side.program[:MOST_CHARACTERS]
    whole = len(cut) == len(side.program)
    characters = number(len(side.program))
    return {
        "name": words(f"patterns.{name}"),
        "about": side_text(side, words),
        "program": cut if side.completions else None,
        "cut": "" if whole else words("patterns.cut", characters=characters),
    }


def side_text(side: Side, words: Words) -> str:
    """What the program of a side is."""
    if not side.completions:
        return words("patterns.nobody")
    other = "–" if side.other_share is None else percent(side.other_share)
    shares = {"share": percent(side.share), "other": other}
    if side.tree:
        return words("patterns.typical", **shares)
    return words("patterns.typical_invalid", error=flat(side.error) or "–", **shares)


def kind_views(patterns: tuple[Pattern, ...], words: Words) -> Iterator[Section]:
    """The patterns of each kind, with a heading."""
    for kind in KINDS:
        rows = [pattern_view(each, words) for each in patterns if each.kind == kind]
        if rows:
            yield {"name": words(f"patterns.kind_{kind}"), "rows": rows}


def pattern_view(pattern: Pattern, words: Words) -> Section:
    """A line of the table."""
    return {
        "label": pattern_label(pattern, words),
        "is_name": pattern.kind not in IN_WORDS,
        "high": number(pattern.high),
        "low": number(pattern.low),
        "programs": number(pattern.programs),
        "reward": number(pattern.reward),
        **effect_view(pattern.effect, words),
    }


def effect_view(effect: Effect, words: Words) -> Section:
    """A difference with its interval, p-value, verdict and what it would take."""
    found = effect.contrast
    return {
        "difference": signed_number(found.difference),
        "interval": limits_text(found, words),
        "p": "–" if effect.adjusted_p is None else number(effect.adjusted_p),
        "verdict": effect.verdict,
        "said": words(f"verdict_name.{effect.verdict}"),
        "more": needed_text(effect.needed, words) if effect.verdict == "undecided" else "–",
    }


def limits_text(found: Contrast, words: Words) -> str:
    """The interval of a difference; "" for none."""
    if found.interval is None:
        return ""
    low, high = signed_number(found.interval.low), signed_number(found.interval.high)
    return words("table.interval_text", low=low, high=high)


def signed_number(value: float | None) -> str:
    """A difference of rewards with its sign."""
    if value is None:
        return "–"
    text = f"{value:+.3f}".replace("-", "−")
    return text if text.strip("+−0.") else "0"


def needed_text(needed: int | None, words: Words) -> str:
    """How many more prompts it takes."""
    return words("patterns.needed", needed=MOST_NEEDED + 1 if needed is None else needed)


def left_out_line(found: Patterns, words: Words) -> str:
    """The kinds that have rarer values; "" for none."""
    counts = [
        words("patterns.left_out_kind", kind=words(f"patterns.kind_{kind}"), count=count)
        for kind, count in found.rewards.left_out.items()
    ]
    listed = words.listing.join(counts)
    return words("patterns.left_out", counts=listed) if counts else ""


def choice_view(table: ChoiceTable, words: Words) -> Section:
    """A table of choices; a kind of problems without a program is shown as absent."""
    return {
        "columns": [column_text(column, words) for column in table.columns],
        "rows": [row_view(row, table.columns, words) for row in table.rows],
    }


def column_text(column: str, words: Words) -> str:
    """The name of a type or a level."""
    return words(f"patterns.level_{column}") if column in THIRDS else flat(column) or "–"


def row_view(row: ChoiceRow, columns: tuple[str, ...], words: Words) -> Section:
    """The cells of one choice."""
    cells = [row.cells.get(column) for column in columns]
    return {
        "label": row.value,
        "kind": words(f"patterns.{row.kind}"),
        "cells": [None if cell is None else cell_view(cell, words) for cell in cells],
    }


def cell_view(cell: Cell, words: Words) -> Section:
    """One cell, line by line."""
    lines = [words("patterns.used", used=number(cell.used), programs=number(cell.programs))]
    if cell.reward is not None:
        lines.append(words("patterns.cell_reward", reward=number(cell.reward)))
    if cell.cost is not None:
        lines.append(words("patterns.cell_cost", cost=number(cell.cost)))
    interval = cell.share.interval
    return {
        "share": percent(cell.share.value),
        "interval": "" if interval is None else interval_text(interval, words),
        "lines": lines,
        "effect": cell_effect(cell.effect, words),
        "verdict": cell.effect.verdict if cell.effect else "",
    }


def cell_effect(effect: Effect | None, words: Words) -> str:
    """The difference within groups; "" where no group holds both."""
    if effect is None or effect.contrast.interval is None:
        return ""
    view = effect_view(effect, words)
    given = {key: view[key] for key in ("difference", "interval")}
    return words("patterns.cell_effect", verdict=view["said"], **given)


def difficulty_text(found: Patterns, words: Words) -> str:
    """What says how hard a problem is."""
    choice = found.choice
    measured = number(choice.measured)
    if choice.difficulty == PASS_RATE:
        return words("patterns.by_pass_rate", measured=measured)
    return words("patterns.by_field", field=choice.difficulty, measured=measured)


def dependence_text(on: str, found: Dependence, words: Words) -> str:
    """Whether choices depend on something."""
    given = {"p": number(found.p), "clusters": found.clusters}
    if found.depends:
        return words(f"patterns.depends_{on}", **given)
    if min(found.labels, found.choices) < 2:
        return words(f"patterns.one_{on}")
    return words(f"patterns.open_{on}", needed=found.needed, **given)


def best_view(best: BestChoice, words: Words) -> Section:
    """The line of one type."""
    effect = effect_view(best.effect, words) if best.effect else None
    verdict = words(f"patterns.best_{best.verdict}")
    if best.verdict == "undecided":
        needed = MOST_NEEDED + 1 if best.needed is None else best.needed
        verdict = words("patterns.best_more", needed=needed)
    share = percent(best.share)
    return {
        "type": flat(best.problem_type) or "–",
        "chosen": words("patterns.chosen_share", chosen=best.chosen, share=share),
        "other": best.other or "–",
        "difference": effect["difference"] if effect else "–",
        "interval": effect["interval"] if effect else "",
        "verdict": verdict,
        "kind": {"another": "worse", "chosen": "better"}.get(best.verdict, best.verdict),
        "rare": words("patterns.rare", count=best.rare) if best.rare else "",
    }
