"""Reads BFCL's results: leaderboard tables without items, and score files with their result files.

In a table of categories (`data_multi_turn.csv`, `data_live.csv`, `data_non_live.csv`) a category
that was not run is "N/A". BFCL counts it as 0 in averages, so that after one multi-turn category
"Multi Turn Overall Acc" is a quarter of it: neither gets a score here. Columns of prices, seconds
and prompt formats are not read, nor are the tables over those of categories.

A score file (`bfcl evaluate`) lists wrong answers only; items and outputs are in the result file
(`bfcl generate`), in a mirrored folder (`score/MODEL/...`, `result/MODEL/...`) or beside it.
Neither names BFCL's version or settings. Source: `generate_leaderboard_csv` and `column_headers` of
bfcl-eval (BFCL v4).
"""

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.csv_files import read_csv
from assay.data.hashing import canonical_json
from assay.data.loaded import DataError, Record, sound
from assay.data.results.foreign_result import (
    Line,
    Result,
    read_objects,
    read_text,
    refuse_double,
    results_of,
)

NOT_RUN = "N/A"
MODEL = "Model"
MARK = frozenset({"Rank", MODEL})
"""Columns by which such a table is known, together with one that has a score."""

ITEMS: Mapping[str, int] = {
    **dict.fromkeys(("Multiple AST", "Parallel AST", "Parallel Multiple AST"), 200),
    **dict.fromkeys(("Base", "Miss Func", "Miss Param", "Long Context"), 200),
    "Python Simple AST": 400,
    "Java Simple AST": 100,
    "JavaScript Simple AST": 50,
    "Irrelevance Detection": 240,
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
}
"""Averages in which BFCL takes what was not run for 0, and how the columns behind them begin."""
SUMMARIES = ("AST Summary", "Simple AST")
"""Averages that BFCL leaves out itself where a category was not run."""
OVERALL = frozenset({"Overall Acc", "Agentic Overall Acc"})
"""Of the tables over those of categories."""


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
    titles = {*read_text(path).partition("\n")[0].strip().split(",")}
    return titles >= MARK and not titles.isdisjoint({*AVERAGES, *OVERALL})


def read_leaderboard(path: Path) -> list[Reported]:
    """Every score in the table, model by model. Raises DataError with the line."""
    found = []
    for row in sound(read_csv(path)):
        if OVERALL & row.value.keys():
            fix = "name data_multi_turn.csv, data_live.csv or data_non_live.csv beside it"
            raise DataError("averages other tables of BFCL", file=path, fix=fix)
        found += _row(row)
    if not found:
        raise DataError("holds no models", file=path)
    return found


def _row(row: Record) -> list[Reported]:
    sizes = LIVE_ITEMS if "Live Overall Acc" in row.value else ITEMS
    known = {*ITEMS, *LIVE_ITEMS, *AVERAGES, *SUMMARIES}
    scores = {name: _share(row, name, text) for name, text in row.value.items() if name in known}
    found = []
    for name, score in scores.items():
        parts = [p for p in scores if p != name and p.startswith(AVERAGES.get(name, ()))]
        trap = score is not None and any(scores[p] is None for p in parts)
        score, items = None if trap else score, sizes.get(name)
        if score is None or items is None:
            items = None
        elif abs(score * items - round(score * items)) > items * 0.5e-4:
            items = None  # no share of so many; two decimals of a percentage are written
        found.append(Reported(row.value[MODEL], name, score, items, trap))
    return found


def _share(row: Record, name: str, text: str) -> float | None:
    if text == NOT_RUN:
        return None
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (text.endswith("%") and 0 <= share <= 1):
        raise row.error(name, f"{text!r} is neither a percentage nor {NOT_RUN}")
    return share


def not_run(found: Iterable[Reported]) -> dict[str, list[str]]:
    """The averages by model that the file has and that count what was not run as 0."""
    traps: dict[str, list[str]] = {}
    for each in found:
        if each.over_absent:
            traps.setdefault(each.run, []).append(each.column)
    return traps


RESULT_KEYS = frozenset({"id", "result"})
SCORE_KEYS = frozenset({"accuracy", "correct_count", "total_count"})
SCORE, RESULT = "_score.json", "_result.json"
LIVE = re.compile(r"(?P<category>live_\w+?)_\d+-(?P<doc>\d+)-\d+")
FAILED = "Error during inference"
"""What BFCL writes as the answer that could not be generated; it counts it as wrong."""


