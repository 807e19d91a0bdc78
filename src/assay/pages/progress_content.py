"""The progress of a run in words: metrics, conditions, forecasts, facts of completions, changes.

Numbers come from `lab.monitor`; words and units are added here, for the run's page, the progress
report of a step and the terminal.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.judge.binomial import direction_of
from assay.judge.health_checks import RuleState
from assay.judge.intervals import Estimate
from assay.judge.selection import expected_optimism
from assay.lab.monitor.guards import PART, is_share
from assay.lab.monitor.progress import FactChanges, FactRow, FactTable, MetricRow, Progress
from assay.pages.content import checkpoint_label
from assay.pages.facts import idle
from assay.pages.page import Block, Bullets, Findings, Folded, Heading, Mark, Page, Row, Table, Text
from assay.pages.words import (
    Words,
    evidence,
    metric_label,
    number,
    percent,
    points,
    signed_number,
    visible,
)
from assay.runs.run_files import Selection

Write = Callable[[float], str]
STYLES = {
    **dict.fromkeys(("ok", "met"), "better"),
    **dict.fromkeys(("warning", "undecided"), "undecided"),
    **dict.fromkeys(("error", "fired", "missed"), "worse"),
}
"""Badges of states; the others have none."""
LABELS = {
    "form": "mark",
    "errors": "error_family",
    "api_errors": "failure_type",
    "costs": "cost_per",
}
"""The sections of the catalogue that word the rows of a table of facts."""
ENDS = ("before", "after", "change")
SIDES = ("low", "high", "difference")
"""Heads of the table that compares something else than before and after."""


def progress_title(progress: Progress, words: Words) -> str:
    """The stage and the two steps that are compared."""
    return words("progress.title", stage=progress.stage, first=progress.first, last=progress.last)


def progress_blocks(progress: Progress, words: Words) -> list[Block]:
    """What changed in one stage, as a part of the run's page, which has the findings elsewhere."""
    moved = sum(row.moved for row in progress.rows)
    title = "progress.metrics_between"
    metrics = words(title, first=progress.first, last=progress.last, moved=moved)
    whole = [Bullets(changes(progress, words)), *metric_blocks(progress, words)]
    whole += [*fact_blocks(progress.facts, words), *condition_blocks(progress, words, ("stop",))]
    milestones = condition_blocks(progress, words, ("expect",))
    return [*_summary(progress, words), *milestones, Folded(metrics, whole)]


def _summary(progress: Progress, words: Words) -> list[Block]:
    """Where the stage stands, what changed, and what it will have cost at its end."""
    told, rows = forecasts(progress, words), change_rows(progress, words)
    heads = [words(f"facts.{name}") for name in ("name", *ENDS)]
    position = words("progress.position", last=progress.last, planned=progress.planned or "?")
    return [
        Text(position, "soft"),
        *([Table([*heads, words("compare.verdict")], rows)] if rows else []),
        *([Bullets(told)] if told else []),
    ]


MOST_ERRORS = 4


def change_rows(progress: Progress, words: Words) -> list[Row]:
    """Form, generations, errors, fallback, total cost, cost of a call and the reward: until the
    first step and since, with the verdict on the change. Totals count from the stage's start."""
    rows: list[Row] = []
    facts = progress.facts
    if facts is not None:
        marks = {row.name: row for row in facts.rows("form")}
        costs = {row.name: row for row in facts.rows("costs")}
        sizes = facts.completions
        rows += [_changed(row, "form", words) for n, row in marks.items() if n == "form"]
        if any(sizes):
            rows.append(_total(words("progress.generations"), *sizes))
        errors = sorted(
            facts.rows("errors"),
            key=lambda row: -sum(c.count for c in (row.before, row.after) if c),
        )[:MOST_ERRORS]
        rows += [_changed(row, "errors", words) for row in errors]
        rows += [_changed(row, "form", words) for n, row in marks.items() if n == "fallback"]
        if "step" in costs:
            ends = (costs["step"].change.before, costs["step"].change.after)
            spent = [each.value * (each.trials or 0) if each else 0.0 for each in ends]
            rows.append(_total(words("progress.total_cost"), spent[0], spent[1]))
        if "call" in costs:
            rows.append(_changed(costs["call"], "costs", words))
    return [*rows, *(_metric_changed(row, words) for row in progress.rows[:1])]


def _total(label: str, before: float, after: float) -> Row:
    return [label, number(before), number(before + after), signed_number(after), "–"]


