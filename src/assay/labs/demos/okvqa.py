"""Reads OK-VQA by path: questions about COCO's images that ask for outside knowledge.

Marino et al., CVPR 2019; ten answers for each. Files are the official ones, `{"questions": [...]}`
and `{"annotations": [...]}`, or JSON lines with both in one row; files of VQA have the same form.
Demonstrations are the training questions, with the answer that most annotators gave.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.json_files import load_json, read_jsonl
from assay.data.loaded import DataError, Loaded, Record
from assay.data.row import ImagePart
from assay.errors import InputError
from assay.labs.demos.demonstrations import (
    Demonstration,
    DemonstrationSet,
    Query,
    asked_about,
    image_in,
)
from assay.labs.demos.outcomes import answers_from_soft_label
from assay.labs.demos.pools import POOL_OPTIONS, with_pools
from assay.labs.demos.rewards import accuracy
from assay.tasks.task import Benchmark, BenchmarkOptions, lookup

SIDES = {"train": "COCO_train2014_%012d.jpg", "val": "COCO_val2014_%012d.jpg"}
"""With the names of the images in COCO's folders, by the image's number."""
FILES = ("questions", "annotations", "images")
OPTIONS: Mapping[str, Any] = {
    **dict.fromkeys([*FILES, *(f"train_{name}" for name in FILES)], ""),
    **POOL_OPTIONS,
    "shots": 2,
}
"""`questions`, `annotations` ("" where the questions' rows have the answers) and `images` ("" for
text alone; a folder with COCO's names, or a path with %012d for the image's number), all relative
to the lab's root; those with `train_` are the demonstrations', where queries are not the training
questions themselves. How a query's pool is chosen, see `pools`; how many are picked of it."""
INSTRUCTION = "Answer the question about the image with one word or a short phrase."
CHECKER = "official VQA accuracy 1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the questions of a side lie."""

    questions: Path
    annotations: Path | None
    images: str
    """A path with a place for the image's number, relative to `root`; "" for text alone."""
    root: Path


def read_okvqa(side: str, options: BenchmarkOptions) -> Loaded:
    """The questions of one of SIDES, each with its own pool of the training questions.

    Raises InputError for another side or option, DataError for what is wrong with a row or
    its image, InputError.
    """
    lookup(SIDES, side, "side of okvqa")
    chosen = options.over(OPTIONS)
    queries = read_questions(_place(chosen, "", side, options.root))
    if side == "train":
        _refuse_demonstrations(chosen)
        return Loaded(with_pools(as_demonstrations(queries), queries, chosen))
    shown = read_questions(_place(chosen, "train_", "train", options.root))
    return Loaded(with_pools(as_demonstrations(shown), queries, chosen))


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """The validation questions: VQA's accuracy of the frozen model's answer after the selection."""
    chosen = {name: value for name, value in options.over(OPTIONS).items() if value != ""}
    return Benchmark(
        "demos/okvqa", read_okvqa("val", options).rows, accuracy, CHECKER, options=chosen
    )


def _refuse_demonstrations(chosen: Mapping[str, Any]) -> None:
    for name in FILES:
        if chosen[f"train_{name}"]:
            problem = "the queries of okvqa:train are the demonstrations themselves"
            raise InputError(problem, field=f"options.train_{name}", fix="remove it")


def _place(chosen: Mapping[str, Any], prefix: str, side: str, root: Path) -> Place:
    questions, annotations, images = (chosen[f"{prefix}{name}"] for name in FILES)
    if not questions:
        problem = f"OK-VQA is read by path, and no file of {side} questions is named"
        fix = f'options = {{ {prefix}questions = "FILE" }}, counted from the lab\'s root'
        raise InputError(problem, field="options", fix=fix)
    if images and "%" not in images:
        images = f"{images}/{SIDES[side]}"
    if images and not _takes_a_number(images):
        problem = f"{images!r} has no one place for the image's number"
        raise InputError(problem, field=f"options.{prefix}images", fix="write %012d there")
    return Place(root / questions, root / annotations if annotations else None, images, root)


