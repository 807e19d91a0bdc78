"""Reads BFCL's score files with their result files.

A score file (`bfcl evaluate`) lists wrong answers only; items and outputs are in the result file
(`bfcl generate`), in a mirrored folder (`score/MODEL/...`, `result/MODEL/...`) or beside it.
Neither names BFCL's version or settings. Its leaderboard's tables have no items and are not read.
"""

import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from assay.data.files import canonical_json
from assay.data.loaded import DataError, Record
from assay.data.results.foreign_result import (
    CLUSTER,
    RecordLine,
    Result,
    read_objects,
    refuse_double,
    results_of,
)

RESULT_KEYS = frozenset({"id", "result"})
SCORE_KEYS = frozenset({"accuracy", "correct_count", "total_count"})
METRIC, SCORE, RESULT = "valid", "_score.json", "_result.json"
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
        item = record.need("id", str)
        scores, table = {METRIC: float(item not in wrong)}, {CLUSTER: source_of(item)}
        lines.append(RecordLine(record, item, scores, 0, text, error, table))
    # The folder of the model is the one below `score`, else the one of the file.
    below = str(score_file.absolute().parent).rpartition("/score/")[2]
    run = Result(
        run=below.partition("/")[0] or score_file.parent.name,
        file=str(score_file),
        format="bfcl",
        benchmark=score_file.name.removesuffix(SCORE),
        higher_is_better=True,
    )
    results = results_of(run, lines, [METRIC], None, "id", "an item is answered once")
    _check(header, wrong, {line.item for line in lines}, result_file)
    return results


def _wrong_item(record: Record) -> str:
    """The item of a wrong answer: `prompt.id`, where `id` may be the number of a line, else `id`.

    Older versions of BFCL count lines there, from 1, where items count from 0. Raises DataError for
    a number alone, and for two names.
    """
    prompt, item = record.value.get("prompt"), record.need("id", str, int)
    known = prompt.get("id") if isinstance(prompt, dict) else None
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
    match = LIVE.fullmatch(item)
    return f"{match['category']}-{match['doc']}" if match else item


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
    named, wanted = (SCORE, RESULT) if path.name.endswith(SCORE) else (RESULT, SCORE)
    if not path.name.endswith(named):
        fix = f"BFCL names its files *{SCORE} and *{RESULT}"
        raise DataError("is no file of BFCL", file=path, fix=fix)
    name = path.name.removesuffix(named) + wanted
    places = [path.with_name(name), *_mirrored(path.with_name(name), named, wanted)]
    other = next((place for place in places if place.is_file()), None)
    if other is None:
        problem = f"the {wanted[1:-5]} file is missing"
        fix = f"put {name} beside it, or in the mirrored folder {wanted[1:-5]}/"
        raise DataError(problem, file=path, fix=fix)
    return (path, other) if named == SCORE else (other, path)


def _mirrored(path: Path, named: str, wanted: str) -> list[Path]:
    """`path` with the nearest folder `score` read as `result`, or the other way round."""
    folder, other = named[1:-5], wanted[1:-5]
    parts = path.absolute().parts
    places = [n for n, part in enumerate(parts) if part == folder]
    return [Path(*parts[:n], other, *parts[n + 1 :]) for n in reversed(places)]
