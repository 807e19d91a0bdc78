"""Reads and writes files of stored selections, in the JSON of Lever-Plus's RL data.

One object by query: its question, its pool, and candidates with what the frozen model made of
them; keys that are no numbers, such as `_meta`, are not queries. Two conventions of indices are in
use: with `pointer_global` a `pointer` holds places in the query's pool, without it numbers of
demonstrations. Which row a query is, and what is done with a candidate, is the caller's.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from assay.data.json_files import load_json
from assay.data.message_parts import images_in
from assay.data.row import Row
from assay.errors import InputError
from assay.labs.demos.demonstrations import ANSWERS, POOL
from assay.labs.demos.outcomes import (
    Accuracy,
    EvalMode,
    SelectionOutcome,
    edit_similarity,
    normalised,
    token_f1,
)

METHODS = ("beam", "retrieval", "sample", "random")
"""How a selection was found; of equal ones the first method's is kept."""
MODES: Mapping[str, EvalMode] = {
    "vqaEval": "official",
    "fallback": "fallback",
    "error": "error",
    "train": "official",
    "val": "official",
    "simple_match": "fallback",
}
"""`vqa_eval_mode` -> what scored the answer. Its augmentation writes the split whose annotations
the official metric read, its mining a rule of its own."""
NAMES: Mapping[EvalMode, str] = {"official": "vqaEval", "fallback": "fallback", "error": "error"}
META = "_meta"
BY_SCORE = "beam_score"
"""What `_meta.reward` says of a file whose rewards are the scores of a search."""
ROUNDING = 1e-4
"""By so much a probability may leave 0 to 1: sums in float32 do."""
DIGITS = 6
"""Decimals that are written: what depends on the order of a sum lies below them."""


NOT_ASKED = SelectionOutcome("", "", Accuracy(0.0, "error", "no answer was asked for"), 0.0)
"""Of a selection that was only ranked."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One stored selection and its outcome."""

    picks: tuple[int, ...]
    """Numbers of demonstrations; the first stands next to the query."""
    method: str
    """One of METHODS, or what another program calls it."""
    outcome: SelectionOutcome = NOT_ASKED
    rank: int | None = None
    """Place in its beam search, from 0."""
    score: float | None = None
    """What the search ranked by: the InfoScore, or the selector's log-probability."""
    logp: float | None = None
    """Log-probability under the selector that drew it."""
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query of a file."""

    number: int
    """The file's key."""
    question_id: str
    candidates: tuple[Candidate, ...]
    pool: tuple[int, ...] | None = None
    """The numbers of its pool; None in files without."""


