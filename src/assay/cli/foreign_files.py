"""What `assay compare` and `assay report` do with files that other tools wrote."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.cli.output import Outcome

if TYPE_CHECKING:  # records load pyarrow, which help must do without
    from assay.compare.foreign_results import Side, Summary
    from assay.compare.table import Table
    from assay.report.words import Words


def any_file(names: Sequence[str]) -> bool:
    """Whether one of the names means a file of results."""
    from assay.compare.foreign_results import is_file

    return any(is_file(name) for name in names)


def compare_files(
    root: Path,
    names: Sequence[str],
    control: str | None,
    on: str | None,
    allow: Sequence[str],
    metric: str | None,
    format: str | None,
    cluster: str | None,
) -> "Table":
    """Runs in files beside each other and beside runs of the lab."""
    from assay.compare.foreign_compare import compare_named
    from assay.compare.foreign_results import is_file, own_side, read_sides
    from assay.compare.seed_arms import arm_named

    def read(name: str) -> "list[Side]":
        if is_file(name):
            return read_sides(name, format, metric, cluster)
        return [own_side(arm_named(root, name), on)]

    return compare_named(names, read, control, allow)


def report_file(
    name: str, lang: str, metric: str | None, format: str | None, cluster: str | None
) -> Outcome:
    """The scores of every run in a file."""
    from assay.compare.foreign_results import read_all_metrics, summaries
    from assay.data.results.bfcl_leaderboard import is_leaderboard
    from assay.report.foreign_tables import score_remarks, score_table
    from assay.report.words import words

    w = words(lang)
    if format is None and is_leaderboard(Path(name)):
        return _leaderboard(Path(name), w)
    found = summaries(read_all_metrics(name, format, metric, cluster))
    result = {"file": name, "runs": [summary_result(summary) for summary in found]}
    return Outcome(result, [score_table(found, w), *score_remarks(found, w)])


def _leaderboard(path: Path, w: "Words") -> Outcome:
    """The scores of every model in a table of BFCL, which has no items."""
    from assay.compare.foreign_results import read_leaderboard_scores
    from assay.report.foreign_tables import leaderboard_remarks, leaderboard_table

    found = read_leaderboard_scores(path)
    result = {"file": str(path), "scores": [asdict(each) for each in found]}
    return Outcome(result, [leaderboard_table(found, w), *leaderboard_remarks(found, w)])


def summary_result(summary: "Summary") -> dict[str, Any]:
    """One run by one metric as plain values."""
    side = summary.side
    return {
        "run": side.name,
        "format": side.format,
        "benchmark": side.benchmark,
        "metric": side.metric,
        "checker": side.checker,
        "score": summary.score,
        "interval": None if summary.interval is None else asdict(summary.interval),
        "items": len(side.items),
        "clusters": summary.clusters,
        "repeats": side.repeats,
        "abstained": summary.abstained,
        "possible": summary.possible,
        "errors": side.errors,
        "left_out": side.left_out,
        "unfinished": side.unfinished,
        "settings_known": side.configured,
    }