def _takes_a_number(pattern: str) -> bool:
    try:
        return pattern % 1 != pattern % 2
    except (TypeError, ValueError):
        return False


def as_demonstrations(queries: tuple[Query, ...]) -> DemonstrationSet:
    """Questions with the most frequent of their answers, of equal ones the first."""
    shown = tuple(
        Demonstration(query.id, query.asked, Counter(query.answers).most_common(1)[0][0])
        for query in queries
    )
    return DemonstrationSet("okvqa", INSTRUCTION, shown, metric="vqa")


def read_questions(place: Place) -> tuple[Query, ...]:
    """The questions of a side in their file's order; those about one image belong together.

    Raises DataError for a question without an annotation, one without answers, two of one id, and
    an image that is missing or unreadable.
    """
    answers = None if place.annotations is None else _annotations(place.annotations)
    found: dict[int, Query] = {}
    images: dict[int, ImagePart] = {}
    for record in _rows(place.questions, "questions"):
        number, image = record.need("question_id", int), record.need("image_id", int)
        if number in found:
            raise record.error("question_id", f"{number} is there twice", "give each its own")
        if place.images and image not in images:
            file = place.root / (place.images % image)
            images[image] = image_in(record, file, f"question {number}")
        found[number] = Query(
            f"okvqa-{number}",
            asked_about(record.need("question", str), images.get(image)),
            answers_of(record) if answers is None else _annotated(record, number, answers),
            record.origin,
            f"okvqa image {image}",
        )
    return tuple(found.values())


def _annotated(
    record: Record, number: int, answers: Mapping[int, tuple[str, ...]]
) -> tuple[str, ...]:
    if number not in answers:
        problem = f"question {number} has no annotation"
        raise record.error("question_id", problem, "is it the annotation file of these questions?")
    return answers[number]


def _annotations(file: Path) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for record in _rows(file, "annotations"):
        number = record.need("question_id", int)
        if number in found:
            raise record.error("question_id", f"{number} is there twice", "keep one annotation")
        found[number] = answers_of(record)
    return found


def answers_of(record: Record) -> tuple[str, ...]:
    """The answers of an annotation as it lists them, or those that follow from its soft label.

    A soft label of other than five annotators stands for its answers alone: they are not ten, and
    the looser rule scores them. Raises DataError for an annotation without answers.
    """
    number = record.value.get("question_id")
    listed, label = record.maybe("answers", list), record.maybe("soft_label", dict)
    if not listed and not label:
        fix = "take the question out, or name its file of annotations"
        raise record.error("answers", f"question {number} has no answers", fix)
    if not listed:
        shares = {a: record.typed(f"soft_label.{a}", s, int, float) for a, s in label.items()}
        return answers_from_soft_label(shares) or tuple(shares)
    return tuple(_answer(record, n, each) for n, each in enumerate(listed))


def _answer(record: Record, n: int, given: Any) -> str:
    """An answer is a text, or an object with the text as `answer`."""
    text = given.get("answer") if isinstance(given, dict) else given
    return record.typed(f"answers[{n}]", text, str)


def _rows(file: Path, key: str) -> Iterator[Record]:
    """The rows of JSON lines, or of the list `key` of a JSON object: there, a row's line is its
    place in the list. Raises DataError."""
    if file.suffix == ".jsonl":
        yield from read_jsonl(file)
        return
    for n, value in enumerate(_listed(file, key), 1):
        if not isinstance(value, dict):
            raise DataError(f"row {n} of {key!r} is no object", file=file, line=n)
        yield Record(str(file), n, value)


def _listed(file: Path, key: str) -> list[Any]:
    if not file.is_file():
        raise DataError("no such file", file=file)
    try:
        found = load_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        fix = "a file of JSON lines ends in .jsonl"
        raise DataError(f"malformed JSON: {error}", file=file, fix=fix) from error
    if not isinstance(found, dict) or not isinstance(found.get(key), list):
        problem, fix = f"has no list {key!r}", "is it the file that the option asks for?"
        raise DataError(problem, file=file, fix=fix)
    return found[key]
