"""Reads and writes files of stored selections, in the JSON of Lever-Plus's RL data; reads the beams
of Lever-LM as well.

One object by query: its question, its pool, and candidates with what the frozen model made of
them; keys that are no numbers, such as `_meta`, are not queries. Two conventions of indices are in
use: with `pointer_global` a `pointer` holds places in the query's pool, without it numbers of
demonstrations. Which row a query is, and what is done with a candidate, is the caller's.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from assay.data.json_files import load_json
from assay.data.row import ImagePart, Row
from assay.errors import InputError
from assay.tasks.demos.demonstrations import ANSWERS, POOL
from assay.tasks.demos.outcomes import (
    Accuracy,
    EvalMode,
    SelectionOutcome,
    edit_similarity,
    token_f1,
)
from assay.tasks.demos.vqa_accuracy import normalised

Method = Literal["beam", "sample", "retrieval", "random", "augmented"]
METHODS: tuple[Method, ...] = ("beam", "retrieval", "sample", "random", "augmented")
"""How a selection was found; of equal ones the first method's is kept."""
AUGMENTED: Mapping[Method, re.Pattern[str]] = {
    "beam": re.compile(r"sft_beam_.+"),
    "sample": re.compile(r"sft_temp_.+"),
    "augmented": re.compile(r"aug_.+|global_search|mined_from_old"),
}
"""The methods that Lever-Plus's scripts for more data write, by what they come to."""
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


class BadSelectionFile(InputError):
    """A file of stored selections that cannot be read."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One stored selection and its outcome."""

    picks: tuple[int, ...]
    """Numbers of demonstrations; the first stands next to the query."""
    method: Method
    outcome: SelectionOutcome
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

    @property
    def laid_out_otherwise(self) -> bool:
        """Whether its outcomes are of prompts in which the query stood behind the last pick, as
        those of Lever-LM and Lever-Plus. In this lab's, whose `_meta` names the set of
        demonstrations, it stands next to the first (`selections.conversation`)."""
        return "demonstrations" not in self.meta


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
            "image_id": next(_images(row), None),
            "question": row.prompt[-1].content,
            "gt_answers_raw": list(row.extra[ANSWERS]),
            "gt_answers_norm": [normalised(answer) for answer in row.extra[ANSWERS]],
        },
        "candidate_pool_ids": list(row.extra[POOL]),
        "pointer_candidates": [_candidate_entry(row, each) for each in candidates],
    }


def _images(row: Row) -> Iterator[str]:
    return (part.sha256 for m in row.prompt for part in m.parts if isinstance(part, ImagePart))


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
    """Where in a file something stands, for its message."""

    file: Path
    query: str
    field: str = ""

    def inner(self, name: str) -> "_Place":
        return _Place(self.file, self.query, f"{self.field}.{name}" if self.field else name)

    def refuse(self, problem: str, fix: str | None = None) -> NoReturn:
        field = f"query {self.query}" + (f": {self.field}" if self.field else "")
        raise BadSelectionFile(problem, file=self.file, field=field, fix=fix)


def read_selection_file(path: Path) -> SelectionFile:
    """The queries of a file. Raises BadSelectionFile with file, query and field."""
    try:
        found = load_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadSelectionFile(f"cannot be read: {error}", file=path) from error
    if not isinstance(found, dict):
        raise BadSelectionFile("is no object of queries", file=path)
    entries = {key: value for key, value in found.items() if key.isdecimal()}
    if not entries:
        raise BadSelectionFile("holds no query", file=path, fix="its keys are the queries' numbers")
    meta = found.get(META)
    meta = meta if isinstance(meta, dict) else {}
    if all(isinstance(value, dict) and "id_list" in value for value in entries.values()):
        queries = [_beams(_Place(path, key), value) for key, value in entries.items()]
        return SelectionFile(path, tuple(queries), {"reward": BY_SCORE, **meta})
    convention = _Convention()
    queries = [_query(_Place(path, key), value, convention) for key, value in entries.items()]
    return SelectionFile(path, tuple(queries), meta)


NOT_ASKED = SelectionOutcome("", "", Accuracy(0.0, "error", "no answer was asked for"), 0.0)
"""Of a selection that was only ranked."""


def _beams(place: _Place, entry: Mapping[str, Any]) -> StoredQuery:
    """The sequences of a Lever-LM: each list ends in the query itself."""
    lists = _typed(place.inner("id_list"), entry["id_list"], list)
    scores = _typed(place.inner("score_list"), entry.get("score_list"), list)
    if len(scores) != len(lists):
        place.inner("score_list").refuse(f"has {len(scores)} scores of {len(lists)} sequences")
    candidates = []
    for n, each in enumerate(lists):
        where = place.inner(f"id_list[{n}]")
        *picks, query = _numbers(where, each) or (-1,)
        if str(query) != place.query:
            where.refuse(f"ends in {query}", "a sequence ends in its query's own number")
        score = _number(place, {"score_list": scores[n]}, "score_list")
        candidates.append(Candidate(tuple(picks), "beam", NOT_ASKED, n, score))
    return StoredQuery(int(place.query), place.query, tuple(candidates))


@dataclass
class _Convention:
    """Whether pointers are places in pools, by the first candidate of a file."""

    local: bool | None = None
    query: str = ""

    def agree(self, place: _Place, local: bool) -> None:
        if self.local is None:
            self.local, self.query = local, place.query
        if self.local != local:
            has, other = ("has", "has not") if local else ("has no", "has")
            problem = (
                f"mixed index conventions: it {has} pointer_global, query {self.query} {other}"
            )
            place.inner("pointer").refuse(problem, "write pointer_global everywhere, or nowhere")


