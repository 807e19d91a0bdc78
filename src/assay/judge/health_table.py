"""The health rules as a Markdown table, for the manual: `python -m assay.judge.health_table`.

Made from the register and its words, so that the page cannot say anything else.
"""

from assay.judge.health_rules import LONG, RULES, WINDOW, Advice, Rule
from assay.judge.health_words import ADVICE, WHAT

KINDS = {
    "high": f"mean of the last {WINDOW} steps at least",
    "low": f"mean of the last {WINDOW} steps below",
    "grown": f"mean of the last {WINDOW} steps, over that of the first, at least",
    "shrunk": f"mean of the last {WINDOW} steps, over that of the first, below",
    "rising": f"rise over the last {LONG} steps, with a 99 % interval above 0, at least",
    "falling": f"fall over the last {LONG} steps, with a 99 % interval below 0, at least",
    "flat": f"upper 99 % limit of the rise over the last {LONG} steps below",
    "zero": f"each of the last {WINDOW} steps is",
    "broken": "values that are not finite, or skipped updates, more than",
    "budget": "spent, or the lower limit of the forecast, over the budget above",
    "dev": "its slope is above 0 while the last dev score is worse than the first",
}


def table() -> str:
    """One line for each rule."""
    head = "| rule | it says | it looks at | when | warning | error | advice |"
    lines = [_line(name, rule) for name, rule in RULES.items()]
    return "\n".join([head, "|---|---|---|---|---:|---:|---|", *lines])


def _line(name: str, rule: Rule) -> str:
    metrics = ", ".join(f"`{metric}`" for metric in rule.metrics) or "the budget's metrics"
    limits = ["–" if limit is None else f"{limit:g}" for limit in (rule.warning, rule.error)]
    advice = "; ".join(map(_advice, rule.advice))
    cells = [f"`{name}`", WHAT[name], metrics, KINDS[rule.kind], *limits, advice]
    return "| " + " | ".join(cells) + " |"


def _advice(advice: Advice) -> str:
    text = ADVICE[advice.key]
    if not advice.metric:
        return text
    side = f"> {advice.above:g}" if advice.above is not None else f"< {advice.below:g}"
    return f"where `{advice.metric}` {side}: {text}"


if __name__ == "__main__":
    print(table())
