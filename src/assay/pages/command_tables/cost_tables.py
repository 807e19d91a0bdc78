"""The page of `assay costs`: what helper models cost, by what, and a forecast.

Costs that are not known are N/A. Sums are made in `lab.monitor.run_costs`.
"""

from collections.abc import Sequence

from assay.judge.trends import FORETELLING
from assay.lab.monitor.run_costs import CostLine, RunCosts
from assay.pages.page import Block, Column, Mark, Row, Table, Text
from assay.pages.words import Words, flat

NOT_KNOWN = "N/A"
MOST_ROWS = 20
"""Of one table."""
HEADS = ("calls", "remembered", "failed", "read", "wrote", "cost", "besides", "mean", "seconds")


def costs_page(found: RunCosts, words: Words) -> list[Block]:
    """The tables, then means and forecast."""
    blocks: list[Block] = [Text(words("costs.lost", lost=found.lost))] if found.lost else []
    if found.total is None:
        return blocks or [Text(words("costs.nothing", run=str(found.run)))]
    parts = (
        ("models", found.models),
        ("stages", found.stages),
        ("operators", found.operators),
        ("steps", found.steps[-MOST_ROWS:]),
        ("problems", found.problems[:MOST_ROWS]),
    )
    whole = {"steps": len(found.steps), "problems": len(found.problems)}
    for name, lines in parts:
        if lines:
            total = found.total if name == "models" else None
            blocks.append(lines_table(words(f"costs.{name}"), lines, total, words))
        if whole.get(name, 0) > len(lines):
            blocks.append(Text(words("costs.shown", shown=len(lines), whole=whole[name]), "soft"))
    return [*blocks, *map(Text, sentences(found, words))]


def money(amount: float | None) -> str:
    """An amount with six decimals, without those that are 0 at its end; N/A where not known."""
    if amount is None:
        return NOT_KNOWN
    whole, _, rest = f"{amount:.6f}".partition(".")
    return f"{whole}.{rest.rstrip('0').ljust(2, '0')}"


def sentences(found: RunCosts, words: Words) -> list[str]:
    """What a call, a problem and a step cost, what is uncertain, and the forecast."""
    said = [
        words(
            "costs.means",
            call=money(found.per_call),
            problem=money(found.per_problem),
            step=money(found.per_step),
        )
    ]
    total = found.total
    if total is not None and total.uncertain:
        said.append(words("costs.uncertain", most=money(total.uncertain)))
    if total is not None and total.cost is None:
        said.append(words("costs.not_known"))
    return [*said, *_forecast(found, words)]


def _forecast(found: RunCosts, words: Words) -> list[str]:
    ahead = found.ahead
    if ahead is None:
        return []
    each = ahead.forecast
    if each is None:
        reason = "no_forecast" if ahead.recorded < FORETELLING else "no_forecast_price"
        return [words(f"costs.{reason}", steps=ahead.recorded, fewest=FORETELLING)]
    said = words(
        "costs.forecast",
        value=money(each.value),
        low=money(each.interval.low),
        high=money(each.interval.high),
        stage=flat(ahead.stage),
        at=each.at,
        assumption=words(f"assumption.{each.assumption}", steps=each.steps),
    )
    left_out = words("costs.left_out", names=", ".join(map(flat, ahead.missing)))
    return [said, left_out] if ahead.missing else [said]


def lines_table(
    title: str, lines: Sequence[CostLine], total: CostLine | None, words: Words
) -> Table:
    """Lines below one another with their total."""
    columns = ["", *(Column(words(f"costs.{head}"), right=True) for head in HEADS)]
    rows: list[Row] = [(Mark(flat(line.name), ""), *_cells(line)) for line in lines]
    if total is not None and len(lines) > 1:
        rows.append(tuple(map(Mark, (words("costs.total"), *_cells(total)))))
    return Table(columns, rows, title)


def _cells(line: CostLine) -> list[str]:
    """The cells of a line, as HEADS."""
    counts = (line.calls, line.remembered, line.failed, line.prompt_tokens, line.completion_tokens)
    besides = money(line.uncertain) if line.uncertain else ""
    return [*map(str, counts), money(line.cost), besides, money(line.mean), f"{line.seconds:.2f}"]
