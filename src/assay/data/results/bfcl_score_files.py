"""Score files of BFCL (`bfcl evaluate`) together with the result files (`bfcl generate`).

A score file lists the wrong answers only; the items and the outputs stand in the result file. The
two lie in mirrored folders (`score/MODEL/...`, `result/MODEL/...`), or side by side. The files name
neither the version of BFCL nor its settings.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.data.hashing import canonical_json
from assay.data.jsonl import read_jsonl
from assay.data.raw_record import DataError, Record
from assay.data.results.foreign_result import Answer, Places, Result

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
    records = list(read_jsonl(score_file))
    header, wrong = records[0], {str(r.need("id", str)): r for r in records[1:]}
    places, answers = Places(), []
    for record in read_jsonl(result_file):
        item = record.need("id", str)
        places.take(record, "id", item, fix="an item is answered once")
        right = wrong.pop(item, None) is None
        answers.append(_answer(item, record.value.get("result"), right))
    _check(header, answers, wrong, result_file)
    category = score_file.name.removesuffix(SCORE)
    return [
        Result(
            run=_model(score_file),
            file=str(score_file),
            format="bfcl",
            metric="valid",
            answers=tuple(answers),
            benchmark=category,
            clusters={answer.item: source_of(answer.item) for answer in answers},
        )
    ]


def source_of(item: str) -> str:
    """What an entry was made from: the scene that the multi-turn categories share, the function
    doc that live entries share (the second number of their ids), else the entry itself."""
    if item.startswith("multi_turn_"):
        return f"multi_turn_{item.rpartition('_')[2]}"
    found = LIVE.fullmatch(item)
    return f"{found['category']}-{found['doc']}" if found else item


def _answer(item: str, output: Any, right: bool) -> Answer:
    text = output if isinstance(output, str) else canonical_json(output)
    return Answer(item, 0, float(right), text, text if text.startswith(FAILED) else "")


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


def _model(score_file: Path) -> str:
    """The folder of the model: the one below `score`, else the one of the file."""
    parts = score_file.absolute().parts
    if "score" not in parts[:-2]:
        return score_file.parent.name
    return parts[len(parts) - 1 - parts[::-1].index("score") + 1]
