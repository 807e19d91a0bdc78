"""The progress of a run in words: metrics, health, forecasts, milestones, guards, changes.

Numbers come from `lab.monitor.progress`; words and units are added here, for the run's page, the
progress report of a step and the terminal.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.judge.intervals import Estimate
from assay.judge.selection import Promotion, expected_optimism
from assay.judge.trends import Forecast
from assay.lab.monitor.guards import condition
from assay.lab.monitor.milestones import PART, MilestoneState, is_share
from assay.lab.monitor.progress import MetricRow, Progress
from assay.pages.facts import idle
from assay.pages.page import (
    Block,
    Bullets,
    Findings,
    Folded,
    Heading,
    Line,
    Mark,
    Page,
    Section,
    Table,
    Text,
)
from assay.pages.progress.fact_tables import (
    fact_blocks,
    fact_sentences,
    mark_lines,
    moved_lines,
    program_pair,
    rule_counts,
    rule_table,
    rules_in_terminal,
    watch_blocks,
    watch_lines,
)
from assay.pages.result_tables import checkpoint_label
from assay.pages.words import (
    Words,
    difference_text,
    metric_label,
    number,
    percent,
    points,
    signed_number,
    visible,
)
from assay.runs.checkpoints import Selection


def progress_title(found: Progress, words: Words) -> str:
    """The stage and the two steps that are compared."""
    return words("progress.title", stage=found.stage, first=found.first, last=found.last)


def progress_blocks(found: Progress, words: Words) -> list[Block]:
    """The progress of one stage as a part of the run's page, which has the findings elsewhere."""
    moved = sum(row.moved for row in found.rows)
    metrics = words("progress.metrics_between", first=found.first, last=found.last, moved=moved)
    return [
        Text(about(found, words), "soft"),
        Bullets(changes(found, words)),
        Folded(metrics, metric_blocks(found, words)),
        *_after_metrics(found, words),
    ]


def progress_page(found: Progress, words: Words) -> Page:
    """The progress report of one step."""
    stopped = visible(found.status.message) if found.status.guard else ""
    gate = promotion(found.stage, found.selection, found.looks, words)
    new = [each.code in found.new for each in found.findings]
    healthy = Text(words("page.healthy"))
    blocks = [
        Text(str(found.run)),
        *([Text(stopped, "error")] if stopped else []),
        Section(
            "progress",
            progress_title(found, words),
            [
                Text(about(found, words)),
                Heading(words("progress.changes")),
                Bullets(changes(found, words)),
                Heading(words("progress.metrics")),
                *metric_blocks(found, words),
                Heading(words("page.health")),
                Findings(found.findings, new=new) if found.findings else healthy,
                *_after_metrics(found, words),
                *([Heading(words("progress.gate")), Text(gate)] if gate else []),
            ],
        ),
    ]
    return Page(words, found.run.name, blocks)


def _after_metrics(found: Progress, words: Words) -> list[Block]:
    return [
        *fact_blocks(found, words),
        *_listed("forecasts", forecasts(found, words), words),
        *_listed("milestones", milestones(found, words), words),
        *_listed("guards", guards(found, words), words),
        *watch_blocks(found, words),
        Folded(words("health_state.title"), [rule_table(found, words)]),
        *program_pair(found, words),
    ]


def _listed(title: str, lines: Sequence[Line], words: Words) -> list[Block]:
    return [Heading(words(f"progress.{title}")), Bullets(lines)] if lines else []


def progress_in_terminal(found: Progress, words: Words, *, short: bool = False) -> list[Block]:
    """Changes, findings, forecasts, milestones, guards and the gate; the table comes last, because
    it is what a small terminal may cut. The short form has no tables of facts and rules.
    """
    new = [each.code in found.new for each in found.findings]
    gate = promotion(found.stage, found.selection, found.looks, words)
    stopped = visible(found.status.message) if found.status.guard else ""
    lines = [*forecasts(found, words), *milestones(found, words), *guards(found, words), gate]
    blocks: list[Block] = [
        Heading(progress_title(found, words)),
        Text(about(found, words), "soft"),
        Bullets(changes(found, words)),
        Findings(found.findings, new=new),
        *(Text(line) for line in lines if line),
        *([Text(Mark(stopped, "error"))] if stopped else []),
    ]
    if short:
        told = bool(found.facts or found.calls)
        said = [*mark_lines(found.facts, words), *fact_sentences(found, words)] if told else []
        blocks += [Bullets(said), Text(rule_counts(found, words), "soft")]
        blocks += watch_lines(found, words)
    else:
        blocks += [*fact_blocks(found, words), *watch_blocks(found, words)]
        blocks += [*rules_in_terminal(found, words), *program_pair(found, words)]
    return [*blocks, metric_table(found, words)]


def metric_blocks(found: Progress, words: Words) -> list[Block]:
    """The table of metrics, the constant ones in a line, and how it was computed."""
    constant = [row for row in found.rows if not is_idle(row) and unchanged(row)]
    said = constant_text(constant, words)
    return [
        metric_table(found, words),
        *([Text(said, "soft")] if said else []),
        Text(words("progress.methods"), "soft"),
    ]


