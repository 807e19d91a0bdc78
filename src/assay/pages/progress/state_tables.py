"""The state of every health rule, what to watch next, and a program before and after, in words.

Numbers come from `judge.health_checks`, `lab.monitor.watch_list` and `lab.monitor.sample_facts`.
Texts of models are cut to a length that a page can hold.
"""

from collections import Counter
from collections.abc import Callable

from assay.judge.health_checks import RuleState
from assay.judge.health_rules import LONG, RULES, WINDOW, Rule
from assay.judge.templates import filled
from assay.lab.monitor.milestones import PART, is_share
from assay.lab.monitor.progress import Progress
from assay.lab.monitor.sample_facts import SampleText
from assay.lab.monitor.watch_list import Watched
from assay.pages.page import Answer, Block, Heading, Mark, Question, Table, Text
from assay.pages.words import Words, number, percent, points, visible

Write = Callable[[float], str]
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
    metric = name_of(each.metric or (rule.metrics[0] if rule.metrics else ""), words)
    figures = {"metric": metric, "window": WINDOW, "long": LONG, "limits": limits(rule, words)}
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
    figures = {**each.reading.figures, "metric": name_of(each.reading.metric, words)}
    return filled(words.sections["evidence"][each.reading.evidence], figures)


def writer(kind: str, metric: str) -> Write:
    """How the figure of a rule of this kind is written."""
    if kind in COMPARED:
        return lambda value: f"×{value:.2g}"
    if kind == "budget":
        return lambda value: f"{value:.0%}"
    return percent if is_share(metric) or metric.startswith(PART) else number


def name_of(metric: str, words: Words) -> str:
    """The name of a metric in the reader's language."""
    return visible(words.sections["metric"].get(metric, metric))


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
    label = words(measure, metric=name_of(each.metric, words)) if each.metric else "–"
    if kind == "budget":
        label = words("watching.budget", metric=name_of(each.metric, words))
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
        ends = words(
            "table.interval_text", low=write(ahead.interval.low), high=write(ahead.interval.high)
        )
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
