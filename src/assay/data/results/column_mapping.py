"""Reads results whose rows are answers: by columns that the user names, and plain tables.

By columns named (JSONL, JSON arrays, CSV, parquet): a name with dots leads into tables and lists
(`doc.id`, `traces.0.rewards.correct.score`); a column that has the dots in its own name comes
first. What a tool's file says beside the scores, such as its settings, is not read.

A plain table (CSV, JSON lines, parquet) has the columns `item`, `run` and `score`. `run` may be
absent where a file holds one run, and is then the name of the file. A further column `repeat`
numbers the passes over the items, `output` has what the model wrote, `error` what went wrong,
`cluster` the source of the item; every other column of numbers is a metric that can be named
instead of `score`. An empty score is an abstention. `score` runs from 0 to 1, another metric as far
as it goes.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.csv_files import CsvOptions, read_csv
from assay.data.files import content_id
from assay.data.loaded import ABSENT, DataError, Record, at_path, sound
from assay.data.parquet import raw_rows
from assay.data.results.foreign_result import (
    CLUSTER,
    SCORE,
    RecordLine,
    Result,
    as_number,
    is_score,
    number,
    read_objects,
    results_of,
)
from assay.errors import Finding, finding, nearest

LONGEST_ID = 256
"""Longer texts, such as prompts, are named by their fingerprint."""
WORDS = {"true": 1.0, "false": 0.0, "": math.nan}
"""How CSV files write what is no number."""
ASKED = ("prompt", "question", "problem", "query", "instruction", "input", "messages")
WANTED = ("answer", "target", "ground_truth", "gold", "solution", "reference")
"""Columns that ask something in the files of other tools, and that hold the right answer."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a row has what a comparison needs."""

    item: str
    score: str


def read_mapped(path: Path, columns: Columns, cluster: str | None = None) -> list[Result]:
    """The one run of a file by the columns named; `cluster` is the column of sources. An item that
    comes again is its next repeat.

    A row that lacks the score, or has null there, is an answer without one. Raises DataError, also
    where no row has the item or the score.
    """
    rows = list(table_rows(path))
    if not rows:
        raise DataError("holds no rows", file=path)
    if all(at_path(row.value, columns.score) is ABSENT for row in rows):
        fix = nearest(columns.score, rows[0].value)
        raise DataError("missing", file=path, field=columns.score, fix=fix)
    items, remarks = _items(rows, columns, path.stem)
    key, lines, seen = cluster or CLUSTER, [], Counter[str]()
    for row, item in zip(rows, items, strict=True):
        source, score = at_path(row.value, key), at_path(row.value, columns.score)
        table = {} if source is ABSENT else {key: _plain(source)}
        scores = {} if score is ABSENT else {columns.score: as_number(score, WORDS)}
        lines.append(RecordLine(row, item, scores, seen[item], table=table))
        seen[item] += 1
    run = Result(path.stem, str(path), "columns", remarks=remarks)
    return results_of(run, lines, [columns.score], cluster, "", "")


def _items(
    rows: Sequence[Record], columns: Columns, run: str
) -> tuple[list[str], tuple[Finding, ...]]:
    """The item of each row: its id, or its question where the ids run over all answers of a
    question or across questions, and every question is answered equally often."""
    ids = [_item(row, columns.item) for row in rows]
    # Beside the id, in whatever table that stands.
    place = columns.item[: columns.item.rfind(".") + 1]
    prompts, wanted = zip(*(_question(row, place) for row in rows), strict=True)
    if not all(prompts) or columns.item.removeprefix(place) in ASKED:
        return ids, ()
    questions = [content_id([*map(str, (*a, *w))]) for a, w in zip(prompts, wanted, strict=True)]
    names, pairs = {*ids}, {*zip(ids, questions, strict=True)}
    counts, values = Counter(questions), {"ids": len({*ids}), "questions": len({*questions})}
    if len(pairs) == len(names) == len(counts):
        return ids, ()
    even = len({*counts.values()}) == 1 and 1 < len(counts) <= len(names)
    code = "ids_are_repeats" if even and all(wanted) else "questions_repeat"
    remark = finding(code, "warning", name=run, **values)
    return questions if even and all(wanted) else ids, (remark,)


def _question(row: Record, place: str) -> tuple[list[Any], list[Any]]:
    """What a row asks and its right answer, at a place or else in a table there."""
    table = at_path(row.value, place[:-1]) if place else row.value
    members = table.items() if isinstance(table, Mapping) else ()
    inner = [f"{place}{key}." for key, value in members if isinstance(value, dict)]
    for each in (place, *inner):
        prompts, wanted = (
            [v for n in names if (v := at_path(row.value, each + n)) not in (ABSENT, None)]
            for names in (ASKED, WANTED)
        )
        if prompts:
            return prompts, wanted
    return [], []


def _item(row: Record, name: str) -> str:
    value = at_path(row.value, name)
    if value in (ABSENT, None, ""):
        raise row.error(name, "missing", nearest(name, row.value))
    if isinstance(value, dict | list):
        return content_id(value)
    text = str(_plain(value))
    return content_id(text) if len(text) > LONGEST_ID else text


def _plain(value: Any) -> Any:
    """pandas makes floats of a column of integers where one is missing."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def table_rows(path: Path) -> Iterator[Record]:
    """The rows of parquet, CSV, JSON lines or an array. Raises DataError."""
    if path.suffix == ".csv":
        # pandas writes its index as a column without a name.
        return sound(read_csv(path, CsvOptions(any_header=True)))
    if path.suffix == ".parquet":
        return (Record(str(path), line, row) for line, row in enumerate(raw_rows(path), 1))
    return read_objects(path)


OTHERS = ("item", "run", "repeat", "output", "error", CLUSTER)


def read_table(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each run and metric of a plain table; `cluster` is the column of sources.
    Raises DataError."""
    rows = [replace(row, value=_cells(row)) for row in table_rows(path)]
    if not rows:
        raise DataError("holds no rows", file=path)
    runs: dict[str, list[RecordLine]] = {}
    for row in rows:
        item = str(row.need("item", str, int))
        share = number(row, SCORE, row.value.get(SCORE))
        if share is not None and not 0 <= share <= 1:
            raise row.error(SCORE, f"{share:g} lies outside 0 to 1", "a percentage is no score")
        run = row.maybe("run", str, int)
        repeat = row.maybe("repeat", int) or 0
        output, error = row.maybe("output", str), row.maybe("error", str) or ""
        line = RecordLine(row, item, row.value, repeat, output, error, row.value)
        runs.setdefault(path.stem if run is None else str(run), []).append(line)
    names = dict.fromkeys(name for row in rows for name in row.value)
    metrics = [
        name
        for name in names
        if name not in (*OTHERS, cluster)
        and all(is_score(row.value.get(name)) for row in rows)
        and any(row.value.get(name) is not None for row in rows)
    ]
    if not metrics:
        raise rows[0].error(SCORE, "missing", nearest(SCORE, rows[0].value))
    results, fix = list[Result](), "number the passes in a column 'repeat'"
    for name, lines in runs.items():
        run = Result(name, str(path), "table")
        results += results_of(run, lines, metrics, cluster, "item", fix)
    return results


def _cells(row: Record) -> Mapping[str, Any]:
    """The cells of a CSV file as what they say, but for names and outputs; others as they are."""
    if not row.file.endswith(".csv"):
        return row.value
    cells = {n: c if n in OTHERS else as_number(c, {}) for n, c in row.value.items()}
    repeat = row.value.get("repeat", "")
    return cells | ({"repeat": int(repeat)} if repeat.isdecimal() else {})