def _changed(row: FactRow, table: str, words: Words, power: bool = False) -> Row:
    change, shares = row.change, row.before is not None
    write, signed = (percent, points) if shares else (number, signed_number)
    texts = []
    for counts, end in ((row.before, change.before), (row.after, change.after)):
        text = "–" if end is None else write(end.value)
        texts.append(f"{counts.count}/{counts.trials} = {text}" if counts and end else text)
    difference, verdict = "–", "–"
    if change.before is not None and change.after is not None:
        difference = signed(change.after.value - change.before.value)
        if change.interval is not None:
            difference += words.within(words.ends(change.interval, signed))
            if power and change.direction == "none":
                difference += _power(row, signed, words)
        verdict = words(f"progress.verdict_{change.direction}")
    label = words("facts.cost_per", per=row_label(row, table, words)) if table == "costs" else ""
    return [label or row_label(row, table, words), *texts, difference, verdict]


def _metric_changed(row: MetricRow, words: Words) -> Row:
    difference = figures_of(row, words)[2]
    write = row_writers(row)[0]
    ends = [write(each.value) if each else "–" for each in (row.before, row.after)]
    verdict = words(f"progress.verdict_{direction_of(row.change)}") if row.change else "–"
    return [metric_label(row.metric, words), *ends, difference, verdict]


def progress_page(progress: Progress, words: Words) -> Page:
    """The progress report of one step."""
    return Page(
        words, progress.run.name, [Text(str(progress.run)), *progress_report(progress, words)]
    )


def progress_report(progress: Progress, words: Words) -> list[Block]:
    """The whole progress of one stage; the table of metrics comes last, because it is what a small
    terminal may cut."""
    stopped = visible(progress.status.message) if progress.status.guard else ""
    gate = promotion(progress.stage, progress.selection, words)
    new = [each.code in progress.new for each in progress.findings]
    return [
        Heading(progress_title(progress, words)),
        *([Text(Mark(stopped, "error"))] if stopped else []),
        *_summary(progress, words),
        Bullets(changes(progress, words)),
        Findings(progress.findings, new=new) if progress.findings else Text(words("page.healthy")),
        *([Text(gate)] if gate else []),
        *fact_blocks(progress.facts, words),
        *condition_blocks(progress, words),
        *metric_blocks(progress, words),
    ]


def condition_blocks(
    progress: Progress, words: Words, consequences: Sequence[str] = ("expect", "stop")
) -> list[Block]:
    """Milestones and guards with their states and the figures behind them; what rules find stands
    among the findings."""
    heads = [words(f"health_state.{name}") for name in ("state", "rule", "condition", "figure")]
    rows = []
    for each in (x for x in progress.states if x.consequence in consequences):
        template, figures = each.condition
        texts = {k: visible(v) if isinstance(v, str) else v for k, v in figures.items()}
        texts["metric"] = metric_label(each.metric, words)
        condition = words(f"health_condition.{template}", **texts)
        state = Mark(words(f"health_state.{each.state}"), STYLES.get(each.state, "plain"))
        rows.append([state, visible(each.rule), condition, figure_text(each, words)])
    title = "milestones" if consequences == ("expect",) else "title"
    return [Heading(words(f"health_state.{title}")), Table(heads, rows)] if rows else []


def figure_text(each: RuleState, words: Words) -> str:
    """The figure behind a state."""
    if each.reading is None:
        return "–"
    figures = {**each.reading.figures, "metric": metric_label(each.reading.metric, words)}
    return evidence(each.reading.evidence, figures, words)


def fact_blocks(facts: FactChanges | None, words: Words) -> list[Block]:
    """The tables of a stage's samples and calls; nothing where none is recorded."""
    if facts is None:
        return []
    return [
        Heading(words("facts.title")),
        Text(spans(facts, words), "soft"),
        *([Text(words("facts.unknown_cost"), "soft")] if facts.unknown_cost else []),
        *(_fact_table(table, words) for table in facts.tables),
        Text(words("facts.methods"), "soft"),
    ]


def _fact_table(table: FactTable, words: Words) -> Table:
    by_reward = table.name == "by_reward"
    heads = [words(f"facts.{n}") for n in ("name", *(SIDES if by_reward else ENDS))]
    title = words(f"facts.{table.name}")
    if by_reward:
        rows = [_by_reward(row, words) for row in table.rows]
        return Table(heads, rows, title, words("facts.by_reward_about"))
    rows = [_changed(row, table.name, words, power=True) for row in table.rows]
    return Table([*heads, words("compare.verdict")], rows, title)


