"""What samples and calls of a stage say between two steps, in words: tables and sentences.

Numbers come from `lab.monitor.fact_changes` and `lab.monitor.call_errors`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from assay.judge.health_checks import RuleState
from assay.judge.health_rules import IDLE, LONG, RULES, WINDOW, Rule
from assay.judge.intervals import Estimate
from assay.judge.share_changes import Change, Counts
from assay.judge.templates import filled
from assay.lab.monitor.call_errors import CallReport, Effect, Saving
from assay.lab.monitor.fact_changes import FactChanges, ShareRow, Steps
from assay.lab.monitor.milestones import PART, is_share
from assay.lab.monitor.progress import Progress
from assay.lab.monitor.sample_facts import SampleText
from assay.lab.monitor.watch_list import Watched
from assay.pages.page import (
    Answer,
    Block,
    Bullets,
    Column,
    Heading,
    Mark,
    Only,
    Question,
    Table,
    Text,
)
from assay.pages.words import Words, metric_label, number, percent, points, signed_number, visible

Write = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class FactRow:
    """One kind of thing before and after."""

    label: str
    before: str
    after: str
    change: str
    moved: bool
    over_time: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class FactTable:
    """Things of one kind."""

    title: str
    rows: Sequence[FactRow]
    over_time: str = ""
    """The head of the column of counts over time; "" without one."""
    note: str = ""
    heads: tuple[str, str, str] = ("before", "after", "change")


def fact_blocks(found: Progress, words: Words) -> list[Block]:
    """The tables and sentences of a stage's samples and calls; nothing where none is recorded."""
    if found.facts is None and found.calls is None:
        return []
    about = [Text(spans(found.facts, words), "soft")] if found.facts else []
    return [
        Heading(words("facts.title")),
        *about,
        Bullets(fact_sentences(found, words)),
        *(_shown(table, words) for table in all_tables(found, words)),
        Only(("html", "markdown"), [Text(words("facts.methods"), "soft")]),
    ]


def fact_sentences(found: Progress, words: Words) -> list[str]:
    """Warnings, effects of errors, savings, and what is not known of costs."""
    alike = alike_said(found.facts, words) if found.facts else []
    return [*alike, *call_sentences(found, words)]


def all_tables(found: Progress, words: Words) -> list[FactTable]:
    """The tables that have rows."""
    tables = [
        *(fact_tables(found.facts, words) if found.facts else ()),
        *call_tables(found.calls, words),
    ]
    return [table for table in tables if table.rows]


def _shown(table: FactTable, words: Words) -> Table:
    columns: list[Column | str] = [words(f"facts.{n}") for n in ("name", *table.heads)]
    rows = []
    for row in table.rows:
        label = Mark(("– " if row.depth else "") + row.label, "strong" if row.moved else "")
        cells = [label, row.before, row.after, row.change]
        rows.append([*cells, row.over_time] if table.over_time else cells)
    heads = [*columns, table.over_time] if table.over_time else columns
    return Table(heads, rows, table.title, table.note)


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


def fact_tables(facts: FactChanges, words: Words) -> list[FactTable]:
    """The tables of what completions are, with their counts over time."""
    marks = [each for each in (facts.form, facts.fallback) if each is not None]
    others = words("facts.others", count=facts.others) if facts.others else ""
    every = (
        ("form", marks, "mark", ""),
        ("errors", facts.errors, "error_family", ""),
        ("outcomes", facts.outcomes, "program_outcome", ""),
        ("operators", facts.operators, "", ""),
        ("combinations", facts.combinations, "combination", others),
    )
    over_time = over_time_head(facts.stretches, words)
    tables = [
        FactTable(words(f"facts.{name}"), share_rows(rows, section, words), over_time, note)
        for name, rows, section, note in every
    ]
    return [*tables, reward_table(facts, words), variety_table(facts, words)]


def reward_table(facts: FactChanges, words: Words) -> FactTable:
    """Operators of completions of high and low reward."""
    rows = []
    for each in facts.by_reward:
        interval, value = each.difference.interval, points(each.difference.value)
        assert interval is not None
        said = words("facts.mean", value=value, ends=words.ends(interval, points))
        low, high = (f"{c.count}/{c.trials}" for c in (each.low, each.high))
        rows.append(
            FactRow(visible(each.name), low, high, said, not interval.low <= 0 <= interval.high)
        )
    heads = ("low", "high", "difference")
    return FactTable(
        words("facts.by_reward"), rows, note=words("facts.by_reward_about"), heads=heads
    )


