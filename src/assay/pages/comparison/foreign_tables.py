"""Tables of runs that other tools measured. Every number comes from `judge`."""

from collections.abc import Sequence

from assay.compare.foreign_arms import ReportedSummary, Summary
from assay.data.results.bfcl_leaderboard import not_run
from assay.judge.intervals import Interval
from assay.pages.content import size_text
from assay.pages.page import Block, Table, Text
from assay.pages.words import Words, number, percent, score_text


def score_blocks(summaries: Sequence[Summary], w: Words) -> list[Block]:
    """One line for each run and metric: score, interval, size, and what has no score; then notes on
    the runs."""
    titles = ("run", "benchmark", "metric", "score", "interval", "items", "abstained", "errors")
    rows = []
    for each in summaries:
        result, size = each.result, f"{each.items} × {each.repeats}"
        names = [result.run, result.benchmark or "–", result.metric]
        score = [score_text(each.score, each.interval), _reach(each.interval, w)]
        size = size_text(size if each.repeats > 1 else str(each.items), each.clusters, w)
        counts = [size, number(each.abstained), number(each.errors)]
        rows.append([*names, *score, *counts])
    table = Table([w(f"foreign.{title}") for title in titles], rows)
    return [table, *map(Text, _score_remarks(summaries, w))]


def leaderboard_blocks(found: Sequence[ReportedSummary], w: Words) -> list[Block]:
    """One line for each model and category of a table without items; then the averages that the
    file has and that are no scores."""
    titles = ("run", "category", "score", "interval", "of")
    rows = []
    for each in found:
        score = each.reported.score
        shown = w("foreign.not_run") if score is None else percent(score)
        names = [each.reported.run, each.reported.column, shown]
        rows.append([*names, _reach(each.interval, w), number(each.reported.items)])
    traps = not_run(each.reported for each in found)
    remarks = [
        Text(w("foreign.over_absent", run=run, columns=w.listing.join(columns)))
        for run, columns in traps.items()
    ]
    return [Table([w(f"foreign.{title}") for title in titles], rows), *remarks]


def _score_remarks(summaries: Sequence[Summary], w: Words) -> list[str]:
    """Notes on the runs."""
    results = [each.result for each in summaries]
    stopped = {r.run: r.unfinished for r in results if r.unfinished}
    missing = {r.run: w.listing.join(r.left_out) for r in results if r.left_out}
    worded = {(r.run, metric): why for r in results for metric, why in r.not_numbers.items()}
    lines = [w("foreign.unfinished", run=run, why=why) for run, why in stopped.items()]
    lines += [w("foreign.left_out", run=run, what=what) for run, what in missing.items()]
    lines += [
        w("foreign.not_numbers", run=run, metric=metric, why=why)
        for (run, metric), why in worded.items()
    ]
    for each in summaries:
        if each.abstained and each.possible:
            low, high = map(percent, each.possible)
            ends = {"count": each.abstained, "low": low, "high": high}
            lines.append(w("foreign.missing", run=each.result.run, **ends))
    return lines


def _reach(interval: Interval | None, w: Words) -> str:
    if interval is None:
        return "–"
    low, high = (score_text(end, interval) for end in (interval.low, interval.high))
    return w("foreign.reach", low=low, high=high)