def row_label(row: FactRow, table: str, words: Words) -> str:
    """A name in the reader's language, or as the record has it."""
    label = visible(words.sections.get(LABELS.get(table, ""), {}).get(row.name, row.name))
    kinds = words.listing.join(map(visible, row.kinds))
    return words("facts.of_kinds", family=label, kinds=kinds) if kinds else label


def _by_reward(row: FactRow, words: Words) -> Row:
    """The counts of completions with low and high reward, and the difference of their shares."""
    low, high = (f"{c.count}/{c.trials}" if c else "–" for c in (row.before, row.after))
    told = "–"
    if row.difference is not None and row.difference.interval is not None:
        value, ends = row.difference.value, words.ends(row.difference.interval, points)
        told = words("facts.mean", value=points(value), ends=ends)
    return [row_label(row, "by_reward", words), low, high, told]


def _power(row: FactRow, write: Write, words: Words) -> str:
    """Behind a change that does not show, the smallest that would have."""
    if row.change.detectable is None:
        return words("facts.nothing_shows")
    unit, least = "points" if write is points else "amount", write(row.change.detectable)
    return words(f"facts.detectable_{unit}", least=least.lstrip("+"))


def spans(facts: FactChanges, words: Words) -> str:
    """The completions that are compared."""
    both = zip((facts.before, facts.after), facts.completions, facts.prompts, strict=True)
    ends = [
        words(
            "facts.span" if size else "facts.no_span",
            first=steps[0],
            last=steps[1],
            completions=size,
            prompts=prompts,
        )
        for steps, size, prompts in both
    ]
    return words("facts.spans", before=ends[0], after=ends[1])


def metric_blocks(progress: Progress, words: Words) -> list[Block]:
    """The metrics at both steps, with change and trend, and how they were computed; without those
    that say nothing while they are 0."""
    steps = [words("progress.at_step", step=step) for step in (progress.first, progress.last)]
    heads = [words("progress.metric"), *steps, words("progress.change"), words("progress.trend")]
    shown = [
        [
            Mark(metric_label(row.metric, words), "strong" if row.moved else ""),
            *figures_of(row, words),
        ]
        for row in progress.rows
        if not is_idle(row)
    ]
    return [Table(heads, shown), Text(words("progress.methods"), "soft")]


def is_idle(row: MetricRow) -> bool:
    """Whether a metric was 0 from the first step of the table to the last, and says nothing so."""
    values = [each.value for each in (row.before, row.after) if each is not None]
    return idle(row.metric, [*values, row.trend.slope if row.trend else 0.0])


def figures_of(row: MetricRow, words: Words) -> tuple[str, str, str, str]:
    """A metric before and after, its change and its trend."""
    write, signed = row_writers(row)
    # A slope is a small change: a tenth of a point would round it away.
    fine = points_of if signed is points else signed_number
    difference = ""
    if row.before is not None and row.after is not None:
        difference = signed(row.after.value - row.before.value)
        if row.change is not None:
            difference += f" ({words.ends(row.change, signed)})"
    trend = ""
    if row.trend is not None:
        slope, reach = fine(row.trend.slope), words.ends(row.trend.interval, fine)
        trend = words("progress.slope", slope=slope, reach=reach)
    before, after = (estimate_text(each, write, words) for each in (row.before, row.after))
    return before, after, difference or "–", trend or "–"


def writers(metric: str) -> tuple[Callable[[float], str], Callable[[float], str]]:
    """Formats of a metric's values and differences: shares in percent."""
    if is_share(metric) or metric.startswith(PART):
        return percent, points
    return number, signed_number


def row_writers(row: MetricRow) -> tuple[Callable[[float], str], Callable[[float], str]]:
    """The formats of a row, whose parts of a reward are shares where all their limits are."""
    formats = writers(row.metric)
    known = [each.interval for each in (row.before, row.after) if each and each.interval]
    ends = [end for interval in known for end in (interval.low, interval.high)]
    amount = any(formats[0](end) == number(end) for end in ends)
    return (number, signed_number) if amount else formats


def points_of(difference: float) -> str:
    """A small difference of shares in points, in three digits."""
    return signed_number(difference * 100)