def metric_table(found: Progress, words: Words) -> Table:
    """The metrics at both steps, with change and trend."""
    steps = [words("progress.at_step", step=step) for step in (found.first, found.last)]
    heads = [words("progress.metric"), *steps, words("progress.change"), words("progress.trend")]
    rows = [row for row in found.rows if not is_idle(row) and not unchanged(row)]
    return Table(heads, table_rows(rows, words))


def about(found: Progress, words: Words) -> str:
    """The step of the stage, and the first step of the table."""
    place = words("progress.position", last=found.last, planned=found.planned or "?")
    if found.reported is not None and found.reported.step == found.first:
        at = found.reported.at.replace("T", " ").removesuffix("+00:00") + " UTC"
        why = words.sections["report_why"].get(found.reported.why, found.reported.why)
        since = words("progress.since_report", first=found.first, why=why, at=at)
    else:
        since = words("progress.since_step", first=found.first)
    return f"{place} {since}"


def is_idle(row: MetricRow) -> bool:
    """Whether a metric was 0 from the first step of the table to the last, and says nothing so."""
    values = [each.value for each in (row.before, row.after) if each is not None]
    return idle(row.metric, [*values, row.trend.slope if row.trend else 0.0])


def unchanged(row: MetricRow) -> bool:
    """Whether a metric is constant over all steps of the table."""
    still = row.trend is not None and row.trend.slope == row.trend.interval.low == 0
    same = row.before is not None and row.after is not None and row.before.value == row.after.value
    return still and same


def constant_text(rows: Sequence[MetricRow], words: Words) -> str:
    """Constant metrics, in one line; "" without any."""
    values = [
        f"{metric_label(row.metric, words)} {writers(row.metric)[0](row.after.value)}"
        for row in rows
        if row.after is not None
    ]
    return words("chart.constant", metrics=words.listing.join(values)) if values else ""


def table_rows(rows: Sequence[MetricRow], words: Words) -> list[list[str | Mark]]:
    """The rows of the table; metrics with the same figures throughout share one row."""
    merged: dict[tuple[str, ...], list[MetricRow]] = {}
    for row in rows:
        merged.setdefault(figures_of(row, words), []).append(row)
    found = []
    for figures, alike in merged.items():
        label = words.listing.join(metric_label(row.metric, words) for row in alike)
        found.append([Mark(label, "strong" if alike[0].moved else ""), *figures])
    return found


def figures_of(row: MetricRow, words: Words) -> tuple[str, str, str, str]:
    """A metric before and after, its change and its trend."""
    write, signed = writers(row.metric)
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


def points_of(difference: float) -> str:
    """A small difference of shares in points, in three digits."""
    return signed_number(difference * 100)


def estimate_text(found: Estimate | None, write: Callable[[float], str], words: Words) -> str:
    """A value with its interval and trials; shares without trials say so."""
    if found is None:
        return "–"
    if found.interval is None:
        unknown = write is percent
        return write(found.value) + (f" ({words('progress.no_trials')})" if unknown else "")
    limits = words.ends(found.interval, write)
    key = "progress.estimate_grouped" if found.clusters else "progress.estimate"
    size = {"trials": found.trials, "clusters": found.clusters}
    return words(key, value=write(found.value), limits=limits, **size)


def changes(found: Progress, words: Words) -> list[str]:
    """The changes since the first of the two steps, in a few lines."""
    said = []
    for rule in sorted(found.new):
        said.append(words("progress.new_finding", what=words.sections["finding"][rule]))
    for rule in sorted(found.gone):
        said.append(words("progress.gone_finding", what=words.sections["finding"][rule]))
    for each in found.milestones:
        if each.name in found.scored:
            state = words(f"milestone_state.{each.state}")
            said.append(words("progress.scored", name=each.name, state=state))
    moved = [metric_label(row.metric, words) for row in found.rows if row.moved]
    if moved:
        said.append(words("progress.moved", metrics=words.listing.join(moved)))
    said += moved_lines(found, words)
    if found.checkpoints:
        steps = words.listing.join(map(str, found.checkpoints))
        said.append(words("progress.checkpoints", steps=steps))
    return said or [words("progress.nothing_changed")]


def forecasts(found: Progress, words: Words) -> list[str]:
    """Each forecast with its interval and the assumption that it rests on."""
    budgets = {each.metric: each.budget for each in found.spending}
    said = []
    for metric, each in found.forecasts.items():
        write, _ = writers(metric)
        text = forecast_text(each, write, words)
        budget = budgets.get(metric)
        more = "" if budget is None else words("progress.of_budget", budget=write(budget))
        said.append(f"{metric_label(metric, words)}{words.colon}{text}{more}")
    for each in found.spending:
        if each.metric not in found.forecasts:
            write, _ = writers(each.metric)
            spent, budget = write(each.spent), write(each.budget)
            text = words("progress.spent", spent=spent, budget=budget)
            said.append(f"{metric_label(each.metric, words)}{words.colon}{text}")
    for metric in (m for m in found.experiment.budget if m not in budgets):
        said.append(words("progress.no_costs", metric=metric_label(metric, words)))
    return said


