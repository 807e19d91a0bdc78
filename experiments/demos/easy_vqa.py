"""Reads easy-VQA: questions about drawings of one shape, out of the wheel of that name.

Victor Zhou, github.com/vzhou842/easy-VQA (MIT): 4000 images with 38 575 questions to train on, 1000
others with 9 673 to test. Demonstrations are the training questions. Without images there are only
107 questions, the same on both sides of the package: they are told apart by their words then, and
an answer is right that some image gives.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from assay.data.files import sha256_text
from assay.data.loaded import Loaded, Record
from assay.data.row import ImagePart
from assay.data.wheels import wheel_directory
from assay.errors import look_up
from assay.labs.demos.demonstrations import (
    Demonstration,
    DemonstrationSet,
    Query,
    asked_about,
    image_in,
)
from assay.labs.demos.pools import POOL_OPTIONS, with_pools
from assay.labs.demos.rewards import accuracy
from assay.labs.demos.task import DemosTask
from assay.tasks.task import Benchmark, BenchmarkOptions

SIDES = {"train": 0.7, "test": 0.3}
"""With the share of the questions on each side where they have no images."""
OPTIONS: Mapping[str, Any] = {"images": True, **POOL_OPTIONS, "shots": 2}
"""Whether questions have their images, how a query's pool is chosen, see `pools`, and how many
demonstrations are picked of it."""
INSTRUCTION = "Answer the question about the image with one word."


def read_easy_vqa(side: str, options: BenchmarkOptions) -> Loaded:
    """The questions of one of SIDES, each with its own pool of the training questions.

    Raises InputError for another side or option, InputError without the wheel, DataError for
    an image that is not there, and what `with_pools` raises.
    """
    look_up(SIDES, side, "side of easy-vqa")
    chosen = options.over(OPTIONS)
    images = chosen["images"]
    return Loaded(with_pools(demonstrations(images), questions(side, images), chosen))


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """The test questions: whether the frozen model's answer after the selection is right."""
    chosen = options.over(OPTIONS)
    images = chosen["images"]
    items = with_pools(demonstrations(images), questions("test", images), chosen)
    return Benchmark("demos/easy-vqa", items, accuracy, "exact 1", options=chosen)


@cache
def demonstrations(images: bool) -> DemonstrationSet:
    """The training questions with their answers, of several the first."""
    shown = tuple(
        Demonstration(query.id, query.question, query.answers[0])
        for query in questions("train", images)
    )
    return DemonstrationSet("easy-vqa", INSTRUCTION, shown)


@cache
def questions(side: str, images: bool) -> tuple[Query, ...]:
    """The questions of a side; those about one image belong together."""
    return _with_images(side) if images else _words_only(side)


def _with_images(side: str) -> tuple[Query, ...]:
    images: dict[int, ImagePart] = {}
    found = []
    for record, text, answer, image in _entries(side):
        if image not in images:
            file = Path(record.file).with_name("images") / f"{image}.png"
            images[image] = image_in(record, file, "image")
        asked = asked_about(text, images[image])
        id_, shared = f"easy-vqa-{side}-{record.line}", f"easy-vqa {side} image {image}"
        found.append(Query(id_, asked, (answer,), record.origin, shared))
    return tuple(found)


def _words_only(side: str) -> tuple[Query, ...]:
    answers: dict[str, dict[str, None]] = {}
    for part in SIDES:
        for _, text, answer, _ in _entries(part):
            answers.setdefault(text, {})[answer] = None
    return tuple(
        Query(f"easy-vqa-{sha256_text(text)[:12]}", asked_about(text, None), tuple(given))
        for text, given in sorted(answers.items())
        if _side(text) == side
    )


def _entries(side: str) -> Iterator[tuple[Record, str, str, int]]:
    """The place of each question, what it asks, its answer, and the number of its image."""
    file = wheel_directory("easy-vqa") / "easy_vqa" / "data" / side / "questions.json"
    for n, (text, answer, image) in enumerate(json.loads(file.read_text(encoding="utf-8")), 1):
        yield Record(str(file), n, {}), text, answer, image


def _side(text: str) -> str:
    """By the hash of the question, which no other question changes."""
    place = int(sha256_text(f"side {text}")[:8], 16) / 2**32
    return "train" if place < SIDES["train"] else "test"


class EasyVqa(DemosTask):
    """easy-VQA as queries: `task = "path:experiments/demos/easy_vqa.py"`."""

    name = "demos-easy-vqa"
    sources = {"easy-vqa": read_easy_vqa}  # noqa: RUF012
    benchmarks = {"demos/easy-vqa": benchmark}  # noqa: RUF012


TASK = EasyVqa()
