"""Terminal tables of runs that other tools measured.

Makes rich renderables and prints nothing. Every number comes from `judge`; names from files are
made safe to show.
"""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from assay.compare.foreign_arms import ReportedSummary, Summary
from assay.data.results.bfcl_leaderboard import not_run
from assay.judge.intervals import Interval
from assay.pages.content import size_text
from assay.pages.words import Words, number, percent, score_text, visible


def score_table(summaries: list[Summary], w: Words) -> Table:
    """One line for each run and metric: score, interval, size, and what has no score."""
    titles = ("run", "benchmark", "metric", "score", "interval", "items", "abstained", "errors")
    table = Table(*(w(f"foreign.{title}") for title in titles), box=None, header_style="bold")
    table.columns[0].overflow = "fold"
    for summary in summaries:
        result, interval = summary.result, summary.interval
        reach = _reach(interval, w) if interval else "–"
        cells = [
            result.run,
            result.benchmark or "–",
            result.metric,
            score_text(summary.score, interval),
            reach,
        ]
        size = size_text(_size(summary.items, summary.repeats), summary.clusters, w)
        cells += [size, number(summary.abstained)]
        table.add_row(*(Text(visible(cell)) for cell in [*cells, number(summary.errors)]))
    return table


def leaderboard_table(found: Sequence[ReportedSummary], w: Words) -> Table:
    """One line for each model and category of a table without items."""
    titles = ("run", "category", "score", "interval", "of")
    table = Table(*(w(f"foreign.{title}") for title in titles), box=None, header_style="bold")
    table.columns[0].overflow = "fold"
    for each in found:
        score, interval = each.reported.score, each.interval
        shown = w("foreign.not_run") if score is None else percent(score)
        reach = _reach(interval, w) if interval else "–"
        cells = [each.reported.run, each.reported.column, shown, reach]
        table.add_row(*(Text(visible(c)) for c in [*cells, number(each.reported.items)]))
    return table


def leaderboard_remarks(found: Sequence[ReportedSummary], w: Words) -> list[str]:
    """Averages that the file has and that are no scores."""
    traps = not_run(each.reported for each in found)
    return [
        w("foreign.over_absent", run=visible(run), columns=w.listing.join(columns))
        for run, columns in traps.items()
    ]


def score_remarks(summaries: list[Summary], w: Words) -> list[str]:
    """Notes on the runs."""
    stopped = {s.result.run: s.result.unfinished for s in summaries if s.result.unfinished}
    missing = {
        s.result.run: w.listing.join(s.result.left_out) for s in summaries if s.result.left_out
    }
    said = [w("foreign.unfinished", run=visible(n), why=visible(y)) for n, y in stopped.items()]
    said += [w("foreign.left_out", run=visible(n), what=visible(m)) for n, m in missing.items()]
    worded = {(s.result.run, m): why for s in summaries for m, why in s.result.not_numbers.items()}
    said += [
        w("foreign.not_numbers", run=visible(n), metric=visible(m), why=visible(why))
        for (n, m), why in worded.items()
    ]
    return said + [_missing(s, w) for s in summaries if s.abstained and s.possible]


def _missing(summary: Summary, w: Words) -> str:
    """The bounds that answers without a score leave for the score."""
    low, high = map(percent, summary.possible or ())
    run = visible(summary.result.run)
    return w("foreign.missing", run=run, count=summary.abstained, low=low, high=high)


def _reach(interval: Interval, w: Words) -> str:
    low, high = (score_text(end, interval) for end in (interval.low, interval.high))
    return w("foreign.reach", low=low, high=high)


def _size(items: int, repeats: int) -> str:
    return f"{items} × {repeats}" if repeats > 1 else str(items)