def _query(place: _Place, entry: Any, convention: _Convention) -> StoredQuery:
    entry = _typed(place, entry, dict)
    about = _typed(place.inner("query"), entry.get("query", {}), dict)
    pool = entry.get("candidate_pool_ids")
    if pool is not None:
        pool = _numbers(place.inner("candidate_pool_ids"), pool)
    if "pointer_candidates" not in entry:
        fix = "beams of a Lever-LM have id_list and score_list in every query"
        place.inner("pointer_candidates").refuse("missing", fix)
    given = _typed(place.inner("pointer_candidates"), entry["pointer_candidates"], list)
    candidates = []
    for n, each in enumerate(given):
        where = place.inner(f"pointer_candidates[{n}]")
        candidates.append(_candidate(where, _typed(where, each, dict), pool, convention))
    question = str(about.get("question_id", about.get("query_id", place.query)))
    return StoredQuery(int(place.query), question, tuple(candidates), pool)


def _candidate(
    place: _Place, entry: Mapping[str, Any], pool: Sequence[int] | None, convention: _Convention
) -> Candidate:
    method = _method(place, entry.get("gen_method"))
    convention.agree(place, entry.get("pointer_global") is not None)
    return Candidate(
        _picks(place, entry, pool),
        method,
        _outcome(place, entry),
        entry.get("beam_rank"),
        _number(place, entry, "beam_score"),
        _number(place, entry, "logprob_score"),
        _number(place, entry, "temperature"),
    )


def _method(place: _Place, name: Any) -> Method:
    if name in METHODS:
        return name
    for method, pattern in AUGMENTED.items():
        if isinstance(name, str) and pattern.fullmatch(name):
            return method
    return place.inner("gen_method").refuse(f"{name!r} is none of {', '.join(METHODS)}")


def _picks(place: _Place, entry: Mapping[str, Any], pool: Sequence[int] | None) -> tuple[int, ...]:
    """The numbers of the picked demonstrations, whichever convention the file follows.

    `pointer_pos` is compared only where it says something of the pool of the file: without one it
    holds places in a pool that was not kept, and beside `pointer_global` perhaps those before the
    pools were made anew.
    """
    pointer = _numbers(place.inner("pointer"), entry.get("pointer"))
    picks, places = pointer, entry.get("pointer_pos")
    if entry.get("pointer_global") is not None:
        picks = _numbers(place.inner("pointer_global"), entry["pointer_global"])
        _same_places(place.inner("pointer"), pointer, picks, pool)
        return picks
    if pool is not None and (outside := [pick for pick in picks if pick not in pool]):
        fix = "places in the pool need pointer_global beside them"
        place.inner("pointer").refuse(f"{outside[0]} is not in candidate_pool_ids", fix)
    if places is not None and pool is not None:
        where = place.inner("pointer_pos")
        _same_places(where, _numbers(where, places), picks, pool)
    return picks


def _same_places(
    place: _Place, places: Sequence[int], picks: Sequence[int], pool: Sequence[int] | None
) -> None:
    """Refuse places in the pool that do not hold the picks."""
    if pool is None:
        place.refuse("holds places in a pool, and the query has no candidate_pool_ids")
    for index in places:
        if index >= len(pool):
            place.refuse(f"{index} is out of range: the pool holds {len(pool)}")
    if (found := [pool[index] for index in places]) != list(picks):
        place.refuse(f"means the demonstrations {found}, and {list(picks)} are picked")


def _outcome(place: _Place, entry: Mapping[str, Any]) -> SelectionOutcome:
    mode = _mode(place, entry)
    score = _share(place, entry, "vqa_acc_score")
    if score is None and mode != "error":
        place.inner("vqa_acc_score").refuse("missing")
    correct = entry.get("vqa_correct")
    own_rule = entry.get("vqa_eval_mode") == "simple_match"
    if mode != "error" and not own_rule and correct not in (None, int((score or 0) > 0)):
        fix = "1 is every score above 0; leave vqa_correct out where another rule wrote it"
        place.inner("vqa_correct").refuse(f"{correct!r} with vqa_acc_score {score:g}", fix)
    return SelectionOutcome(
        str(entry.get("vqa_raw_generation") or ""),
        str(entry.get("vqa_pred_answer") or ""),
        Accuracy(score or 0.0, mode),
        _share(place, entry, "vqa_rel_score") or 0.0,
        _share(place, entry, "vqa_gt_prob"),
    )


def _mode(place: _Place, entry: Mapping[str, Any]) -> EvalMode:
    if entry.get("eval_failed"):
        return "error"
    name = entry.get("vqa_eval_mode")
    if name is None:
        return "fallback" if entry.get("eval_split_used") == "fallback" else "official"
    if name not in MODES:
        place.inner("vqa_eval_mode").refuse(f"{name!r} is none of {', '.join(MODES)}")
    return MODES[name]


def _numbers(place: _Place, value: Any) -> tuple[int, ...]:
    """Different numbers from 0."""
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        place.refuse("is no list of numbers from 0")
    if len(set(value)) < len(value):
        place.refuse(f"{value} names one twice")
    return tuple(value)


def _number(place: _Place, entry: Mapping[str, Any], name: str) -> float | None:
    value = entry.get(name)
    if value is not None and type(value) not in (int, float):
        place.inner(name).refuse(f"{value!r} is no number")
    return value


def _share(place: _Place, entry: Mapping[str, Any], name: str) -> float | None:
    value = _number(place, entry, name)
    if value is not None and not -ROUNDING <= value <= 1 + ROUNDING:
        place.inner(name).refuse(f"{value:g} is not between 0 and 1")
    return None if value is None else min(max(value, 0.0), 1.0)


def _typed(place: _Place, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        place.refuse(f"is no {'object' if kind is dict else 'list'}")
    return value
