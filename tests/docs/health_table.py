"""The health rules as a Markdown table: `python -m tests.docs.health_table` prints it.

Made from the register, so that the page cannot say anything else.
"""

import textwrap

from assay.judge.health_rules import IDLE, LONG, RULES, WINDOW, Rule

NOTE = (
    f"Means are over the last {WINDOW} steps; rises and falls over the last {LONG}, with a 99 % "
    "interval that excludes 0. A part of an algorithm is idle where it did nothing in each of the "
    f"last {IDLE} steps (with W above 0) or of a shorter stage; never: in every step of the stage. "
    "Without a limit, and where W was always 0, it is a note."
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
    "idle": "idle, ≤",
    "never": "never, ≤",
    "first": "at step 1 ≥",
    "turned": "rises after its lowest value",
    "peak": "the last dev score is shown worse than the best before",
    "start": "no evaluation shows a grpo stage better than its start",
}


def table() -> str:
    """What the conditions are about, and one line for each rule."""
    note = [*textwrap.wrap(NOTE, 105), ""]
    head = "| rule | metric | condition | note | warning | error |"
    lines = [_line(name, rule) for name, rule in RULES.items()]
    return "\n".join([*note, head, "|---|---|---|---:|---:|---:|", *lines])


def _line(name: str, rule: Rule) -> str:
    metrics = ", ".join(f"`{metric}`" for metric in rule.metrics) or (
        "the budget's" if rule.kind == "budget" else "scores"
    )
    limits = [
        "–" if limit is None else f"{limit:g}" for limit in (rule.advise, rule.warning, rule.error)
    ]
    kind = f"{KINDS[rule.kind]}; W = `{rule.where}`" if rule.where else KINDS[rule.kind]
    cells = [f"`{name}`", metrics, kind, *limits]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(table())