def share_rows(rows: Iterable[ShareRow], section: str, words: Words) -> list[FactRow]:
    """Rows of shares; their names are worded by a section of the catalogue."""
    found = []
    for row in rows:
        label = known_name(row.name, section, words)
        if len(row.kinds) == 1 and section == "error_family":
            label = words("facts.one_kind", family=label, kind=visible(row.kinds[0].name))
        found.append(share_row(row, label, words))
        if len(row.kinds) > 1:
            inner = (share_row(kind, visible(kind.name), words) for kind in row.kinds)
            found += [replace(each, depth=1) for each in inner]
    return found


def known_name(name: str, section: str, words: Words) -> str:
    """A name in the reader's language, or as the record has it."""
    if section == "combination" and not name:
        return words("facts.no_operator")
    return visible(words.sections.get(section, {}).get(name, name))


def share_row(row: ShareRow, label: str, words: Words) -> FactRow:
    """One row of a table of shares."""
    return FactRow(
        label,
        counts_text(row.before, row.change.before, words),
        counts_text(row.after, row.change.after, words),
        change_text(row.change, words),
        row.change.direction != "none",
        " · ".join(f"{c.count}/{c.trials}" for c in row.over_time),
    )


def over_time_head(stretches: Sequence[Steps], words: Words) -> str:
    """The stretches of steps of the last column."""
    names = (f"{low}" if low == high else f"{low}–{high}" for low, high in stretches)
    return words("facts.over_time", steps=" · ".join(names))


def counts_text(counts: Counts, share: Estimate | None, words: Words) -> str:
    """How many of how many, with the share's interval."""
    if share is None or share.interval is None:
        return "–"
    ends = words.ends(share.interval, percent)
    figures = {"count": counts.count, "trials": counts.trials, "share": percent(share.value)}
    return words("facts.counts", ends=ends, **figures)


def change_text(change: Change, words: Words, write: Write = points, unit: str = "points") -> str:
    """A change in words: its size where it shows, else the smallest that would have shown."""
    if change.interval is None or change.before is None or change.after is None:
        return "–"
    ends = words.ends(change.interval, write)
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


def variety_table(facts: FactChanges, words: Words) -> FactTable:
    """How different the completions of a group are."""
    rows = []
    for each in facts.variety:
        shares = each.name == "repeated"
        write, signed = (percent, points) if shares else (number, signed_number)
        unit = "points" if shares else "amount"
        rows.append(
            mean_row(words(f"variety.{each.name}"), each.change, write, signed, unit, words)
        )
    note = ""
    if rows:
        (low, high), (first, last) = facts.variety_steps
        note = words("facts.variety_steps", low=low, high=high, first=first, last=last)
    return FactTable(words("facts.variety"), rows, note=note)


def mean_row(
    label: str, change: Change, write: Write, signed: Write, unit: str, words: Words
) -> FactRow:
    """One row of a table of means."""
    return FactRow(
        label,
        mean_text(change.before, write, words),
        mean_text(change.after, write, words),
        change_text(change, words, signed, unit),
        change.direction != "none",
    )


def mean_text(found: Estimate | None, write: Write, words: Words) -> str:
    """A mean with its interval."""
    if found is None or found.interval is None:
        return "–"
    return words("facts.mean", value=write(found.value), ends=words.ends(found.interval, write))


def alike_said(facts: FactChanges, words: Words) -> list[str]:
    """The warning that completions of a group repeat each other, with the likely cause."""
    alike = facts.alike
    if alike is None:
        return []
    key = "alike_temperature" if alike.likely_cause else "alike"
    temperature = "?" if alike.temperature is None else f"{alike.temperature:g}"
    return [words(f"facts.{key}", share=percent(alike.share), temperature=temperature)]


def call_tables(calls: CallReport | None, words: Words) -> list[FactTable]:
    """Errors of calls by type, and what calls cost."""
    if calls is None:
        return []
    errors = []
    for each in calls.errors:
        name = known_name(each.name, "failure_type", words)
        label, change = words(f"call_error.{each.source}", name=name), each.change
        counts = (
            counts_text(each.before, change.before, words),
            counts_text(each.after, change.after, words),
        )
        moved = change.direction != "none"
        errors.append(FactRow(label, *counts, change_text(change, words), moved))
    costs = [
        mean_row(words(f"cost_per.{each.per}"), each.change, number, signed_number, "amount", words)
        for each in calls.costs
    ]
    note = words("facts.noted_costs") if calls.noted and costs else ""
    return [
        FactTable(words("facts.api_errors"), errors),
        FactTable(words("facts.costs"), costs, note=note),
    ]


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
        change=change_text(reward, words, signed_number, "amount"),
    )


