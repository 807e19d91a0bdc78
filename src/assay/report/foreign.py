"""Terminal tables of runs that other tools measured. Names come from files and are made visible.

Makes rich renderables and prints nothing; every figure is the judge's.
"""

from rich.table import Table
from rich.text import Text

from assay.lab.compare import Line, Pairing
from assay.lab.foreign import Summary
from assay.lab.foreign_compare import Judged
from assay.report.terminal import STYLES
from assay.report.words import Words, number, percent, visible

SHOWN_ITEMS = 5
"""Ids named of the items that changed; `--json` has them all."""


def score_table(summaries: list[Summary], w: Words) -> Table:
    """One line for each run and metric: score, interval, size, and what has no score."""
    titles = ("run", "benchmark", "metric", "score", "interval", "items", "abstained", "errors")
    table = Table(*(w(f"foreign.{title}") for title in titles), box=None, header_style="bold")
    for summary in summaries:
        side = summary.side
        interval = summary.interval
        reach = _reach(interval.low, interval.high, w) if interval else "–"
        cells = [side.name, side.benchmark or "–", side.metric, percent(summary.score), reach]
        cells += [_size(len(side.items), side.repeats), number(summary.abstained)]
        table.add_row(*(Text(visible(cell)) for cell in [*cells, number(side.errors)]))
    return table


def score_remarks(summaries: list[Summary], w: Words) -> list[str]:
    """What a reader must know about the runs themselves."""
    stopped = {s.side.name: s.side.unfinished for s in summaries if s.side.unfinished}
    return [w("foreign.unfinished", run=visible(n), why=visible(y)) for n, y in stopped.items()]


def compared_table(judged: Judged, w: Words) -> Table:
    """Scores of all sides, and what became of each against the control."""
    first = judged.table.evaluation
    title = visible(f"{first.benchmark}: {first.name}")
    titles = [w(f"foreign.{key}") for key in ("run", "score", "interval", "items", "against")]
    table = Table(*titles, title=Text(title), box=None, header_style="bold")
    for line in judged.table.lines:
        size = _size(line.items, line.repeats)
        reach = _reach(line.interval.low, line.interval.high, w)
        cells = [Text(visible(line.name)), Text(percent(line.score)), Text(reach), Text(size)]
        table.add_row(*cells, _against(line, w))
    return table


def compared_remarks(judged: Judged, w: Words) -> list[str]:
    """Flips and agreement by run, differing settings, and what could not be checked."""
    said = [_changes(line.to_control, w) for line in judged.table.lines if line.to_control]
    said += [
        visible(f"{d.kind}: {d.path}: {d.control} -> {d.other}") for d in judged.table.differences
    ]
    for key, names in (("unknown", judged.unknown), ("unchecked", judged.unchecked)):
        if names:
            said.append(w(f"foreign.{key}", runs=visible(", ".join(names))))
    return said


def _against(line: Line, w: Words) -> Text:
    if line.to_control is None:
        return Text(w("foreign.control"))
    verdict = line.to_control.comparison.verdict
    return Text(visible(line.to_control.explanation(w.verdicts)), STYLES.get(verdict, ""))


def _changes(pairing: Pairing, w: Words) -> str:
    flips = pairing.flips
    known = pairing.agreement is not None
    return w(
        "foreign.changes",
        run=visible(pairing.other),
        gained=_items(flips.gained),
        lost=_items(flips.lost),
        unchanged=len(flips.unchanged),
        agreement=w(
            "foreign.agreement" if known else "foreign.no_outputs", share=percent(pairing.agreement)
        ),
    )


def _items(ids: tuple[str, ...]) -> str:
    if not ids:
        return "0"
    more = ", …" if len(ids) > SHOWN_ITEMS else ""
    return visible(f"{len(ids)} ({', '.join(ids[:SHOWN_ITEMS])}{more})")


def _reach(low: float, high: float, w: Words) -> str:
    return w("foreign.reach", low=percent(low), high=percent(high))


def _size(items: int, repeats: int) -> str:
    return f"{items} × {repeats}" if repeats > 1 else str(items)
