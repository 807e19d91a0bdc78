"""Reads BFCL's results: leaderboard tables without items, and score files with their result files.

In a table (`data_multi_turn.csv`, `data_live.csv`, `data_non_live.csv`, `data_agentic.csv`,
`data_overall.csv`) a category that was not run is "N/A". BFCL counts it as 0 in averages, so that
after one multi-turn category "Multi Turn Overall Acc" is a quarter of it: neither gets a score
here. Columns of prices, seconds and prompt formats are not read.

A score file (`bfcl evaluate`) lists wrong answers only; items and outputs are in the result file
(`bfcl generate`), in a mirrored folder (`score/MODEL/...`, `result/MODEL/...`) or beside it.
Neither names BFCL's version or settings. Source: `generate_leaderboard_csv` and `column_headers` of
bfcl-eval (BFCL v4).
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.data.hashing import canonical_json
from assay.data.loaded import DataError, Record
from assay.data.results.foreign_result import Answer, Places, Result, read_objects, read_text

NOT_RUN = "N/A"
MODEL = "Model"
MARK = frozenset({"Rank", MODEL})
"""Columns by which such a table is known, together with one that has a score."""

ITEMS: Mapping[str, int] = {
    name: items
    for items, names in {
        16: "Live Parallel AST, Relevance Detection",
        24: "Live Parallel Multiple AST",
        50: "JavaScript Simple AST",
        100: "Java Simple AST, Web Search Base, Web Search No Snippet",
        155: "Memory KV, Memory Vector, Memory Recursive Summarization",
        200: "Multiple AST, Parallel AST, Parallel Multiple AST, Base, Miss Func, Miss Param, "
        "Long Context, Non-Live Multiple AST, Non-Live Parallel AST, "
        "Non-Live Parallel Multiple AST, Multi Turn Base, Multi Turn Miss Func, "
        "Multi Turn Miss Param, Multi Turn Long Context",
        240: "Irrelevance Detection",
        258: "Live Simple AST",
        400: "Python Simple AST",
        1053: "Live Multiple AST",
    }.items()
    for name in names.split(", ")
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
    known = {*ITEMS, *LIVE_ITEMS, *AVERAGES, *SUMMARIES}
    names = [name for name in cells if name in known]
    scores = {name: _share(path, line, name, cells[name]) for name in names}
    found = []
    for name in names:
        parts = [p for p in names if p != name and p.startswith(AVERAGES.get(name, ()))]
        trap = scores[name] is not None and any(scores[p] is None for p in parts)
        score, items = None if trap else scores[name], sizes.get(name)
        if score is None or items is None:
            items = None
        elif abs(score * items - round(score * items)) > items * 0.5e-4:
            items = None  # no share of so many; two decimals of a percentage are written
        found.append(Reported(cells[MODEL], name, score, items, trap))
    return found


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
    records = list(read_objects(score_file))
    header, wrong, listed = records[0], dict[str, Record](), Places()
    for record in records[1:]:
        item = _wrong_item(record)
        listed.take(record, "id", item, fix="an item is wrong once")
        wrong[item] = record
    places, answers = Places(), []
    for record in read_objects(result_file):
        item = record.need("id", str)
        places.take(record, "id", item, fix="an item is answered once")
        right = wrong.pop(item, None) is None
        output = record.value.get("result")
        text = output if isinstance(output, str) else canonical_json(output)
        error = text if text.startswith(FAILED) else ""
        answers.append(Answer(item, 0, float(right), text, error))
    _check(header, answers, wrong, result_file)
    category = score_file.name.removesuffix(SCORE)
    # The folder of the model is the one below `score`, else the one of the file.
    below = str(score_file.absolute().parent).rpartition("/score/")[2]
    return [
        Result(
            run=below.partition("/")[0] or score_file.parent.name,
            file=str(score_file),
            format="bfcl",
            metric="valid",
            answers=tuple(answers),
            benchmark=category,
            clusters={answer.item: source_of(answer.item) for answer in answers},
            higher_is_better=True,
        )
    ]


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


def _check(
    header: Record, answers: list[Answer], unknown: Mapping[str, Record], result_file: Path
) -> None:
    """Raises DataError where the two files do not belong to one evaluation."""
    fix = f"score {result_file} again"
    if unknown:
        item, record = next(iter(unknown.items()))
        raise record.error("id", f"{item!r} does not occur in {result_file}", fix)
    total, right = header.need("total_count", int), header.need("correct_count", int)
    if (total, right) != (len(answers), sum(answer.score == 1 for answer in answers)):
        problem = f"{right} of {total} right here, but {result_file} has {len(answers)} answers"
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
