"""The health rules as a Markdown table: `python -m tests.docs.health_table` prints it.

Made from the register and its words, so that the page cannot say anything else.
"""

from assay.judge.health_rules import LONG, RULES, WHAT, WINDOW, Rule

KINDS = {
    "high": f"mean of {WINDOW} steps at least",
    "low": f"mean of {WINDOW} steps below",
    "grown": f"mean of {WINDOW} steps, over the first, at least",
    "shrunk": f"mean of {WINDOW} steps, over the first, below",
    "rising": f"rise over {LONG} steps, 99 % interval above 0, at least",
    "falling": f"fall over {LONG} steps, 99 % interval below 0, at least",
    "flat": f"upper 99 % limit of the rise over {LONG} steps below",
    "zero": f"each of {WINDOW} steps is",
    "broken": "values not finite, or skipped updates, more than",
    "budget": "spent, or the lower limit of the forecast, over the budget, above",
    "dev": "rises while the last dev score is worse than the first",
}


def table() -> str:
    """One line for each rule."""
    head = "| rule | finding | metric | condition | warning | error |"
    lines = [_line(name, rule) for name, rule in RULES.items()]
    return "\n".join([head, "|---|---|---|---|---:|---:|", *lines])


def _line(name: str, rule: Rule) -> str:
    metrics = ", ".join(f"`{metric}`" for metric in rule.metrics) or "the budget's metrics"
    limits = ["–" if limit is None else f"{limit:g}" for limit in (rule.warning, rule.error)]
    cells = [f"`{name}`", WHAT[name], metrics, KINDS[rule.kind], *limits]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(table())