def forecast_text(each: Forecast, write: Callable[[float], str], words: Words) -> str:
    """A forecast in a sentence."""
    return words(
        "progress.forecast",
        at=each.at,
        value=write(each.value),
        limits=words.ends(each.interval, write),
        assumption=words(f"assumption.{each.assumption}", steps=each.steps),
    )


def milestones(found: Progress, words: Words) -> list[Line]:
    """The milestones, each with its state, what it expects and what was seen."""
    return [milestone_line(each, words) for each in found.milestones]


def milestone_line(each: MilestoneState, words: Words) -> Line:
    """One milestone."""
    spec = each.spec
    write, _ = writers(spec.metric or "")
    expected = words("milestone.step", stage=spec.stage, step=spec.step)
    if spec.metric is not None:
        side, bound = ("above", spec.above) if spec.above is not None else ("below", spec.below)
        assert bound is not None, "the spec was checked"
        key = f"milestone.{side}" if spec.step is None else f"milestone.{side}_at"
        name = metric_label(spec.metric, words)
        figures = {"metric": name, "bound": write(bound), "step": spec.step}
        expected = words(key, stage=spec.stage, **figures)
    value = ""
    if spec.evaluation is not None:
        expected, value = verdict_texts(each, words)
    elif each.value is not None:
        value = estimate_text(each.value, write, words)
    elif each.forecast is not None:
        value = forecast_text(each.forecast, write, words)
    state = Mark(words(f"milestone_state.{each.state}"), STATES.get(each.state, "plain"))
    about = words.within(visible(spec.about)) if spec.about else ""
    said = words("punctuation.stop").join(filter(None, (expected, value)))
    return state, " ", Mark(visible(each.name)), about, words.colon, said


def verdict_texts(each: MilestoneState, words: Words) -> tuple[str, str]:
    """What a milestone on a verdict expects, and the comparison that was made for it."""
    spec, found = each.spec, each.comparison
    names = {"stage": spec.stage, "step": spec.step, "against": spec.against}
    key = "equivalent" if spec.verdict == "equivalent" else "expected"
    verdict = "" if key == "equivalent" else words(f"verdict_milestone.{spec.verdict}")
    expected = words(
        f"verdict_milestone.{key}",
        verdict=verdict,
        evaluation=visible(spec.evaluation or ""),
        **names,
    )
    if found is None:
        lacks = each.state == "not recorded"
        return expected, words("verdict_milestone.not_measured") if lacks else ""
    shares = found.interval.share
    value = words(
        "verdict_milestone.value" if shares else "verdict_milestone.amount",
        difference=difference_text(found.difference, found.interval),
        ends=words.ends(found.interval, points if shares else signed_number),
        items=found.items,
        p=f"{found.p_value:.2g}",
    )
    least = found.minimum_detectable_difference
    if each.state == "undecided" and least is not None:
        write = points if shares else signed_number
        value += words("verdict_milestone.detectable", least=write(least).lstrip("+"))
    return expected, value


STATES = {"met": "better", "missed": "worse", "undecided": "undecided"}


def guards(found: Progress, words: Words) -> list[Line]:
    """The experiment's guards and how each stands."""
    fired = found.status.guard.split()
    lines: list[Line] = []
    for name, spec in found.experiment.guard.items():
        side, bound = condition(spec)
        state, kind = "armed", "plain"
        if name in fired:
            state, kind = "fired", "worse"
        elif name in found.idle_guards:
            state, kind = "idle", "undecided"
        text = words(
            f"guard.{side}",
            metric=metric_label(spec.metric, words),
            bound=writers(spec.metric)[0](bound),
            steps=spec.steps,
            stage=spec.stage or words("guard.every_stage"),
        )
        text += words("guard.idle_why") if state == "idle" else ""
        lines.append((Mark(words(f"guard.{state}"), kind), " ", Mark(name), words.colon, text))
    return lines


def promotion(stage: str, chosen: Selection | None, looks: Promotion | None, words: Words) -> str:
    """The selected `STAGE.best` with the reason; "" before the selection."""
    if chosen is None:
        return ""
    best = checkpoint_label(chosen.checkpoint, words)
    if looks is None or not chosen.start:
        return words("promotion.plain", stage=stage, best=best)
    closest = looks.looks[looks.favourite if looks.step is None else looks.step]
    figures: Mapping[str, Any] = {
        "stage": stage,
        "best": best,
        "start": checkpoint_label(chosen.start, words),
        "looks": len(looks.looks),
        "items": closest.items,
        "step": looks.favourite,
        "difference": points(closest.difference),
        "low": points(closest.interval.low),
        "high": points(closest.interval.high),
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
