"""What samples and calls of a stage say between two steps, in words: tables and sentences.

Numbers come from `lab.monitor.fact_changes` and `lab.monitor.call_errors`. The page, the Markdown,
the terminal and `assay watch` share these values.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from assay.judge.intervals import Estimate
from assay.judge.share_changes import Change, Counts
from assay.lab.monitor.call_errors import CallError, CallReport, CostRow, Effect, Saving
from assay.lab.monitor.fact_changes import FactChanges, ShareRow, Steps
from assay.lab.monitor.progress import Progress
from assay.pages.words import Words, number, percent, points, visible

Section = dict[str, Any]
Write = Callable[[float], str]
ROUNDED = 1e-12
"""Differences below this come from rounding."""


def fact_section(found: Progress, words: Words) -> Section | None:
    """The tables and sentences of a stage's samples and calls; None where nothing is recorded."""
    facts, calls = found.facts, found.calls
    if facts is None and calls is None:
        return None
    tables = [*(fact_tables(facts, words) if facts else ()), *call_tables(calls, words)]
    said = [*(alike_said(facts, words) if facts else ()), *call_sentences(found, words)]
    return {
        "about": spans(facts, words) if facts else "",
        "tables": [table for table in tables if table["rows"]],
        "said": said,
        "methods": words("facts.methods"),
        "short": [*mark_lines(facts, words), *said],
    }


def spans(facts: FactChanges, words: Words) -> str:
    """The completions that are compared."""
    ends = []
    for steps, size, prompts in zip(
        (facts.before, facts.after), facts.completions, facts.prompts, strict=True
    ):
        key = "facts.span" if size else "facts.no_span"
        low, high = steps
        ends.append(words(key, first=low, last=high, completions=size, prompts=prompts))
    return words("facts.spans", before=ends[0], after=ends[1])


def fact_tables(facts: FactChanges, words: Words) -> list[Section]:
    """The tables of what completions are, with their counts over time."""
    marks = [each for each in (facts.form, facts.fallback) if each is not None]
    tables = [
        share_table("form", marks, "mark", facts.stretches, words),
        share_table("errors", facts.errors, "error_family", facts.stretches, words),
        share_table("outcomes", facts.outcomes, "program_outcome", facts.stretches, words),
        share_table("operators", facts.operators, "", facts.stretches, words),
        share_table("combinations", facts.combinations, "combination", facts.stretches, words),
        variety_table(facts, words),
    ]
    if facts.others:
        tables[4]["note"] = words("facts.others", count=facts.others)
    return tables


def share_table(
    name: str, rows: Iterable[ShareRow], section: str, stretches: Sequence[Steps], words: Words
) -> Section:
    """One table of shares; its names are worded by a section of the catalogue."""
    views = []
    for row in rows:
        views.append(share_view(row, known_name(row.name, section, words), words))
        if len(row.kinds) == 1 and section == "error_family":
            label = words("facts.one_kind", family=views[-1]["label"], kind=flat_name(row.kinds[0]))
            views[-1]["label"] = label
        elif len(row.kinds) > 1:
            inner = ({**share_view(k, flat_name(k), words), "depth": 1} for k in row.kinds)
            views += inner
    return {
        "name": name,
        "title": words(f"facts.{name}"),
        "rows": views,
        "over_time": over_time_head(stretches, words) if views else "",
        "note": "",
    }


def known_name(name: str, section: str, words: Words) -> str:
    """A name in the reader's language, or as the record has it."""
    if section == "combination" and not name:
        return words("facts.no_operator")
    return visible(words.known(section, name) if section in words.sections else name)


def flat_name(row: ShareRow) -> str:
    """A kind as the record has it."""
    return visible(row.name)


def share_view(row: ShareRow, label: str, words: Words) -> Section:
    """One row of a table of shares."""
    return {
        "label": label,
        "before": counts_text(row.before, row.change.before, words),
        "after": counts_text(row.after, row.change.after, words),
        "change": change_text(row.change, words),
        "over_time": " · ".join(f"{c.count}/{c.trials}" for c in row.over_time),
        "moved": row.change.direction != "none",
        "depth": 0,
    }


