"""Reads a file of reported results in any of its formats, chosen by the file's ending."""

from collections.abc import Callable
from pathlib import Path

from assay.data.reported.from_csv import read_csv
from assay.data.reported.from_markdown import read_markdown
from assay.data.reported.from_toml import read_toml
from assay.data.reported.reported_errors import NothingReported, ReportedError
from assay.data.reported.reported_record import Reported
from assay.errors import nearest

READERS: dict[str, Callable[[str, Path], Reported]] = {
    ".toml": read_toml,
    ".csv": read_csv,
    ".md": read_markdown,
    ".markdown": read_markdown,
}


def read_reported(path: str | Path, items: int | None = None) -> Reported:
    """The record of a TOML, CSV or Markdown file; `items` are those of scores without a number.

    Raises ReportedError for a file that is missing, not text or not of its format, NothingReported
    where no result is recognised in it.
    """
    file = Path(path)
    if not file.is_file():
        raise ReportedError("no such file", file=file)
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        fix = nearest(file.suffix, READERS)
        raise ReportedError(f"reads no {file.suffix or 'file without ending'}", file=file, fix=fix)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ReportedError("not UTF-8 text", file=file, fix="save the file as UTF-8") from None
    found = reader(text, file)
    if not results(found):
        fix = "docs/audit.md shows what is recognised; or write the facts down as TOML"
        raise NothingReported("no recognisable results", file=file, fix=fix)
    if items is not None and found.scoring.items is None:
        scoring = found.scoring.model_copy(update={"items": items})
        found = found.model_copy(update={"scoring": scoring})
    return found


def results(found: Reported) -> int:
    """Number of results in a record: scores, readings, differences and marks."""
    counts = [{**run.right, **run.scores} for run in found.runs]
    scores = sum(len(values) for cells in counts for values in cells.values())
    readings = sum(max(len(m.values), len(m.counts)) for m in found.metrics)
    differences = sum(bool(comparison.points) for comparison in found.comparisons)
    return scores + readings + differences + len(found.ratings)
