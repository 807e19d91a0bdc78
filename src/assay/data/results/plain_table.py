"""Plain tables of results: CSV, JSON lines or parquet with the columns `item`, `run` and `score`.

`run` may be absent where a file holds one run, and is then the name of the file. A further column
`repeat` numbers the passes over the items, `output` has what the model wrote, `error` what went
wrong, `cluster` the source of the item; every other column of numbers is a metric that can be named
instead of `score`. An empty score is an abstention. `score` runs from 0 to 1, another metric as
far as it goes.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.data.loaded import DataError, Record
from assay.data.results.foreign_result import (
    CLUSTER,
    SCORE,
    Answer,
    Clusters,
    Places,
    Result,
    read_objects,
    read_rows,
    read_text,
    score,
    score_columns,
)
from assay.errors import nearest

OTHERS = ("item", "run", "repeat", "output", "error", CLUSTER)


def read(path: Path, cluster: str | None = None) -> list[Result]:
    """One result for each run and metric; `cluster` is the column of sources. Raises DataError."""
    records = list(_records(path))
    if not records:
        raise DataError("holds no rows", file=path)
    for record in records:
        record.need("item", str, int)
        if SCORE in record.value:
            score(record, SCORE)
    metrics = score_columns(records, *OTHERS, cluster or CLUSTER)
    if not metrics:
        fix = nearest(SCORE, records[0].value)
        raise DataError("missing", file=path, line=records[0].line, field=SCORE, fix=fix)
    runs: dict[str, list[Record]] = {}
    for record in records:
        name = record.maybe("run", str, int)
        runs.setdefault(path.stem if name is None else str(name), []).append(record)
    return [_result(path, run, m, lines, cluster) for run, lines in runs.items() for m in metrics]


def _result(
    path: Path, run: str, metric: str, lines: Sequence[Record], cluster: str | None
) -> Result:
    places, sources, answers = Places(), Clusters(cluster), []
    for line in lines:
        item, repeat = str(line.value["item"]), line.maybe("repeat", int) or 0
        places.take(line, "item", item, repeat, fix="number the passes in a column 'repeat'")
        sources.take(line, item, line.value)
        share = score(line, metric)
        if share is not None and metric == SCORE and not 0 <= share <= 1:
            problem = f"{share:g} lies outside 0 to 1"
            raise line.error(metric, problem, "a percentage is no score")
        output, error = line.maybe("output", str), line.maybe("error", str) or ""
        answers.append(Answer(item, repeat, share, output, error))
    return Result(run, str(path), "table", metric, tuple(answers), clusters=sources.by_item)


def _records(path: Path) -> Iterator[Record]:
    if path.suffix == ".parquet":
        yield from read_rows(path)
    elif path.suffix == ".csv":
        for row in csv_rows(path):
            yield Record(row.file, row.line, {k: _cell(k, v) for k, v in row.value.items()})
    else:
        yield from read_objects(path)


def csv_rows(path: Path) -> Iterator[Record]:
    """The rows of a CSV file, its cells as text; `line` is where a row ends. Raises DataError."""
    # Outputs of models are longer than the limit that the module sets.
    csv.field_size_limit(2**31 - 1)
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        for row in rows:
            if None in row or None in row.values():
                problem = f"has not the {len(rows.fieldnames or ())} columns of the first line"
                raise DataError(problem, file=path, line=rows.line_num)
            yield Record(str(path), rows.line_num, row)
    except csv.Error as error:
        raise DataError(f"is no CSV: {error}", file=path, line=rows.line_num) from error


def _cell(column: str, text: str) -> Any:
    """Names and outputs stay text; an empty cell is absent."""
    if text == "":
        return None
    if column in OTHERS and column != "repeat":
        return text
    try:
        return int(text) if column == "repeat" else float(text)
    except ValueError:
        return text
