"""The multi-turn categories of BFCL v4: entries read as rows, and the dialogue that plays one.

Rows are as upstream's loader gives them (`bfcl_eval.utils.load_dataset_entry`, with the language
hint that it adds by default): functions are the docs of the involved classes in their order; those
that a turn of `missed_function` adds are withheld until then.

A turn begins with the user's message. Then, step by step: the model writes, its calls are executed
and each result is a tool message; a message without calls, or one that cannot be decoded, ends the
turn. After more steps of one turn than the row's `step_limit`, upstream's 20 without one, the
episode is over, as it is after calls that end the simulators. Functions that the
entry withheld are offered from their turn on: added to the tools, as upstream's handlers of hosted
models do (inference_multi_turn_FC), or written into the turn's message, as its handlers of local
models do, Qwen3's among them (inference_multi_turn_prompting). Source:
bfcl_eval/model_handler/base_handler.py. Upstream drops text beside calls from the history; here the
model's messages stay as it wrote them.

`decode` reads a message (`parsing.DECODERS`); rendering is the caller's.

The simulators live in worker processes, which start with the first request and end with the lab.
They run upstream's own functions on literal arguments, never text that a model wrote; limits and
deadlines are for the functions themselves, which a model can ask for 9 ** 999999999, and namespaces
for what such a function may do with an argument that nobody thought of.
"""

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from assay.data.episode import Completion, Ended, Reward
from assay.data.row import Message, Row, ToolCall
from assay.data.tools import function_names
from assay.data.wheels import wheel_directory
from assay.errors import InputError, RunFailure, look_up
from assay.labs.tools.parsing import (
    Decode,
    MessageCalls,
    PythonCall,
    call_text,
    decode_message,
    read_call,
)
from assay.labs.tools.rewards import WHEEL
from assay.sandbox.isolation import Mode, chosen_isolation
from assay.sandbox.limits import CallOutcome, Limits
from assay.sandbox.pool import WorkerPool
from assay.tasks.no_verdict import earned
from assay.tasks.running import WorkerReward
from assay.tasks.task import Asked

MULTI_TURN = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
HINT = " Note that the provided function is in Python 3 syntax."
DOCS = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
}
"""Simulator -> the file of its function docs (upstream: MULTI_TURN_FUNC_DOC_FILE_MAPPING)."""


def multi_turn_entries(category: str) -> tuple[Row, ...]:
    """All entries of `category` in the source's order.

    `messages` and `tools` are those of the first turn, `gold` the calls of each turn as Python
    text, `extra` the "category" and the "entry": upstream's, its `missed_function` as docs, without
    the docs that are in `tools`. The categories write the same 200 scenes, so entries of one number
    share a `conversation`. Raises InputError for a category that is not in MULTI_TURN.
    """
    look_up(dict.fromkeys(MULTI_TURN), category, "multi-turn category of BFCL")
    data = wheel_directory(WHEEL) / "bfcl_eval" / "data"
    name = f"BFCL_v4_{category}.json"
    questions, answers = _lines(data / name), _lines(data / "possible_answer" / name)
    return tuple(
        _row(category, json.loads(question), json.loads(answer)["ground_truth"], f"{name}:{line}")
        for line, (question, answer) in enumerate(zip(questions, answers, strict=True), start=1)
    )


def is_multi_turn(row: Row) -> bool:
    """Whether the row is an entry of several turns, with simulators."""
    return "entry" in row.extra


def first_turn(row: Row) -> Row:
    """The row with its first turn's messages alone, where it holds a whole conversation."""
    return replace(row, messages=messages_of(row.extra["entry"]["question"][0]))


def truth_messages(row: Row) -> list[Message]:
    """What the assistant says in a dialogue that is right: in each turn the calls of the truth in
    one message, then a word that ends the turn. Positional arguments have their names from the
    order in the docs."""
    added = row.extra["entry"].get("missed_function", {}).values()
    docs = [*row.tools, *(doc for docs in added for doc in docs)]
    order = {doc["name"]: tuple(doc["parameters"]["properties"]) for doc in docs}
    messages: list[Message] = []
    for turn in row.gold or ():
        calls = tuple(_by_name(read_call(call), order) for call in turn)
        messages += [Message("assistant", "", tool_calls=calls)] if calls else []
        messages.append(Message("assistant", "Done."))
    return messages


def _by_name(call: PythonCall, order: Mapping[str, tuple[str, ...]]) -> ToolCall:
    positional = zip(order.get(call.name, ()), call.positional, strict=False)
    return ToolCall(call.name, {**dict(positional), **call.named})


def messages_of(turn: Sequence[Mapping[str, str]]) -> tuple[Message, ...]:
    """The messages of one turn of an entry's `question`."""
    return tuple(Message(each["role"], each["content"]) for each in turn)  # pyright: ignore[reportArgumentType]


def function_docs(class_name: str) -> list[dict[str, Any]]:
    """The docs of a simulator's functions as the wheel has them; the caller's to change."""
    folder = wheel_directory(WHEEL) / "bfcl_eval" / "data" / "multi_turn_func_doc"
    return [json.loads(line) for line in _lines(folder / DOCS[class_name])]