def saving_said(each: Saving, words: Words) -> str:
    """What is left of a plan, or that nothing shows."""
    ahead, sign = each.forecast, -1 if each.direction == "fall" else 1
    write = signed_number if each.direction == "none" else number
    ends = sorted((sign * each.interval.low, sign * each.interval.high))
    figures = {
        "metric": metric_label(each.metric, words),
        "plan": number(each.plan),
        "value": number(ahead.value),
        "ends": words.ends(ahead.interval, number),
        "left": write(sign * each.value),
        "left_ends": words("table.interval_text", low=write(ends[0]), high=write(ends[1])),
        "at": ahead.at,
        "assumption": words(f"assumption.{ahead.assumption}", steps=ahead.steps),
    }
    return words(f"saving.{each.direction}", **figures)


def mark_lines(facts: FactChanges | None, words: Words) -> list[str]:
    """Form and fallback, before and after, for the short form."""
    marks = [] if facts is None else [each for each in (facts.form, facts.fallback) if each]
    return [
        words("facts.line", label=row.label, before=row.before, after=row.after, change=row.change)
        for row in share_rows(marks, "mark", words)
    ]


def moved_lines(found: Progress, words: Words) -> list[str]:
    """What changed in each table."""
    said = []
    for table in all_tables(found, words):
        moved = [f"{row.label} {row.change}" for row in table.rows if row.moved]
        if moved:
            rows = words.semicolon.join(moved)
            said.append(words("facts.moved", table=table.title, rows=rows))
    return said


LONGEST = 3000
"""Characters of a program that a page shows."""
STYLES = {"ok": "better", "warning": "undecided", "error": "worse"}
"""Badges of states; the others have none."""
COMPARED = frozenset({"grown", "shrunk"})
"""Kinds of rules whose figure is a multiple."""
MOVED = frozenset({"rising", "falling", "flat"})
"""Kinds of rules whose figure is a rise or a fall."""


def rule_table(found: Progress, words: Words) -> Table:
    """Every rule with its state, its condition and the figure behind the state."""
    heads = [words(f"health_state.{name}") for name in ("state", "rule", "condition", "figure")]
    rows = [
        [*_state(each, words), condition_text(each, words), figure_text(each, words)]
        for each in found.states
    ]
    return Table(heads, rows)


def rules_in_terminal(found: Progress, words: Words) -> list[Block]:
    """The rules that read something with their figures, and the others in a line for each
    reason."""
    heads = [words(f"health_state.{name}") for name in ("state", "rule", "figure")]
    rows = [
        [*_state(each, words), figure_text(each, words)] for each in found.states if each.reading
    ]
    idle: dict[str, list[str]] = {}
    for each in found.states:
        if each.reading is None:
            state = words(f"health_state.{each.state}")
            idle.setdefault(state, []).append(words.sections["finding"][each.rule])
    lines = [f"{state}{words.colon}{words.semicolon.join(names)}" for state, names in idle.items()]
    title = words("health_state.title")
    return [Table(heads, rows, title), *(Text(each, "soft") for each in lines)]


def rule_counts(found: Progress, words: Words) -> str:
    """How many rules stand how."""
    counts = Counter(words(f"health_state.{each.state}") for each in found.states)
    told = words.listing.join(f"{state} {count}" for state, count in counts.items())
    return words("health_state.states", counts=told)


def _state(each: RuleState, words: Words) -> tuple[Mark, str]:
    state = Mark(words(f"health_state.{each.state}"), STYLES.get(each.state, "plain"))
    return state, words.sections["finding"][each.rule]


def condition_text(each: RuleState, words: Words) -> str:
    """When a rule finds something."""
    rule = RULES[each.rule]
    metric = metric_label(each.metric or (rule.metrics[0] if rule.metrics else ""), words)
    figures = {"metric": metric, "window": WINDOW, "long": LONG, "idle": IDLE}
    figures["limits"] = limits(rule, words)
    return words(f"health_condition.{rule.kind}", **figures)


def limits(rule: Rule, words: Words) -> str:
    """The thresholds of a rule."""
    write = writer(rule.kind, rule.metrics[0]) if rule.metrics else number
    ends = {
        name: write(value)
        for name, value in (("warning", rule.warning), ("error", rule.error))
        if value is not None
    }
    return words("health_limits." + ("_".join(ends) or "none"), **ends)


def figure_text(each: RuleState, words: Words) -> str:
    """The figure behind a state; why there is none, where there is none."""
    if each.reading is None:
        return words(f"health_unread.{each.state}")
    figures = {**each.reading.figures, "metric": metric_label(each.reading.metric, words)}
    return filled(words.sections["evidence"][each.reading.evidence], figures)


