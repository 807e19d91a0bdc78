"""What two sets of rows share: questions word for word, questions in normal form, functions.

Paraphrases are not found.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assay.data.hashing import normalise_text
from assay.data.row import Row
from assay.data.tools import function_names


@dataclass(frozen=True, slots=True)
class Overlap:
    """Pairs and names that a train set shares with a test set."""

    exact: tuple[tuple[str, str], ...]
    """(train id, test id) with the same user text."""
    normalised: tuple[tuple[str, str], ...]
    """(train id, test id) with the same user text in normal form; includes the exact ones."""
    functions: dict[str, tuple[str, ...]]
    """Function names that both sets have, each with the ids of the train rows that have it."""

    @property
    def train_ids(self) -> frozenset[str]:
        """The train rows that share anything: the ones to drop."""
        texts = {train for train, _ in self.exact + self.normalised}
        return frozenset(texts.union(*self.functions.values()))


def overlap(train: Sequence[Row], test: Sequence[Row]) -> Overlap:
    """What `train` shares with `test`. Rows without user text share none."""
    tested = {name for row in test for name in function_names(row.tools)}
    shared = defaultdict(list)
    for row in train:
        for name in function_names(row.tools):
            if name in tested:
                shared[name].append(row.id)
    return Overlap(
        exact=_pairs(
            [(question(row), row.id) for row in train], [(question(row), row.id) for row in test]
        ),
        normalised=_pairs(_normalised(train), _normalised(test)),
        functions={name: tuple(ids) for name, ids in sorted(shared.items())},
    )


def question(row: Row) -> str:
    """What a row asks: the text of its user messages."""
    return "\n".join(message.content for message in row.messages if message.role == "user")


def _normalised(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return [(normalise_text(question(row)), row.id) for row in rows]


def _pairs(
    train: Iterable[tuple[str, str]], test: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    by_text = defaultdict(list)
    for text, row_id in test:
        by_text[text].append(row_id)
    return tuple(
        (train_id, test_id) for text, train_id in train if text for test_id in by_text.get(text, ())
    )
