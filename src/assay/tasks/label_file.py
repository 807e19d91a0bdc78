"""Reads people's labels of answers: JSON lines, as `assay label` writes them for people to fill in.

`{"item": ID, "question": TEXT, "answer": TEXT, "label": 4}`; of several criteria `label` is an
object, of pairs "answer", "reference" or "tie", beside a `reference`. `answer_sha256` may stand for
the answer of an item that a run has recorded. A line whose label is null waits to be filled in.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.data.hashing import sha256_text
from assay.data.json_files import read_jsonl
from assay.data.loaded import Record
from assay.errors import InputError
from assay.tasks.rubric import PREFERENCE, TIE, Rubric

PREFERRED = {"answer": 1.0, "reference": 0.0, TIE: 0.5}


@dataclass(frozen=True, slots=True)
class Label:
    """What people say of one answer."""

    item: str
    sha256: str
    """Of the answer."""
    grades: Mapping[str, float]
    answer: str | None
    question: str | None
    reference: str | None
    author: str
    line: int


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a file."""

    file: Path
    labels: tuple[Label, ...]
    waiting: int
    """Lines without a label."""

    def refuse(self, label: Label, field: str, problem: str, fix: str) -> InputError:
        """The error to raise about a label."""
        return InputError(problem, file=self.file, line=label.line, field=field, fix=fix)


def read_labels(file: Path, rubric: Rubric) -> Labels:
    """The labels of a file, checked against what the judge says. Raises DataError."""
    found, waiting = dict[tuple[str, str], Label](), 0
    for record in read_jsonl(file):
        label = _label(record, rubric)
        if label is None:
            waiting += 1
            continue
        first = found.setdefault((label.item, label.sha256), label)
        if first is not label:
            problem = f"the answer was labelled in line {first.line} already"
            raise record.error("answer", problem, "keep one line for each answer")
    return Labels(file, tuple(found.values()), waiting)


def _label(record: Record, rubric: Rubric) -> Label | None:
    item, answer = record.need("item", str), record.maybe("answer", str)
    texts = [record.maybe(name, str) for name in ("question", "reference", "author")]
    question, reference, author = texts
    sha256 = record.maybe("answer_sha256", str) if answer is None else sha256_text(answer)
    if sha256 is None:
        raise record.error("answer", "missing", "write the answer, or its answer_sha256")
    if record.value.get("label") is None:
        return None
    grades = dict(_grades(record, rubric))
    return Label(item, sha256, grades, answer, question, reference, author or "", record.line)


def _grades(record: Record, rubric: Rubric) -> Iterator[tuple[str, float]]:
    """The label by criterion. Raises DataError for one that is off its scale."""
    given = record.value["label"]
    if rubric.pairs:
        if not isinstance(given, str) or given not in PREFERRED:
            raise record.error("label", f"{given!r} is no preference", fix=_one_of(PREFERRED))
        yield PREFERENCE, PREFERRED[given]
        return
    if not isinstance(given, Mapping) and len(rubric.criteria) == 1:
        given = dict.fromkeys(rubric.criteria, given)
    if not isinstance(given, Mapping) or given.keys() != rubric.criteria.keys():
        names = ", ".join(f'"{name}": ...' for name in rubric.criteria)
        raise record.error("label", "does not grade the rubric's criteria", f"write {{{names}}}")
    for name, each in rubric.criteria.items():
        value = given[name]
        if type(value) not in (int, float) or value not in each.levels:
            field = "label" if len(rubric.criteria) == 1 else f"label.{name}"
            problem = f"{value!r} is no whole number from {each.low} to {each.high}"
            raise record.error(field, problem, "use the scale of the rubric")
        yield name, float(value)


def _one_of(names: Mapping[str, float]) -> str:
    return "write " + ", ".join(f'"{name}"' for name in names)
