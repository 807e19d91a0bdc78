"""Reads OK-VQA by path: questions about COCO's images that ask for outside knowledge.

Marino et al., CVPR 2019; ten answers for each. Files are the official ones, `{"questions": [...]}`
and `{"annotations": [...]}`, or JSON lines with both in one row; files of VQA have the same form.
Demonstrations are the training questions, with the answer that most annotators gave.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.data.json_files import load_json, read_jsonl
from assay.data.loaded import DataError, Loaded, Record, check_file
from assay.data.row import ImagePart
from assay.errors import InputError, look_up
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
from assay.tasks.task import Benchmark, BenchmarkOptions

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


def read_okvqa(side: str, options: BenchmarkOptions) -> Loaded:
    """The questions of one of SIDES, each with its own pool of the training questions.

    Raises InputError for another side or option, DataError for what is wrong with a row or
    its image, InputError.
    """
    look_up(SIDES, side, "side of okvqa")
    chosen = options.over(OPTIONS)
    for name in (f"train_{name}" for name in FILES if side == "train"):
        if chosen[name]:
            problem = "the queries of okvqa:train are the demonstrations themselves"
            raise InputError(problem, field=f"options.{name}", fix="remove it")
    queries = read_questions(chosen, "", side, options.root)
    shown = queries if side == "train" else read_questions(chosen, "train_", "train", options.root)
    return Loaded(with_pools(as_demonstrations(shown), queries, chosen))


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """The validation questions: VQA's accuracy of the frozen model's answer after the selection."""
    chosen = {name: value for name, value in options.over(OPTIONS).items() if value != ""}
    return Benchmark(
        "demos/okvqa", read_okvqa("val", options).rows, accuracy, CHECKER, options=chosen
    )


def as_demonstrations(queries: tuple[Query, ...]) -> DemonstrationSet:
    """Questions with the most frequent of their answers, of equal ones the first."""
    shown = tuple(
        Demonstration(query.id, query.question, Counter(query.answers).most_common(1)[0][0])
        for query in queries
    )
    return DemonstrationSet("okvqa", INSTRUCTION, shown, metric="vqa")


def read_questions(
    chosen: Mapping[str, Any], prefix: str, side: str, root: Path
) -> tuple[Query, ...]:
    """The questions of a side in their file's order; those about one image belong together.

    Raises DataError for a question without an annotation, one without answers, two of one id, and
    an image that is missing or unreadable.
    """
    questions, annotations, images = (chosen[f"{prefix}{name}"] for name in FILES)
    if not questions:
        problem = f"OK-VQA is read by path, and no file of {side} questions is named"
        fix = f'options = {{ {prefix}questions = "FILE" }}, counted from the lab\'s root'
        raise InputError(problem, field="options", fix=fix)
    pattern = f"{images}/{SIDES[side]}" if images and "%" not in images else images
    answers = (
        {
            number: answers_of(record)
            for number, record in _numbered(root / annotations, "annotations").items()
        }
        if annotations
        else None
    )
    queries: list[Query] = []
    shown: dict[int, ImagePart] = {}
    for number, record in _numbered(root / questions, "questions").items():
        image = record.need("image_id", int)
        if pattern and image not in shown:
            shown[image] = image_in(record, root / (pattern % image), f"question {number}")
        if answers is not None and number not in answers:
            problem, fix = (
                f"question {number} has no annotation",
                "is it the file of these questions?",
            )
            raise record.error("question_id", problem, fix)
        queries.append(
            Query(
                f"okvqa-{number}",
                asked_about(record.need("question", str), shown.get(image)),
                answers_of(record) if answers is None else answers[number],
                record.origin,
                f"okvqa image {image}",
            )
        )
    return tuple(queries)


def _numbered(file: Path, key: str) -> dict[int, Record]:
    records: dict[int, Record] = {}
    for record in _rows(file, key):
        number = record.need("question_id", int)
        if records.setdefault(number, record) is not record:
            raise record.error("question_id", f"{number} is there twice", "give each its own")
    return records


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
    # An answer is a text, or an object with the text as `answer`.
    texts = [each.get("answer") if isinstance(each, dict) else each for each in listed]
    return tuple(record.typed(f"answers[{n}]", text, str) for n, text in enumerate(texts))


def _rows(file: Path, key: str) -> Iterator[Record]:
    """The rows of JSON lines, or of the list `key` of a JSON object: there, a row's line is its
    place in the list. Raises DataError."""
    if file.suffix == ".jsonl":
        yield from read_jsonl(file)
        return
    check_file(file)
    try:
        content = load_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        fix = "a file of JSON lines ends in .jsonl"
        raise DataError(f"malformed JSON: {error}", file=file, fix=fix) from error
    if not isinstance(content, dict) or not isinstance(content.get(key), list):
        problem, fix = f"has no list {key!r}", "is it the file that the option asks for?"
        raise DataError(problem, file=file, fix=fix)
    for n, value in enumerate(content[key], 1):
        if not isinstance(value, dict):
            raise DataError(f"row {n} of {key!r} is no object", file=file, line=n)
        yield Record(str(file), n, value)
