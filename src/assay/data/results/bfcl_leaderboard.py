"""BFCL's tables of scores (`data_multi_turn.csv`, `data_live.csv`, `data_non_live.csv`,
`data_agentic.csv`, `data_overall.csv`): one row for each model, scores without their items.

A category that was not run is "N/A" there, and stays without a score here. An average over some of
those is a trap: BFCL counts them as 0 in it, so that after one multi-turn category "Multi Turn
Overall Acc" is a quarter of that category. Such an average has no score here either. Columns of
prices, seconds and prompt formats are not read.

Source: `generate_leaderboard_csv` and `column_headers` of bfcl-eval (BFCL v4).
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.data.raw_record import DataError
from assay.data.results.foreign_result import read_text

NOT_RUN = "N/A"
MODEL = "Model"
MARK = frozenset({"Rank", MODEL})
"""Columns by which such a table is known, together with one that has a score."""

ITEMS: Mapping[str, int] = {
    "Python Simple AST": 400,
    "Java Simple AST": 100,
    "JavaScript Simple AST": 50,
    "Multiple AST": 200,
    "Parallel AST": 200,
    "Parallel Multiple AST": 200,
    "Base": 200,
    "Miss Func": 200,
    "Miss Param": 200,
    "Long Context": 200,
    "Web Search Base": 100,
    "Web Search No Snippet": 100,
    "Memory KV": 155,
    "Memory Vector": 155,
    "Memory Recursive Summarization": 155,
    "Non-Live Multiple AST": 200,
    "Non-Live Parallel AST": 200,
    "Non-Live Parallel Multiple AST": 200,
    "Live Simple AST": 258,
    "Live Multiple AST": 1053,
    "Live Parallel AST": 16,
    "Live Parallel Multiple AST": 24,
    "Multi Turn Base": 200,
    "Multi Turn Miss Func": 200,
    "Multi Turn Miss Param": 200,
    "Multi Turn Long Context": 200,
    "Irrelevance Detection": 240,
    "Relevance Detection": 16,
}
"""Entries of the categories that have one column each."""
LIVE_ITEMS: Mapping[str, int] = {
    "Python Simple AST": 258,
    "Python Multiple AST": 1053,
    "Python Parallel AST": 16,
    "Python Parallel Multiple AST": 24,
    "Irrelevance Detection": 884,
    "Relevance Detection": 16,
}
"""The same in `data_live.csv`, which has other columns."""
AVERAGES = {
    "Non-Live Overall Acc": ("Python Simple", "Java Simple", "JavaScript", "Multiple", "Parallel"),
    "Live Overall Acc": ("Python",),
    "Multi Turn Overall Acc": ("Base", "Miss", "Long"),
    "Agentic Overall Acc": ("Web Search", "Memory"),
    "Overall Acc": ("Non-Live", "Live ", "Multi Turn", "Web Search", "Memory", "Irrelevance"),
    "Live Acc": ("Live ",),
    "Multi Turn Acc": ("Multi Turn",),
}
"""Averages in which BFCL takes what was not run for 0, and how the columns behind them begin."""
SUMMARIES = frozenset(
    {"AST Summary", "Simple AST", "Non-Live AST Acc", "Non-Live Simple AST"}
    | {"Web Search Summary", "Memory Summary", "Web Search Acc", "Memory Acc"}
)
"""Averages that BFCL leaves out itself where a category was not run."""


@dataclass(frozen=True, slots=True)
class Reported:
    """One model's score in one column."""

    run: str
    column: str
    score: float | None
    """From 0 to 1; None for what was not run, and for averages over that."""
    items: int | None
    """Entries of the category, where the score is a share of so many; None for averages."""
    over_absent: bool = False
    """Whether the file has an average here that counts what was not run as 0."""


def is_leaderboard(path: Path) -> bool:
    """Whether a file is one of these tables."""
    if path.suffix != ".csv" or not path.is_file():
        return False
    first = next(csv.reader(io.StringIO(read_text(path).partition("\n")[0])), [])
    return set(first) >= MARK and any(name in AVERAGES for name in first)


def read_leaderboard(path: Path) -> list[Reported]:
    """Every score in the table, model by model. Raises DataError with the line."""
    rows = list(csv.reader(io.StringIO(read_text(path), newline="")))
    header, found = rows[0], []
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            problem = f"has {len(row)} cells, the first line {len(header)}"
            raise DataError(problem, file=path, line=line, fix="quote names with commas")
        found += _row(path, line, dict(zip(header, row, strict=True)))
    if not found:
        raise DataError("holds no models", file=path)
    return found


def _row(path: Path, line: int, cells: Mapping[str, str]) -> list[Reported]:
    sizes = LIVE_ITEMS if "Live Overall Acc" in cells else ITEMS
    if "Overall Acc" in cells:
        # There both are of several categories.
        sizes = {k: v for k, v in sizes.items() if not k.endswith("relevance Detection")}
    names = [name for name in cells if _is_score(name)]
    scores = {name: _share(path, line, name, cells[name]) for name in names}
    found = []
    for name in names:
        parts = [p for p in names if p != name and p.startswith(AVERAGES.get(name, ()))]
        trap = scores[name] is not None and any(scores[p] is None for p in parts)
        score = None if trap else scores[name]
        found.append(Reported(cells[MODEL], name, score, _items(score, sizes.get(name)), trap))
    return found


def _is_score(name: str) -> bool:
    known = (ITEMS, LIVE_ITEMS, AVERAGES, SUMMARIES)
    return any(name in names for names in known)


def _share(path: Path, line: int, name: str, text: str) -> float | None:
    if text == NOT_RUN:
        return None
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (text.endswith("%") and 0 <= share <= 1):
        problem = f"{text!r} is neither a percentage nor {NOT_RUN}"
        raise DataError(problem, file=path, line=line, field=name)
    return share


def _items(score: float | None, entries: int | None) -> int | None:
    """The entries of a category, unless the score cannot be a share of so many."""
    if score is None or entries is None:
        return None
    # Two decimals of a percentage are written.
    return entries if abs(score * entries - round(score * entries)) <= entries * 0.5e-4 else None


def not_run(found: Iterable[Reported]) -> dict[str, list[str]]:
    """The averages by model that the file has and that count what was not run as 0."""
    traps: dict[str, list[str]] = {}
    for each in found:
        if each.over_absent:
            traps.setdefault(each.run, []).append(each.column)
    return traps
