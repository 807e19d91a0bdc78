"""Finds what two sets of rows share: questions, as written or in a normal form, functions, paths.

A question is its words and its images. Those of a row of several turns are its messages and those
in `extra["entry"]["question"]`. Its path is the calls of its gold answer, as Python text by turn,
in order; it is shared where a test row's whole path occurs within it. Functions are not compared
between two rows with paths, because both sides use the same simulators by design. Paraphrases are
not found. Dialogues may begin alike and hide a state of their own (a game): where one side has
several with one question, theirs is the question with the gold answer. `separate` drops shared
rows; the caller chooses the test items, and where a benchmark has worked examples its items contain
their questions too.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from assay.data.files import canonical_json, normalise_text, unspaced
from assay.data.loaded import Loaded
from assay.data.row import ImagePart, Row
from assay.data.tools import function_names


@dataclass(frozen=True, slots=True)
class Overlap:
    """Pairs and names that a train set shares with a test set."""

    exact: tuple[tuple[str, str], ...]
    """(train id, test id) with the same user text."""
    normalised: tuple[tuple[str, str], ...]
    """(train id, test id) with the same user text in a normal form; includes the exact ones."""
    functions: dict[str, tuple[str, ...]]
    """Function names that both sets have, each with the ids of the train rows that have it."""
    paths: tuple[tuple[str, str], ...] = ()
    """(train id, test id) where the train row makes all of the test row's calls in a row."""


Played = Callable[[Row], bool]
"""Whether a row begins a dialogue."""


def never(row: Row) -> bool:
    """That no row begins a dialogue."""
    return False


def overlap(
    train: Sequence[Row], test: Sequence[Row], played: Played = never, same_prompt: bool = False
) -> Overlap:
    """What `train` shares with `test`. Rows without user text share none. With `same_prompt`, a
    question is shared only together with its hidden state, and so are those of `openings`."""
    alike = None if same_prompt else openings(train, played) | openings(test, played)
    tested = {name for row in test for name in function_names(row.tools)}
    single = {name for row in test if not call_path(row) for name in function_names(row.tools)}
    shared = defaultdict(list)
    for row in train:
        apart = single if call_path(row) else tested
        for name in function_names(row.tools):
            if name in apart:
                shared[name].append(row.id)

    def pairs(forms: Callable[[str], Iterable[str]]) -> tuple[tuple[str, str], ...]:
        return _pairs(*(_forms(rows, alike, forms) for rows in (train, test)))

    return Overlap(
        exact=pairs(lambda text: [text]),
        # The line break keeps the second normal form apart.
        normalised=pairs(
            lambda text: [normalise_text(text), *(f"\n{f}" for f in [unspaced(text)] if f)]
        ),
        functions={name: tuple(ids) for name, ids in sorted(shared.items())},
        paths=_shared_paths(train, test),
    )


def question(row: Row) -> str:
    """A row's question: the text of its user messages, and the hashes of their images, since the
    same words about another image are another question."""
    messages = [message for message in row.messages if message.role == "user"]
    images = [p.sha256 for message in messages for p in message.parts if isinstance(p, ImagePart)]
    return "\n".join([*(message.content for message in messages), *images])


def openings(rows: Iterable[Row], played: Played) -> frozenset[str]:
    """Normal forms of the questions with which dialogues of several hidden states begin."""
    states: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        states[normalise_text(question(row))].setdefault(hidden_state(row), row)
    several = {text: by_state.values() for text, by_state in states.items() if len(by_state) > 1}
    return frozenset(text for text, each in several.items() if all(map(played, each)))


def hidden_state(row: Row) -> str:
    """What a row's world knows and its prompt does not say: the gold, else the further fields."""
    return canonical_json(dict(row.extra) if row.gold is None else row.gold)


def questions(row: Row) -> tuple[str, ...]:
    """A row's whole question, and that of each turn where it has several."""
    turns = row.extra.get("entry", {}).get("question", ())
    later = [message["content"] for turn in turns for message in turn if message["role"] == "user"]
    contents = [m.content for m in row.messages if m.role == "user"] if later else []
    return tuple(dict.fromkeys([question(row), *later, *contents]))


def call_path(row: Row) -> tuple[str, ...]:
    """The calls of a gold answer that is a list of turns of calls as Python text; else nothing.

    In a normal form: the name and the values in order of their text, however they were passed.
    """
    gold = row.gold
    if not isinstance(gold, list) or not all(isinstance(turn, list) for turn in gold):
        return ()
    return tuple(normal_call(call) for turn in gold for call in turn if isinstance(call, str))


def normal_call(source: str) -> str:
    """A call's name and values; text that is no call with plain values stays as it is."""
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    if not isinstance(call, ast.Call):
        return source
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return f"{ast.unparse(call.func)}({', '.join(sorted(map(ast.unparse, values)))})"


def _shared_paths(train: Sequence[Row], test: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    by_path = defaultdict(list)
    for row in test:
        if path := call_path(row):
            by_path[path].append(row.id)
    lengths = sorted({len(path) for path in by_path})
    return tuple(
        (row.id, test_id)
        for row in train
        for path in [call_path(row)]
        for length in lengths
        for first in range(len(path) - length + 1)
        for test_id in by_path.get(path[first : first + length], ())
    )


Alike = frozenset[str] | None
"""Normal forms of questions that hidden states tell apart; None: all."""


def _forms(
    rows: Iterable[Row], alike: Alike, forms: Callable[[str], Iterable[str]]
) -> Iterator[tuple[str, str]]:
    """The forms of every question with the row's id; with the row's hidden state where the question
    is no identity."""
    for row in rows:
        for words in questions(row):
            for text in forms(words):
                apart = text and (alike is None or (alike and normalise_text(words) in alike))
                yield f"{text}\n\n{hidden_state(row)}" if apart else text, row.id


def _pairs(
    train: Iterable[tuple[str, str]], test: Iterable[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    by_text = defaultdict(list)
    for text, row_id in test:
        by_text[text].append(row_id)
    pairs = ((i, test_id) for text, i in train if text for test_id in by_text.get(text, ()))
    return tuple(dict.fromkeys(pairs))


EXACT = "same question as a test item"
NORMALISED = "same question as a test item but for case, spaces and signs"
PATH = "same calls as a test item, one after another"
FUNCTION = "same function name as a test item"


def separate(
    rows: Sequence[Row], items: Sequence[Row], played: Played = never, same_prompt: bool = False
) -> Loaded:
    """`rows` without those that share something with `items`, each with the first reason found."""
    shared = overlap(rows, items, played, same_prompt)
    reasons = {
        EXACT: {train for train, _ in shared.exact},
        NORMALISED: {train for train, _ in shared.normalised},
        PATH: {train for train, _ in shared.paths},
        FUNCTION: {train for ids in shared.functions.values() for train in ids},
    }
    kept, dropped = [], defaultdict(list)
    for row in rows:
        reason = next((why for why, ids in reasons.items() if row.id in ids), None)
        if reason is None:
            kept.append(row)
        else:
            dropped[reason].append(row.id)
    return Loaded(tuple(kept), {reason: tuple(ids) for reason, ids in dropped.items()})
