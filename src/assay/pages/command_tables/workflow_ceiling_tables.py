"""The table of `assay ceiling` on a file of workflows, for the terminal and as Markdown.

Measures and judges nothing.
"""

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

from assay.judge.intervals import Estimate

if TYPE_CHECKING:  # measuring loads torch
    from assay.lab.ceiling.fixed_workflows_measured import WorkflowCeiling, WorkflowLine

HEADS = (
    "workflow",
    "problems",
    "solved",
    "95% interval",
    "to the best",
    "questions",
    "tokens",
    "cost",
    "other outcomes",
)
USUAL = ("solved", "wrong")


def workflows_shown(found: "WorkflowCeiling") -> list[RenderableType]:
    """The table and what belongs to it, for the terminal."""
    table = Table(title=_title(found), title_justify="left", title_style="bold", box=None)
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="right" if place > 1 else "left", header_style="dim")
    for line in found.lines:
        table.add_row(*_cells(line), style="bold" if line.gap is None else None)
    return [table, "", *_sentences(found)]


def workflows_markdown(found: "WorkflowCeiling") -> str:
    """The same as Markdown."""
    rule = ["---", "---", *["---:"] * (len(HEADS) - 2)]
    rows = [HEADS, rule, *(_cells(line) for line in found.lines)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    said = "\n".join(f"- {sentence}" for sentence in _sentences(found))
    return f"{_title(found)}\n\n{table}\n\n{said}\n"


def _title(found: "WorkflowCeiling") -> str:
    times = f", {found.repeats} times each" if found.repeats > 1 else ""
    return f"{found.benchmark}: {found.items} problems{times}, executor {found.executor}"


def _cells(line: "WorkflowLine") -> list[str]:
    """The cells of a line, as HEADS."""
    gap = "best"
    if line.gap is not None:
        low, high = line.gap.interval.low * 100, line.gap.interval.high * 100
        gap = f"{line.gap.difference * 100:+.1f} ({low:+.1f} to {high:+.1f})"
    others = [f"{count} {name}" for name, count in line.outcomes.items() if name not in USUAL]
    return [
        line.workflow,
        line.problem_type,
        f"{line.score.value:.1%}",
        _interval(line.score),
        gap,
        "" if line.questions is None else f"{line.questions:.1f}",
        "" if line.tokens is None else f"{line.tokens:.0f}",
        _cost(line),
        ", ".join(others),
    ]


def _cost(line: "WorkflowLine") -> str:
    """The mean cost of a problem; blank for a choice."""
    if line.questions is None:
        return ""
    return "N/A" if line.cost is None else f"{line.cost:.3g}"


def _interval(estimate: Estimate) -> str:
    if estimate.interval is None:
        return ""
    return f"{estimate.interval.low:.1%} to {estimate.interval.high:.1%}"


def _sentences(found: "WorkflowCeiling") -> list[str]:
    """What the choices are, and what was asked."""
    types = ", ".join(f"{kind}: {name}" for kind, name in found.best_by_type.items())
    sentences = [
        f"best of all: {found.best}; by type: {types}",
        "best per type and best per problem are chosen on these problems: they flatter",
        "in hindsight: the best workflow of each problem and repeat, an upper bound that luck "
        "raises",
        "questions, tokens and cost: of a problem, mean",
    ]
    if found.repeats > 1:
        sentences.insert(2, "best per problem: chosen by the other repeats of the problem")
    return [*sentences, f"{found.cpu_seconds:.0f} CPU-seconds"]
