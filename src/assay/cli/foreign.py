"""What `assay compare` and `assay report` do with files that other tools wrote."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.cli.output import Outcome
from assay.errors import InputError

if TYPE_CHECKING:  # records load pyarrow, which help must do without
    from assay.lab.foreign import Side, Summary
    from assay.lab.foreign_compare import Judged


def any_file(names: Sequence[str]) -> bool:
    """Whether one of the names means a file of results."""
    from assay.lab.foreign import is_file

    return any(is_file(name) for name in names)


def compare_files(
    root: Path,
    names: Sequence[str],
    on: str | None,
    control: str | None,
    allow: Sequence[str],
    metric: str | None,
    format: str | None,
) -> Outcome:
    """Runs in files beside each other and beside runs of the lab.

    A file that cannot be read is named and the others are still compared, unless it has the control
    or leaves fewer than two.
    """
    from assay.lab.foreign import named_apart
    from assay.lab.foreign_compare import compare_sides
    from assay.report.foreign import compared_remarks, compared_table
    from assay.report.words import words

    sides, files, problems = [], [], []
    for name in names:
        try:
            found = _sides(root, name, on, metric, format)
        except InputError as error:
            if name == names[0] and control is None:
                raise
            problems.append(error)
            continue
        sides += found
        files += [name] * len(found)
    if problems and len(sides) < 2:
        raise problems[0]
    judged = compare_sides(named_apart(sides, files), control, allow)
    w = words()
    return Outcome(
        judged_result(judged),
        [compared_table(judged, w), *compared_remarks(judged, w)],
        findings=[_finding(problem) for problem in problems],
        exit_code=problems[0].exit_code if problems else 0,
    )


def report_file(name: str, lang: str, metric: str | None, format: str | None) -> Outcome:
    """The scores of every run in a file."""
    from assay.lab.foreign import read_all_metrics, summaries
    from assay.report.foreign import score_remarks, score_table
    from assay.report.words import words

    w = words(lang)
    found = summaries(read_all_metrics(name, format, metric))
    result = {"file": name, "runs": [summary_result(summary) for summary in found]}
    return Outcome(result, [score_table(found, w), *score_remarks(found, w)])


def judged_result(judged: "Judged") -> dict[str, Any]:
    """A comparison as plain values, with what could not be checked."""
    from assay.cli.results import table_result

    return {
        **table_result(judged.table),
        "settings_unknown": judged.unknown,
        "checker_unknown": judged.unchecked,
    }


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
        "repeats": side.repeats,
        "abstained": summary.abstained,
        "errors": side.errors,
        "unfinished": side.unfinished,
        "settings_known": side.configured,
    }


def _sides(
    root: Path, name: str, on: str | None, metric: str | None, format: str | None
) -> "list[Side]":
    from assay.cli.compare import arm
    from assay.lab.foreign import is_file, own_side, read_sides

    return read_sides(name, format, metric) if is_file(name) else [own_side(arm(root, name), on)]


def _finding(problem: InputError) -> dict[str, str]:
    return {"severity": "error", "what": str(problem), "evidence": "", "fix": ""}