def read(path: Path, cluster: str | None = None) -> list[Result]:
    """The one result of a score file or of a result file. Raises DataError.

    Entries name no source but in their ids, so that no `cluster` can be asked for.
    """
    if cluster is not None:
        fix = "clusters of BFCL's entries are read from their ids"
        raise DataError(f"has no key {cluster!r}", file=path, fix=fix)
    score_file, result_file = _both(path)
    header, *listed = read_objects(score_file)
    wrong, seen = dict[str, Record](), dict[Any, int]()
    for record in listed:
        item = _wrong_item(record)
        refuse_double(seen, record, "id", "an item is wrong once", item)
        wrong[item] = record
    lines = []
    for record in read_objects(result_file):
        output = record.value.get("result")
        text = output if isinstance(output, str) else canonical_json(output)
        error = text if text.startswith(FAILED) else ""
        lines.append(Line(record, record.need("id", str), 0, text, error))
    # The folder of the model is the one below `score`, else the one of the file.
    below = str(score_file.absolute().parent).rpartition("/score/")[2]
    run = Result(
        run=below.partition("/")[0] or score_file.parent.name,
        file=str(score_file),
        format="bfcl",
        metric="",
        answers=(),
        benchmark=score_file.name.removesuffix(SCORE),
        higher_is_better=True,
    )
    scores = {"valid": lambda record: float(record.value["id"] not in wrong)}
    clusters = {line.item: source_of(line.item) for line in lines}
    found = results_of(run, lines, scores, None, "id", "an item is answered once")
    _check(header, wrong, {*clusters}, result_file)
    return [replace(each, clusters=clusters) for each in found]


def _wrong_item(record: Record) -> str:
    """The item of a wrong answer: `prompt.id`, where `id` may be the number of a line, else `id`.

    Older versions of BFCL count lines there, from 1, where items count from 0. Raises DataError for
    a number alone, and for two names.
    """
    asked, item = record.value.get("prompt"), record.need("id", str, int)
    known = asked.get("id") if isinstance(asked, dict) else None
    counted = isinstance(item, int) or item.isdigit()
    if counted and known is None:
        fix = "score the answers again with a version of BFCL that writes prompt.id"
        raise record.error("id", f"{item!r} may be the number of a line, and names no item", fix)
    if known is not None and not counted and known != item:
        raise record.error("id", f"is {item!r}, but prompt.id {known!r}", "one item has one id")
    return str(item if known is None else known)


def source_of(item: str) -> str:
    """What an entry was made from: the scene that the multi-turn categories share, the function
    doc that live entries share (the second number of their ids), else the entry itself."""
    if item.startswith("multi_turn_"):
        return f"multi_turn_{item.rpartition('_')[2]}"
    found = LIVE.fullmatch(item)
    return f"{found['category']}-{found['doc']}" if found else item


def _check(header: Record, wrong: Mapping[str, Record], items: Set[str], result_file: Path) -> None:
    """Raises DataError where the two files do not belong to one evaluation."""
    fix = f"score {result_file} again"
    if unknown := [item for item in wrong if item not in items]:
        problem = f"{unknown[0]!r} does not occur in {result_file}"
        raise wrong[unknown[0]].error("id", problem, fix)
    total, right = header.need("total_count", int), header.need("correct_count", int)
    if (total, right) != (len(items), sum(item not in wrong for item in items)):
        problem = f"{right} of {total} right here, but {result_file} has {len(items)} answers"
        raise header.error("total_count", problem, fix)


def _both(path: Path) -> tuple[Path, Path]:
    """Score file and result file, given one of them. Raises DataError where the other is absent."""
    given, wanted = (SCORE, RESULT) if path.name.endswith(SCORE) else (RESULT, SCORE)
    if not path.name.endswith(given):
        fix = f"BFCL names its files *{SCORE} and *{RESULT}"
        raise DataError("is no file of BFCL", file=path, fix=fix)
    name = path.name.removesuffix(given) + wanted
    places = [path.with_name(name), *_mirrored(path.with_name(name), given, wanted)]
    other = next((place for place in places if place.is_file()), None)
    if other is None:
        problem = f"the {wanted[1:-5]} file is missing"
        fix = f"put {name} beside it, or in the mirrored folder {wanted[1:-5]}/"
        raise DataError(problem, file=path, fix=fix)
    return (path, other) if given == SCORE else (other, path)


def _mirrored(path: Path, given: str, wanted: str) -> list[Path]:
    """`path` with the nearest folder `score` read as `result`, or the other way round."""
    folder, other = given[1:-5], wanted[1:-5]
    parts = path.absolute().parts
    places = [n for n, part in enumerate(parts) if part == folder]
    return [Path(*parts[:n], other, *parts[n + 1 :]) for n in reversed(places)]