def estimate_text(estimate: Estimate | None, write: Callable[[float], str], words: Words) -> str:
    """A value with its interval and trials; shares without trials say so."""
    if estimate is None:
        return "–"
    if estimate.interval is None:
        unknown = write is percent
        return write(estimate.value) + (f" ({words('progress.no_trials')})" if unknown else "")
    limits = words.ends(estimate.interval, write)
    key = "progress.estimate_grouped" if estimate.clusters else "progress.estimate"
    size = {"trials": estimate.trials, "clusters": estimate.clusters}
    return words(key, value=write(estimate.value), limits=limits, **size)


def changes(progress: Progress, words: Words) -> list[str]:
    """The changes since the first of the two steps, in a few lines."""
    sentences = [
        words(f"progress.{kind}_finding", what=words.sections["finding"][rule])
        for kind, rules in (("new", progress.new), ("gone", progress.gone))
        for rule in sorted(rules)
    ]
    if progress.checkpoints:
        steps = words.listing.join(map(str, progress.checkpoints))
        sentences.append(words("progress.checkpoints", steps=steps))
    return sentences or [words("progress.nothing_changed")]


def forecasts(progress: Progress, words: Words) -> list[str]:
    """Each forecast with its interval and the assumption that it rests on."""
    budgets = {each.metric: each.budget for each in progress.spending}
    sentences = []
    for metric, each in progress.forecasts.items():
        write, _ = writers(metric)
        text = words(
            "progress.forecast",
            at=each.at,
            value=write(each.value),
            limits=words.ends(each.interval, write),
            assumption=words("assumption.same cost", steps=each.steps),
        )
        budget = budgets.get(metric)
        more = ""
        if budget is not None:
            low, high = budget - each.interval.high, budget - each.interval.low
            ends = words("table.interval_text", low=write(low), high=write(high))
            left = write(budget - each.value)
            more = words("progress.of_budget", budget=write(budget), left=left, ends=ends)
        sentences.append(f"{metric_label(metric, words)}{words.colon}{text}{more}")
    for each in progress.spending:
        if each.metric not in progress.forecasts:
            write, _ = writers(each.metric)
            spent, budget = write(each.spent), write(each.budget)
            text = words("progress.spent", spent=spent, budget=budget)
            sentences.append(f"{metric_label(each.metric, words)}{words.colon}{text}")
    for metric in (m for m in progress.experiment.budget if m not in budgets):
        sentences.append(words("progress.no_costs", metric=metric_label(metric, words)))
    return sentences


def promotion(stage: str, chosen: Selection | None, words: Words) -> str:
    """The selected `STAGE.best` with the reason; "" before the selection."""
    if chosen is None:
        return ""
    best = checkpoint_label(chosen.checkpoint, words)
    if not chosen.evidence:
        return words("promotion.plain", stage=stage, best=best)
    named = [look for look in chosen.evidence if look.checkpoint == chosen.checkpoint]
    closest = named[0] if named else max(chosen.evidence, key=lambda look: look.score)
    reference = parse_checkpoint(closest.checkpoint)
    figures: Mapping[str, Any] = {
        "stage": stage,
        "best": best,
        "start": checkpoint_label(chosen.start, words),
        "looks": chosen.looks,
        "items": closest.items,
        "step": reference.step if reference else "",
        "difference": points(closest.difference),
        "low": points(closest.low),
        "high": points(closest.high),
        "p": f"{closest.adjusted_p:.2g}",
    }
    return words("promotion.promoted" if chosen.promoted else "promotion.kept", **figures)


def uncorrected_choice(stage: str, chosen: Selection, words: Words) -> str:
    """What a rule without correction for looks chose of a stage, with its figures."""
    values: dict[str, Any] = {
        "stage": stage,
        "best": checkpoint_label(chosen.checkpoint, words),
        "looks": chosen.looks,
    }
    if chosen.rule == "dev_score":
        items = chosen.evidence[0].items
        values |= {"score": percent(chosen.score), "items": items}
        if any(not 0 <= look.score <= 1 for look in chosen.evidence):
            return words("promotion.dev_score_plain", **values)
        values["optimism"] = f"{100 * expected_optimism(chosen.looks + 1, items):.1f}"
    elif chosen.rise is not None:
        rise = chosen.rise
        values |= {"first": rise.after + 1, "last": rise.until}
        values |= {"slope": number(rise.slope), "low": number(rise.low), "high": number(rise.high)}
    else:
        return words("promotion.no_rise", **values)
    return words(f"promotion.{chosen.rule}", **values)