def over_time_head(stretches: Sequence[Steps], words: Words) -> str:
    """The stretches of steps of the last column."""
    names = (f"{low}" if low == high else f"{low}–{high}" for low, high in stretches)
    return words("facts.over_time", steps=" · ".join(names))


def counts_text(counts: Counts, share: Estimate | None, words: Words) -> str:
    """How many of how many, with the share's interval."""
    if share is None or share.interval is None:
        return "–"
    low, high = percent(share.interval.low), percent(share.interval.high)
    ends = words("table.interval_text", low=low, high=high)
    figures = {"count": counts.count, "trials": counts.trials, "share": percent(share.value)}
    return words("facts.counts", ends=ends, **figures)


def change_text(change: Change, words: Words, write: Write = points, unit: str = "points") -> str:
    """A change in words: its size where it shows, else the smallest that would have shown."""
    if change.interval is None or change.before is None or change.after is None:
        return "–"
    ends = words(
        "table.interval_text", low=write(change.interval.low), high=write(change.interval.high)
    )
    difference = write(change.after.value - change.before.value)
    if change.direction != "none":
        return words(f"facts.{change.direction}", difference=difference, ends=ends)
    said = words("facts.no_change", difference=difference, ends=ends)
    if change.inconsistent:
        said += words("facts.inconsistent")
    if change.detectable is None:
        return said + words("facts.nothing_shows")
    least = write(change.detectable).lstrip("+")
    return said + words(f"facts.detectable_{unit}", least=least)


def variety_table(facts: FactChanges, words: Words) -> Section:
    """How different the completions of a group are."""
    rows = []
    for each in facts.variety:
        shares = each.name == "repeated"
        write, signed = (percent, points) if shares else (number, signed_amount)
        rows.append(
            {
                "label": words(f"variety.{each.name}"),
                "before": mean_text(each.change.before, write, words),
                "after": mean_text(each.change.after, write, words),
                "change": change_text(each.change, words, signed, "points" if shares else "amount"),
                "over_time": "",
                "moved": each.change.direction != "none",
                "depth": 0,
            }
        )
    note = ""
    if rows:
        (low, high), (first, last) = facts.variety_steps
        note = words("facts.variety_steps", low=low, high=high, first=first, last=last)
    title = words("facts.variety")
    return {"name": "variety", "title": title, "rows": rows, "over_time": "", "note": note}


def mean_text(found: Estimate | None, write: Write, words: Words) -> str:
    """A mean with its interval."""
    if found is None or found.interval is None:
        return "–"
    low, high = write(found.interval.low), write(found.interval.high)
    return words(
        "facts.mean",
        value=write(found.value),
        ends=words("table.interval_text", low=low, high=high),
    )


def signed_amount(value: float) -> str:
    """A difference of amounts in three digits with its sign."""
    return "+0" if abs(value) < ROUNDED else f"{value:+.3g}".replace("-", "−")


def alike_said(facts: FactChanges, words: Words) -> list[str]:
    """The warning that completions of a group repeat each other, with the likely cause."""
    alike = facts.alike
    if alike is None:
        return []
    key = "alike_temperature" if alike.likely_cause else "alike"
    temperature = "?" if alike.temperature is None else f"{alike.temperature:g}"
    return [words(f"facts.{key}", share=percent(alike.share), temperature=temperature)]


def call_tables(calls: CallReport | None, words: Words) -> list[Section]:
    """Errors of calls by type, and what calls cost."""
    if calls is None:
        return []
    errors = [_call_error(each, words) for each in calls.errors]
    costs = [_cost(each, words) for each in calls.costs]
    note = words("facts.noted_costs") if calls.noted and costs else ""
    return [
        {
            "name": "api_errors",
            "title": words("facts.api_errors"),
            "rows": errors,
            "over_time": "",
            "note": "",
        },
        {
            "name": "costs",
            "title": words("facts.costs"),
            "rows": costs,
            "over_time": "",
            "note": note,
        },
    ]