def hinted(docs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The docs as a prompt shows them."""
    return tuple({**doc, "description": doc["description"] + HINT} for doc in docs)


@functools.cache
def _lines(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8").splitlines())


def _row(category: str, entry: dict[str, Any], truth: Any, origin: str) -> Row:
    docs = {doc["name"]: doc for name in entry["involved_classes"] for doc in function_docs(name)}
    if "missed_function" in entry:
        # Upstream withholds before it hints, so that these docs never get the hint.
        entry["missed_function"] = {
            turn: [docs.pop(name) for name in names]
            for turn, names in entry["missed_function"].items()
        }
    return Row(
        id=entry["id"],
        messages=messages_of(entry["question"][0]),
        tools=hinted(list(docs.values())),
        gold=truth,
        conversation=f"multi_turn_{entry['id'].rpartition('_')[2]}",
        origin=origin,
        extra={"category": category, "entry": entry},
    )


RUN = "assay.labs.tools.simulators:run"
JUDGE = "assay.labs.tools.simulators:judge"
DEADLINE_SECONDS = 10.0
WORKERS = 2
# The long states print megabytes.
LIMITS = Limits(output_bytes=16 << 20)


def wheel_folders() -> tuple[str]:
    """Where workers import upstream from. Raises InputError when the wheel cannot be had."""
    return (str(wheel_directory(WHEEL)),)


def functions_of(row: Row) -> tuple[str, ...]:
    """The functions that may be called in a row's dialogue: those offered at its start, and those
    that a later turn adds (upstream, too, executes them before they are offered)."""
    added = row.extra["entry"].get("missed_function", {}).values()
    return function_names([*row.tools, *(doc for docs in added for doc in docs)])


def run_calls(row: Row, done: Sequence[str], calls: Sequence[str]) -> list[str] | str:
    """What `calls` give in the row's entry after the calls `done`; how they end the simulators,
    where they end a second, fresh worker too and those before do not: that is the model's doing.
    RunFailure says nothing of the calls.
    """
    request = {**_world(row), "done": list(done)}
    try:
        return ask(RUN, {**request, "calls": list(calls)})
    except RunFailure as error:
        ask(RUN, {**request, "calls": []})
        return str(error)


def judging(row: Row, turns: Sequence[Sequence[Sequence[str]]]) -> dict[str, Any]:
    """What the worker's `judge` needs to judge the calls of a row's dialogue."""
    return {**_world(row), "truth": row.gold, "turns": turns}


def ask(function: str, arguments: Mapping[str, Any]) -> Any:
    """One request to a function of a worker, tried twice. Raises RunFailure."""
    isolation = chosen_isolation()
    outcome = _pool(function, isolation).map([arguments], DEADLINE_SECONDS)[0]
    if outcome.failure is not None:
        with _new_pool(function, isolation) as fresh:
            outcome = fresh.map([arguments], DEADLINE_SECONDS)[0]
    if outcome.failure is not None:
        raise RunFailure(f"the simulators gave no answer: {outcome.failure}: {outcome.why}")
    return outcome.value


def _world(row: Row) -> dict[str, Any]:
    entry = row.extra["entry"]
    needed = {key: entry[key] for key in ("id", "initial_config", "involved_classes")}
    return {"entry": needed, "functions": list(functions_of(row))}


def _new_pool(function: str, isolation: Mode) -> WorkerPool:
    return WorkerPool(function, WORKERS, LIMITS, isolation, wheel_folders())


_pool = functools.cache(_new_pool)


STEP_LIMIT = 20
CALLS_FAILED = "Error during execution"
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"

Added = Literal["tools", "text"]
"""Where functions are offered that a turn adds."""
ADDED: Mapping[str, Added] = {"tools": "tools", "text": "text"}

Execute = Callable[[Row, Sequence[str], Sequence[str]], list[str] | str]
"""Results of calls in a row's entry, after the calls that were made before; see `run_calls`."""


class MultiTurnDialogue:
    """One episode with a row that `is_multi_turn`; a `tasks.task.Dialogue`."""

    def __init__(
        self,
        row: Row,
        execute: Execute = run_calls,
        added: Added = "tools",
        decode: Decode = decode_message,
    ):
        self._row, self._execute, self._added, self._decode = row, execute, added, decode
        self._tools = row.tools
        self._written: list[Message] = []
        self._done: list[str] = []
        self._turn, self._steps = 0, 0
        self._over = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """See `Dialogue.messages`."""
        return tuple(self._written)

    def asks(self) -> Asked | None:
        """See `Dialogue.asks`."""
        return None if self._over else Asked((*self._row.prompt, *self._written), self._tools)

    def hears(self, text: str, ended: Ended = "stop") -> None:
        """See `Dialogue.hears`. Raises RunFailure where the calls are not at fault."""
        self._written.append(Message("assistant", text))
        calls = [call.source for call in self._decode(text).calls]
        if not calls:
            self._next_turn()
            return
        results = self._execute(self._row, self._done, calls)
        if isinstance(results, str):
            self._written.append(Message("tool", f"{CALLS_FAILED}: {results}"))
            self._over = True
            return
        self._written += [Message("tool", result) for result in results]
        self._done += calls
        self._steps += 1
        self._over = self._steps > self._row.extra.get("step_limit", STEP_LIMIT)

    def _next_turn(self) -> None:
        entry = self._row.extra["entry"]
        self._turn, self._steps = self._turn + 1, 0
        self._over = self._turn == len(entry["question"])
        if self._over:
            return
        key = str(self._turn)
        if key in entry.get("missed_function", {}):
            self._offer(entry["missed_function"][key])
        else:
            self._written += messages_of(entry["question"][self._turn])

    def _offer(self, docs: list[dict[str, Any]]) -> None:
        if self._added == "tools":
            self._tools = (*self._tools, *docs)
            self._written.append(Message("user", MORE_FUNCTIONS))
        else:
            self._written.append(Message("user", f"{docs}\n{MORE_FUNCTIONS}"))


INFERENCE_ERROR = "multi_turn:inference_error"


@dataclass(frozen=True, slots=True)
class Heard:
    """What a dialogue comes to: the model's messages decoded, turn by turn."""

    turns: tuple[tuple[MessageCalls, ...], ...]

    @property
    def calls(self) -> list[list[list[str]]]:
        """Calls as Python by turn and step; as upstream, a step without any is none."""
        return [
            [[call.source for call in step.calls] for step in turn if step.calls]
            for turn in self.turns
        ]

    def refused(self, functions: tuple[str, ...]) -> Counter[str]:
        """Why messages and calls were not executed, and how often."""
        steps = [step for turn in self.turns for step in turn]
        reasons = Counter(step.error for step in steps if step.error not in ("", "no_call"))
        unknown = sum(call.name not in functions for step in steps for call in step.calls)
        return reasons + Counter(unknown_function=unknown)


def spoken(messages: Sequence[Message]) -> list[list[str]]:
    """What the model wrote after a row's prompt; a turn begins where the user speaks."""
    turns: list[list[str]] = [[]] if messages else []
    for of_user, run in groupby(messages, lambda message: message.role == "user"):
        if of_user:
            turns.append([])
        else:
            turns[-1] += [message.content for message in run if message.role == "assistant"]
    return turns


def heard(messages: Sequence[Message], decode: Decode = decode_message) -> Heard:
    """The messages after a row's prompt, decoded."""
    return Heard(tuple(tuple(map(decode, turn)) for turn in spoken(messages)))


def _ask(decode: Decode, row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    if not is_multi_turn(row):
        raise InputError(f"row {row.id} has no simulators", fix="use a reward of single answers")
    return judging(row, heard(completion.messages, decode).calls)


def _read(
    name: str, decode: Decode, row: Row, completion: Completion, value: Mapping[str, Any]
) -> Reward:
    turns = heard(completion.messages, decode)
    refused = turns.refused(functions_of(row))
    calls = sum(len(step) for turn in turns.calls for step in turn)
    parts = {
        "binary": float(value["valid"]),
        "per_turn": value["passed"] / value["checked"] if value["checked"] else 1.0,
        "final_state": float(value["final_state"] and calls > 0),
        "calls": float(calls),
        "refused": float(refused.total()),
    }
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(refused.items()))
    return Reward(parts[name], parts, f"refused: {reasons}" if reasons else "")


def dialogue_error(row: Row, completion: Completion, decode: Decode = decode_message) -> str:
    """Upstream's type of what is wrong with a dialogue; "" when nothing is.

    Raises RunFailure.
    """
    turns = heard(completion.messages, decode)
    if not turns.turns:
        return INFERENCE_ERROR
    return ask(JUDGE, judging(row, turns.calls))["error_type"]


def _failed(row: Row, completion: Completion, failure: CallOutcome) -> Reward:
    """0 for a dialogue whose calls end the simulators."""
    parts = {"binary": 0.0, "per_turn": 0.0, "final_state": 0.0}
    return earned(0.0, parts, failure)


def truth_completion(row: Row) -> Completion:
    """A dialogue that makes the calls of the truth, turn by turn."""
    messages: list[Message] = []
    for message in truth_messages(row):
        calls = message.tool_calls
        messages.append(
            replace(message, content=call_text(calls) or message.content, tool_calls=())
        )
        messages += [] if calls else [Message("user", "")]
    return Completion("", messages=tuple(messages[:-1]))


def dialogue_reward(name: str, decode: Decode = decode_message) -> WorkerReward:
    """The reward whose value is the part `name`."""
    return WorkerReward(
        JUDGE,
        partial(_ask, decode),
        partial(_read, name, decode),
        folders=wheel_folders,
        failed=_failed,
        gold=truth_completion,
    )


DIALOGUE_REWARDS = {
    f"dialogue_{name}": dialogue_reward(name) for name in ("binary", "per_turn", "final_state")
}
