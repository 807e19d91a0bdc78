"""Demonstrations: answered questions of a set, numbered, and rows that may pick among them.

A set is known by its fingerprint, which rows carry, so that a row of a checkpointed run finds the
demonstrations that it was made with. A selection is the picked demonstrations, the one next to the
query first; its text, what records and rewards see, is a JSON list of their numbers, such as
`[412, 7]`. Reading sets is the sources', choosing pools is `pools`'.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from assay.data.files import canonical_json, sha256_text
from assay.data.loaded import Record
from assay.data.message_parts import images_in, media_type, read_image
from assay.data.row import ImagePart, Message, Row, TextPart
from assay.errors import InputError

DEMONSTRATIONS, POOL, SHOTS, ANSWERS = "demonstrations", "pool", "shots", "answers"
"""Fields of a row's `extra`: the fingerprint of its set, the numbers of the demonstrations that may
be picked, how many are picked, and the answers that count as right."""

FROZEN = "frozen"
"""The helper model that reads the picked demonstrations: `[model.frozen]`."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One answered question."""

    id: str
    question: Message
    """The user's message, laid out as queries are."""
    answer: str

    @property
    def images(self) -> tuple[str, ...]:
        """The sha256 of each of its images."""
        return tuple(part.sha256 for part in images_in([self.question]))


@dataclass(frozen=True)
class DemonstrationSet:
    """The demonstrations that queries pick from; a number is a place in `demonstrations`."""

    name: str
    instruction: str
    """The system message; "" for none."""
    demonstrations: tuple[Demonstration, ...]
    metric: str = "exact"
    """What scores an answer, of `outcomes.METRICS`."""
    numbers: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """By id."""

    def __post_init__(self) -> None:
        numbers = {each.id: n for n, each in enumerate(self.demonstrations)}
        object.__setattr__(self, "numbers", numbers)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of everything that prompts show of the set."""
        shown = [[d.id, d.question.content, d.answer, *d.images] for d in self.demonstrations]
        return sha256_text(canonical_json([self.name, self.instruction, self.metric, shown]))


_SETS: dict[str, DemonstrationSet] = {}


def keep(demonstrations: DemonstrationSet) -> str:
    """Remember a set for the rows that name it; returns its fingerprint."""
    _SETS[demonstrations.fingerprint] = demonstrations
    return demonstrations.fingerprint


def set_of(row: Row) -> DemonstrationSet:
    """The demonstrations that a row picks from. Raises InputError for a row without."""
    fingerprint = row.extra.get(DEMONSTRATIONS)
    if fingerprint not in _SETS:
        problem = f"row {row.id} names no demonstrations that were read"
        fix = "read it by a source of the demos task"
        raise InputError(problem, file=row.origin or None, field=DEMONSTRATIONS, fix=fix)
    return _SETS[fingerprint]


@dataclass(frozen=True, slots=True)
class Query:
    """One question before it has a pool."""

    id: str
    question: Message
    """The user's message, laid out as demonstrations are."""
    answers: tuple[str, ...]
    """Those that count as right, as the metric reads them."""
    origin: str = ""
    """`file:line`."""
    conversation: str = ""
    """Queries with the same one never fall on both sides of a split; "" means the id."""


def query_row(
    demonstrations: DemonstrationSet, query: Query, pool: Sequence[int], shots: int
) -> Row:
    """A query that picks `shots` of its pool."""
    extra = {
        DEMONSTRATIONS: keep(demonstrations),
        POOL: list(pool),
        SHOTS: shots,
        ANSWERS: list(query.answers),
    }
    return Row(
        query.id,
        (query.question,),
        gold=list(query.answers),
        conversation=query.conversation,
        origin=query.origin,
        extra=extra,
    )


def selection_text(picks: Sequence[int]) -> str:
    """The text of a selection."""
    return json.dumps(list(picks))


def picks_of(row: Row, text: str) -> tuple[int, ...]:
    """The picks that a text names.

    Raises InputError for picks that are not `shots` different demonstrations of the row's pool.
    """
    try:
        picks = json.loads(text)
    except ValueError:
        picks = None
    if not isinstance(picks, list) or not all(type(pick) is int for pick in picks):
        raise _wrong(row, f"{text!r} is no list of numbers")
    pool, shots = row.extra[POOL], row.extra[SHOTS]
    if outside := [pick for pick in picks if pick not in pool]:
        raise _wrong(row, f"{outside[0]} is not in the pool of {len(pool)}")
    if len(set(picks)) != len(picks) or len(picks) != shots:
        raise _wrong(row, f"{text} are not {shots} different demonstrations")
    return tuple(picks)


def _wrong(row: Row, problem: str) -> InputError:
    return InputError(f"row {row.id}: {problem}", file=row.origin or None, field="selection")


def conversation(row: Row, picks: Sequence[int]) -> tuple[Message, ...]:
    """What the frozen model reads: the instruction, the picked demonstrations, the last pick first,
    and the query last. A model heeds most what it read last, so the best pick, which a selector
    makes first, stands there (Lever-LM's `construct_order = "left"`); selections that end alike
    share the beginning of their prompts."""
    demonstrations = set_of(row)
    messages: list[Message] = (
        [Message("system", demonstrations.instruction)] if demonstrations.instruction else []
    )
    for pick in reversed(picks):
        shown = demonstrations.demonstrations[pick]
        messages += [shown.question, Message("assistant", shown.answer)]
    return (*messages, *row.prompt)


def asked_about(question: str, image: ImagePart | None) -> Message:
    """The user's message: the image, if there is one, then the question."""
    text = f"Question: {' '.join(question.split())}\nShort answer:"
    return Message("user", text, parts=() if image is None else (image, TextPart(text)))


def image_in(record: Record, file: Path, field: str) -> ImagePart:
    """The image in a file that `field` of a row names.

    Raises DataError with the row and the path where it is missing, unreadable or of another kind.
    """
    named = f"{field}: {file}"
    data = read_image(record, file, named)
    return ImagePart(
        sha256=sha256(data).hexdigest(),
        media_type=media_type(record, data, named),
        file=file,
        origin=(record.file, record.line, named),
    )
