"""The health rules as a Markdown table: `python -m tests.docs.health_table` prints it.

Made from the register, so that the page cannot say anything else.
"""

import textwrap

from assay.judge.health_rules import LONG, RULES, WINDOW, Rule

NOTE = (
    f"Means are over the last {WINDOW} steps; rises and falls over the last {LONG}, with a 99 % "
    "interval that excludes 0."
)
KINDS = {
    "high": "mean ≥",
    "low": "mean <",
    "grown": "mean, over the first ≥",
    "shrunk": "mean, over the first <",
    "rising": "rise ≥",
    "falling": "fall ≥",
    "flat": "upper limit of the rise <",
    "zero": "every step =",
    "broken": "steps not finite or skipped >",
    "budget": "spent or forecast, over the budget >",
    "dev": "rises while dev scores fall",
}


def table() -> str:
    """What the conditions are about, and one line for each rule."""
    note = [*textwrap.wrap(NOTE, 105), ""]
    head = "| rule | metric | condition | warning | error |"
    lines = [_line(name, rule) for name, rule in RULES.items()]
    return "\n".join([*note, head, "|---|---|---|---:|---:|", *lines])


def _line(name: str, rule: Rule) -> str:
    metrics = ", ".join(f"`{metric}`" for metric in rule.metrics) or "the budget's metrics"
    limits = ["–" if limit is None else f"{limit:g}" for limit in (rule.warning, rule.error)]
    cells = [f"`{name}`", metrics, KINDS[rule.kind], *limits]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(table())