def writer(kind: str, metric: str) -> Write:
    """How the figure of a rule of this kind is written."""
    if kind in COMPARED:
        return lambda value: f"×{value:.2g}"
    if kind == "budget":
        return lambda value: f"{value:.0%}"
    return percent if is_share(metric) or metric.startswith(PART) else number


def watch_title(found: Progress, words: Words) -> str:
    """Until when."""
    if found.next_report is None:
        return words("watching.title")
    return words("watching.title_until", step=found.next_report)


def watch_blocks(found: Progress, words: Words) -> list[Block]:
    """What to watch, with the present figure, the bound and what is left."""
    heads = [words(f"watching.{name}") for name in ("what", "now", "bound", "left", "why")]
    rows = []
    for each in found.watched:
        what, now, bound, left, why = _watched(each, words)
        rows.append([what, now, bound, Mark(left, "undecided") if each.beyond else left, why])
    return [Heading(watch_title(found, words)), Table(heads, rows)] if rows else []


def watch_lines(found: Progress, words: Words) -> list[Block]:
    """The same in a line each."""
    names = ("what", "now", "bound", "left", "why")
    told = [dict(zip(names, _watched(each, words), strict=True)) for each in found.watched]
    lines = [Text(words("watching.line", **each)) for each in told]
    return [Heading(watch_title(found, words)), *lines] if lines else []


def _watched(each: Watched, words: Words) -> tuple[str, str, str, str, str]:
    """What is watched, its figure, its bound, what is left, and why it is watched."""
    kind = RULES[each.name].kind if each.kind == "rule" else "high"
    write = writer(kind, each.metric)
    measure = "watching.moved" if kind in MOVED else "watching.plain"
    if kind in COMPARED:
        measure = "watching.multiple"
    label = words(measure, metric=metric_label(each.metric, words)) if each.metric else "–"
    if kind == "budget":
        label = words("watching.budget", metric=metric_label(each.metric, words))
    bound = "–"
    if each.bound is not None:
        bound = words(f"watching.{each.side}", bound=write(each.bound))
    now = "–" if each.now is None else write(each.now)
    return label, now, bound, _left(each, kind, words), _why(each, words)


def _left(each: Watched, kind: str, words: Words) -> str:
    """What is left between the figure and the bound."""
    if each.beyond:
        return words("watching.beyond")
    if each.distance is None:
        return "–"
    if kind == "budget":
        return f"{each.distance:+.0%}".replace("-", "−")
    if kind in COMPARED:
        text = number(round(each.distance, 3))
        return text.replace("-", "−") if each.distance < 0 else f"+{text}"
    if is_share(each.metric) or each.metric.startswith(PART):
        return words("watching.points", distance=points(each.distance))
    text = number(abs(each.distance))
    return f"−{text}" if each.distance < 0 else f"+{text}"


def _why(each: Watched, words: Words) -> str:
    """The rule, milestone or guard."""
    if each.kind == "rule":
        return words("watching.rule", what=words.sections["finding"][each.name])
    if each.kind == "guard":
        return words("watching.guard", name=visible(each.name))
    said = words("watching.milestone", name=visible(each.name))
    if each.step is not None:
        said = words("watching.milestone_at", name=visible(each.name), step=each.step)
    if each.forecast is not None:
        write = writer("high", each.metric)
        ahead = each.forecast
        ends = words.ends(ahead.interval, write)
        said += words("watching.forecast", value=write(ahead.value), ends=ends)
    return said


def program_pair(found: Progress, words: Words) -> list[Block]:
    """The program before and the one after, and how they were chosen."""
    pair = found.pair
    if pair is None:
        return []
    key = "programs.same_row" if pair.same_row else "programs.two_rows"
    row, other = (visible(each.facts.row_id) for each in (pair.before, pair.after))
    title = words("programs.title", first=found.first, last=found.last)
    sides = [_side(each, words) for each in (pair.before, pair.after)]
    chosen = Text(words(key, row=row, other=other), "soft")
    return [Heading(title), chosen, Question("", "", sides)]


def _side(each: SampleText, words: Words) -> Answer:
    facts = each.facts
    outcome = visible(words.sections["program_outcome"].get(facts.outcome, facts.outcome))
    result = words("programs.result", outcome=outcome, reward=number(facts.reward))
    error = words("programs.error", error=visible(facts.error or "")) if facts.error else ""
    text = each.program if len(each.program) <= LONGEST else each.program[:LONGEST] + " …"
    title = words("programs.side", step=facts.step, row=visible(facts.row_id))
    why = " ".join(filter(None, (error, visible(each.why))))
    result = words("punctuation.stop").join(filter(None, (result, why)))
    return Answer(title, result, text, note=visible(facts.sample_id))