@dataclass(frozen=True)
class SelectionFile:
    """The queries of a file in its order, and what it says of itself."""

    path: Path
    queries: tuple[StoredQuery, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def by_score(self) -> bool:
        """Whether its rewards are the scores of a search, and no outcome is needed."""
        return self.meta.get("reward") == BY_SCORE


def file_text(entries: Mapping[int, Mapping[str, Any]], meta: Mapping[str, Any]) -> str:
    """A file, one query a line."""
    lines = [f'"{number}": {_json(entry)}' for number, entry in entries.items()]
    return "{\n" + ",\n".join([*lines, f'"{META}": {_json(meta)}']) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def query_entry(row: Row, number: int, candidates: Iterable[Candidate]) -> dict[str, Any]:
    """The entry of a query; its candidates' pointers are places in the row's pool."""
    return {
        "query": {
            "query_id": number,
            "question_id": row.id,
            "image_id": next((part.sha256 for part in images_in(row.prompt)), None),
            "question": row.prompt[-1].content,
            "gt_answers_raw": list(row.extra[ANSWERS]),
            "gt_answers_norm": [normalised(answer) for answer in row.extra[ANSWERS]],
        },
        "candidate_pool_ids": list(row.extra[POOL]),
        "pointer_candidates": [_candidate_entry(row, each) for each in candidates],
    }


def _candidate_entry(row: Row, candidate: Candidate) -> dict[str, Any]:
    places = [row.extra[POOL].index(pick) for pick in candidate.picks]
    outcome, answers = candidate.outcome, row.extra[ANSWERS]
    failed = outcome.accuracy.mode == "error"
    return {
        "pointer": places,
        "pointer_pos": places,
        "pointer_global": list(candidate.picks),
        "gen_method": candidate.method,
        "beam_rank": candidate.rank,
        "beam_score": _rounded(candidate.score),
        "logprob_score": _rounded(candidate.logp),
        "temperature": candidate.temperature,
        "vqa_raw_generation": outcome.generation,
        "vqa_pred_answer": outcome.prediction,
        "vqa_correct": int(outcome.correct),
        "vqa_acc_score": outcome.accuracy.score,
        "vqa_gt_prob": _rounded(outcome.gold_probability),
        "vqa_rel_token_f1": _rounded(token_f1(outcome.prediction, answers)),
        "vqa_rel_edit_sim": _rounded(edit_similarity(outcome.prediction, answers)),
        "vqa_rel_score": _rounded(outcome.relevance),
        "vqa_eval_mode": NAMES[outcome.accuracy.mode],
        "eval_split_used": "fallback" if outcome.accuracy.mode == "fallback" else None,
        "eval_failed": failed,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


@dataclass(frozen=True, slots=True)
class _Place:
    """A value of a file and where it stands, for its message."""

    file: Path
    query: str
    value: Any
    field: str = ""

    def inner(self, name: str | int) -> "_Place":
        """The value under a key, None without one, or at a place of a list."""
        listed = isinstance(name, int)
        value = self.value[name] if listed else self.value.get(name)
        dotted = f"{self.field}.{name}" if self.field else str(name)
        return replace(self, value=value, field=f"{self.field}[{name}]" if listed else dotted)

    def refuse(self, problem: str, fix: str | None = None) -> NoReturn:
        """Raise InputError."""
        field = f"query {self.query}" + (f": {self.field}" if self.field else "")
        raise InputError(problem, file=self.file, field=field, fix=fix)

    def typed(self, kind: type) -> "_Place":
        """Itself, where its value is an object or a list."""
        if not isinstance(self.value, kind):
            self.refuse(f"is no {'object' if kind is dict else 'list'}")
        return self

    def each(self) -> "Iterator[_Place]":
        """The values of a list."""
        yield from map(self.typed(list).inner, range(len(self.value)))

    def numbers(self) -> tuple[int, ...]:
        """Different numbers from 0."""
        value = self.value
        if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
            self.refuse("is no list of numbers from 0")
        if len(set(value)) < len(value):
            self.refuse(f"{value} names one twice")
        return tuple(value)

    def number(self, share: bool = False) -> float | None:
        """A number, or none; a `share` lies between 0 and 1."""
        value = self.value
        if value is not None and type(value) not in (int, float):
            self.refuse(f"{value!r} is no number")
        if value is None or not share:
            return value
        if not -ROUNDING <= value <= 1 + ROUNDING:
            self.refuse(f"{value:g} is not between 0 and 1")
        return min(max(value, 0.0), 1.0)


def read_selection_file(path: Path) -> SelectionFile:
    """The queries of a file. Raises InputError with file, query and field."""
    try:
        content = load_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from error
    if not isinstance(content, dict):
        raise InputError("is no object of queries", file=path)
    entries = [_Place(path, key, value) for key, value in content.items() if key.isdecimal()]
    if not entries:
        raise InputError("holds no query", file=path, fix="its keys are the queries' numbers")
    meta = content.get(META)
    meta = meta if isinstance(meta, dict) else {}
    first: tuple[bool, str] | None = None
    pointers = [entry for entry in entries if "pointer_candidates" in entry.typed(dict).value]
    for place in (each for entry in pointers for each in entry.inner("pointer_candidates").each()):
        local = place.typed(dict).value.get("pointer_global") is not None
        first = first or (local, place.query)
        if first[0] != local:
            has, other = ("has", "has not") if local else ("has no", "has")
            problem = f"mixed index conventions: it {has} pointer_global, query {first[1]} {other}"
            place.inner("pointer").refuse(problem, "write pointer_global everywhere, or nowhere")
    return SelectionFile(path, tuple(map(_query, entries)), meta)


def _query(entry: _Place) -> StoredQuery:
    query = entry.inner("query").typed(dict).value if "query" in entry.value else {}
    pool = entry.inner("candidate_pool_ids")
    numbers = None if pool.value is None else pool.numbers()
    if "pointer_candidates" not in entry.value:
        entry.inner("pointer_candidates").refuse("missing")
    candidates = tuple(
        _candidate(each, numbers) for each in entry.inner("pointer_candidates").each()
    )
    question = str(query.get("question_id", query.get("query_id", entry.query)))
    return StoredQuery(int(entry.query), question, candidates, numbers)


def _candidate(entry: _Place, pool: Sequence[int] | None) -> Candidate:
    pointer, places = entry.inner("pointer"), entry.inner("pointer_pos")
    picks = pointer.numbers()
    if entry.value.get("pointer_global") is not None:
        picks = entry.inner("pointer_global").numbers()
        _same_places(pointer, picks, pool)
    elif pool is not None:
        if outside := [pick for pick in picks if pick not in pool]:
            fix = "places in the pool need pointer_global beside them"
            pointer.refuse(f"{outside[0]} is not in candidate_pool_ids", fix)
        # Without a pool they are places in one that was not kept, and beside `pointer_global`
        # perhaps in one before the pools were made anew.
        if places.value is not None:
            _same_places(places, picks, pool)
    return Candidate(
        picks,
        str(entry.value.get("gen_method") or ""),
        _outcome(entry),
        entry.value.get("beam_rank"),
        entry.inner("beam_score").number(),
        entry.inner("logprob_score").number(),
        entry.inner("temperature").number(),
    )


def _same_places(place: _Place, picks: Sequence[int], pool: Sequence[int] | None) -> None:
    """Refuse places in the pool that do not hold the picks."""
    if pool is None:
        place.refuse("holds places in a pool, and the query has no candidate_pool_ids")
    for index in place.numbers():
        if index >= len(pool):
            place.refuse(f"{index} is out of range: the pool holds {len(pool)}")
    if (items := [pool[index] for index in place.numbers()]) != list(picks):
        place.refuse(f"means the demonstrations {items}, and {list(picks)} are picked")


def _outcome(entry: _Place) -> SelectionOutcome:
    mode, stated = _mode(entry), entry.inner("vqa_acc_score")
    score = stated.number(share=True)
    if score is None and mode != "error":
        stated.refuse("missing")
    correct = entry.inner("vqa_correct")
    own_rule = entry.value.get("vqa_eval_mode") == "simple_match"
    if mode != "error" and not own_rule and correct.value not in (None, int((score or 0) > 0)):
        fix = "1 is every score above 0; leave vqa_correct out where another rule wrote it"
        correct.refuse(f"{correct.value!r} with vqa_acc_score {score:g}", fix)
    return SelectionOutcome(
        str(entry.value.get("vqa_raw_generation") or ""),
        str(entry.value.get("vqa_pred_answer") or ""),
        Accuracy(score or 0.0, mode),
        entry.inner("vqa_rel_score").number(share=True) or 0.0,
        entry.inner("vqa_gt_prob").number(share=True),
    )


def _mode(entry: _Place) -> EvalMode:
    name = entry.value.get("vqa_eval_mode")
    if entry.value.get("eval_failed"):
        return "error"
    if name is None:
        return "fallback" if entry.value.get("eval_split_used") == "fallback" else "official"
    if name not in MODES:
        entry.inner("vqa_eval_mode").refuse(f"{name!r} is none of {', '.join(MODES)}")
    return MODES[name]