def _call_error(each: CallError, words: Words) -> Section:
    name = visible(words.known("failure_type", each.name))
    return {
        "label": words(f"call_error.{each.source}", name=name),
        "before": counts_text(each.before, each.change.before, words),
        "after": counts_text(each.after, each.change.after, words),
        "change": change_text(each.change, words),
        "over_time": "",
        "moved": each.change.direction != "none",
        "depth": 0,
    }


def _cost(each: CostRow, words: Words) -> Section:
    return {
        "label": words(f"cost_per.{each.per}"),
        "before": mean_text(each.change.before, number, words),
        "after": mean_text(each.change.after, number, words),
        "change": change_text(each.change, words, signed_amount, "amount"),
        "over_time": "",
        "moved": each.change.direction != "none",
        "depth": 0,
    }


def call_sentences(found: Progress, words: Words) -> list[str]:
    """Effects of errors, savings, and what is not known of costs."""
    calls = found.calls
    said = [effect_said(each, words) for each in (calls.effects if calls else ())]
    if calls is not None and calls.unknown_cost:
        said.append(words("facts.unknown_cost"))
    said += [saving_said(each, words) for each in found.savings]
    if calls is not None and calls.costs and not any(is_cost(m) for m in found.experiment.budget):
        said.append(words("facts.no_plan"))
    return said


def is_cost(metric: str) -> bool:
    """Whether a metric is what something cost."""
    return metric.rpartition("/")[2] == "cost"


def effect_said(each: Effect, words: Words) -> str:
    """What errors did to the completions that they hit."""
    unanswered, reward = each.unanswered, each.reward
    assert unanswered.before is not None and unanswered.after is not None
    said = words(
        f"facts.effect_{each.source}",
        hit=each.hit,
        others=each.others,
        share=percent(unanswered.after.value),
        rest=percent(unanswered.before.value),
        change=change_text(unanswered, words),
    )
    if reward.before is None or reward.after is None:
        return said + words("facts.no_reward")
    return said + words(
        "facts.effect_reward",
        reward=number(reward.after.value),
        rest=number(reward.before.value),
        change=change_text(reward, words, signed_amount, "amount"),
    )


def saving_said(each: Saving, words: Words) -> str:
    """What is left of a plan, or that nothing shows."""
    ahead, sign = each.forecast, -1 if each.direction == "fall" else 1
    write = signed_amount if each.direction == "none" else number
    ends = sorted((sign * each.interval.low, sign * each.interval.high))
    figures = {
        "metric": visible(words.known("metric", each.metric)),
        "plan": number(each.plan),
        "value": number(ahead.value),
        "ends": words(
            "table.interval_text", low=number(ahead.interval.low), high=number(ahead.interval.high)
        ),
        "left": write(sign * each.value),
        "left_ends": words("table.interval_text", low=write(ends[0]), high=write(ends[1])),
        "at": ahead.at,
        "assumption": words(f"assumption.{ahead.assumption}", steps=ahead.steps),
    }
    return words(f"saving.{each.direction}", **figures)


def mark_lines(facts: FactChanges | None, words: Words) -> list[str]:
    """Form and fallback, before and after, for the short form."""
    if facts is None:
        return []
    said = []
    for row in (facts.form, facts.fallback):
        if row is not None:
            view = share_view(row, words.known("mark", row.name), words)
            ends = {name: view[name] for name in ("label", "before", "after", "change")}
            said.append(words("facts.line", **ends))
    return said


def moved_lines(facts: FactChanges | None, calls: CallReport | None, words: Words) -> list[str]:
    """What changed in each table."""
    said = []
    for table in (*(fact_tables(facts, words) if facts else ()), *call_tables(calls, words)):
        moved = [f"{row['label']} {row['change']}" for row in table["rows"] if row["moved"]]
        joined = words.semicolon.join(moved)
        if moved:
            said.append(words("facts.moved", table=table["title"], rows=joined))
    return said
