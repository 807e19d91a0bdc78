"""Generated tasks of several turns on BFCL's simulators: training data apart from the benchmark.

`source = "simulated:COUNT"` gives the first COUNT tasks of a stream that is the same every time;
`"simulated_held_out:COUNT"` those of another that shares no question and no path of calls with it.
A task begins in a state of its own, has one or two simulators, one to four turns in words from
templates, and TOOLS functions, or as many as its calls need. Its calls are executed in the worker
(`simulated_proof.prove_all`); a task that does not prove itself there is dropped with the reason.
Function docs are upstream's; states, names, numbers and questions are drawn from `generated/`
(`drawing`). That no task asks or calls what an entry of the benchmark does is by construction, and
`assay check` proves it again.

A scene is a table of a file of `generated/`: its simulator; `draw`, names to bind; `state`, the
simulator's state at the start; and `ask`, what can be asked of it, in this order. An ask names what
it needs, then what the user says, a short reply, in which `{result}` stands for the first value in
the last call's result, and the calls.
"""

import functools
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawing import Draw, Names, Side, row_count, tables

from assay.data.row import Message, Row, ToolCall
from assay.errors import RunFailure
from assay.labs.tools.multi_turn import LIMITS, WORKERS, function_docs, hinted, wheel_folders
from assay.labs.tools.parsing import PythonCall
from assay.sandbox.isolation import chosen_isolation
from assay.sandbox.pool import WorkerPool
from assay.tasks.task import Loaded

CATEGORY = "simulated"
SEED = 20261
TOOLS = 6
CHARACTERS = 2100
"""Of function docs, so that whole conversations stay under 1,500 tokens of SmolLM2."""
TURNS = 4
STEP_LIMIT = 8
"""Steps of one turn; no turn's truth takes more than half as many, and a model that repeats itself
would spend most of an evaluation."""
BATCH = 50
"""Tasks that the worker proves in one request."""
DEADLINE_SECONDS = 60.0

SCENES = {
    "file": "files",
    "number": "files",
    "ticket": "office",
    "message": "office",
    "post": "office",
    "trade": "trade",
    "car": "trade",
    "travel": "trade",
}
"""Scene -> its file in `generated/`."""
PAIRS = (
    ("file", "message"),
    ("file", "post"),
    ("trade", "message"),
    ("car", "message"),
    ("number", "ticket"),
    ("trade", "number"),
    ("travel", "message"),
    ("ticket", "post"),
)
"""Scenes that go together; no two of them have a function in common."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn: what the user says, the calls that do it, and a short answer."""

    text: str
    calls: tuple[ToolCall, ...]
    reply: str
    """`{0}` stands for the first value in the last call's result."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A simulator's state at the start, and the turns that are played with it."""

    simulator: str
    config: Mapping[str, Any]
    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A task before its calls were executed."""

    id: str
    simulators: tuple[str, ...]
    config: Mapping[str, Any]
    asks: tuple[Ask, ...]
    tools: tuple[dict[str, Any], ...]

    @property
    def entry(self) -> dict[str, Any]:
        """The task in the form of an upstream entry."""
        return {
            "id": self.id,
            "question": [[{"role": "user", "content": ask.text}] for ask in self.asks],
            "initial_config": dict(self.config),
            "involved_classes": list(self.simulators),
            "path": [call.name for ask in self.asks for call in ask.calls],
        }

    @property
    def truth(self) -> list[list[str]]:
        """The calls of each turn as Python text."""
        return [[python(call) for call in ask.calls] for ask in self.asks]


def read_simulated(count: str) -> Loaded:
    """The rows of `simulated:COUNT`. Raises InputError, RunFailure."""
    return proven(count, "train")


def read_held_out(count: str) -> Loaded:
    """The rows of `simulated_held_out:COUNT`. Raises InputError, RunFailure."""
    return proven(count, "held_out")


def proven(count: str, side: Side) -> Loaded:
    """The first tasks of a side; those that do not prove themselves are dropped by reason."""
    tasks = list(draw_tasks(row_count(count, "simulated", "tasks"), side))
    rows, dropped = [], defaultdict(list)
    for task, proof in zip(tasks, prove(tasks), strict=True):
        if proof["problem"]:
            dropped[f"the task does not prove itself: {proof['problem']}"].append(task.id)
        else:
            rows.append(row_of(task, proof["results"]))
    return Loaded(tuple(rows), {reason: tuple(ids) for reason, ids in dropped.items()})


def draw_tasks(count: int, side: Side) -> Iterator[Drawn]:
    """Different tasks: no two have the same questions."""
    seen: set[tuple[str, ...]] = set()
    number = 0
    while len(seen) < count:
        task = draw_task(number, len(seen), side)
        number += 1
        questions = tuple(ask.text for ask in task.asks)
        if questions not in seen:
            seen.add(questions)
            yield task


def draw_task(number: int, place: int, side: Side) -> Drawn:
    """The task of a number of the stream, which depends on nothing else."""
    draw = Draw(random.Random(f"{SEED} {side} {number}"), side)
    turns = draw.random.randint(1, TURNS)
    if turns > 1 and draw.random.random() < 0.4:
        one, other = draw.random.choice(PAIRS)
        first = draw.random.randint(1, turns - 1)
        scenes = [draw_scene(draw, one, first), draw_scene(draw, other, turns - first)]
    else:
        scenes = [draw_scene(draw, draw.random.choice(tuple(SCENES)), turns)]
    simulators = tuple(scene.simulator for scene in scenes)
    asks = affordable(tuple(ask for scene in scenes for ask in scene.asks), simulators)
    return Drawn(
        id=f"{CATEGORY}_{side}_{place}",
        simulators=simulators,
        config={scene.simulator: scene.config for scene in scenes},
        asks=asks,
        tools=tools_of(draw, simulators, [call.name for ask in asks for call in ask.calls]),
    )


def draw_scene(draw: Draw, name: str, turns: int) -> Scene:
    """A scene with as many different turns, in the order of its table."""
    file = tables(SCENES[name])
    scene = file[name]
    # The reply is formatted again once the calls have been executed.
    names = Names(draw, file["values"], {"result": "{0}"}).bind(scene.get("draw", {}))
    config = names.fill(scene.get("state", {}))
    asks = scene["ask"]
    chosen = draw.random.sample(range(len(asks)), min(turns, len(asks)))
    return Scene(scene["simulator"], config, tuple(_ask(names, asks[i]) for i in sorted(chosen)))


def _ask(names: Names, table: Mapping[str, Any]) -> Ask:
    filled = names.bind(table)
    calls = tuple(ToolCall(name, args) for call in filled["calls"] for name, args in call.items())
    return Ask(filled["say"], calls, filled["reply"])


def affordable(asks: tuple[Ask, ...], simulators: Sequence[str]) -> tuple[Ask, ...]:
    """The turns up to where the functions that they need take more than CHARACTERS."""
    docs = docs_of(tuple(simulators))
    while len(asks) > 1:
        needed = {call.name for ask in asks for call in ask.calls}
        if sum(shown(docs[name]) for name in needed) <= CHARACTERS:
            break
        asks = asks[:-1]
    return asks


def tools_of(
    draw: Draw, simulators: Sequence[str], needed: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """The docs of the functions that a task needs, and of others up to TOOLS and CHARACTERS, in
    upstream's order. A task that needs more than that has those alone.
    """
    docs = docs_of(tuple(simulators))
    chosen = set(needed)
    others = [name for name in docs if name not in chosen]
    for name in draw.random.sample(others, len(others)):
        size = sum(shown(docs[one]) for one in (*chosen, name))
        if len(chosen) < TOOLS and size <= CHARACTERS:
            chosen.add(name)
    return hinted([doc for name, doc in docs.items() if name in chosen])


@functools.cache
def docs_of(simulators: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The docs of all functions of some simulators, by name; not to be changed."""
    return {doc["name"]: doc for name in simulators for doc in function_docs(name)}


def shown(doc: Mapping[str, Any]) -> int:
    """Characters of a doc that a prompt shows."""
    return len(doc["name"]) + len(doc["description"]) + len(json.dumps(doc["parameters"]))


def prove(tasks: Sequence[Drawn]) -> list[dict[str, Any]]:
    """The worker's proof of each task, in order. Raises RunFailure."""
    requests = [
        {
            "tasks": [
                {
                    "entry": task.entry,
                    "functions": [tool["name"] for tool in task.tools],
                    "truth": task.truth,
                }
                for task in tasks[first : first + BATCH]
            ]
        }
        for first in range(0, len(tasks), BATCH)
    ]
    worker, folders = "simulated_proof:prove_all", (*wheel_folders(), str(Path(__file__).parent))
    with WorkerPool(worker, WORKERS, LIMITS, chosen_isolation(), folders) as pool:
        outcomes = pool.map(requests, DEADLINE_SECONDS)
    for outcome in outcomes:
        if outcome.failure is not None:
            raise RunFailure(f"tasks could not be proven: {outcome.failure}: {outcome.why}")
    return [proof for outcome in outcomes for proof in outcome.value]


def row_of(task: Drawn, results: Sequence[Sequence[str]]) -> Row:
    """The task as a row whose messages are the whole gold conversation."""
    messages: list[Message] = []
    for ask, found in zip(task.asks, results, strict=True):
        messages.append(Message("user", ask.text))
        for call, result in zip(ask.calls, found, strict=True):
            messages += [Message("assistant", "", (call,)), Message("tool", result)]
        messages.append(Message("assistant", ask.reply.format(first_value(found[-1]))))
    return Row(
        id=task.id,
        messages=tuple(messages),
        tools=task.tools,
        gold=task.truth,
        conversation=task.id,
        extra={"category": CATEGORY, "entry": task.entry, "step_limit": STEP_LIMIT},
    )


def first_value(result: str) -> str:
    """The first value of a result that is a JSON object; otherwise the result."""
    try:
        value = json.loads(result)
    except ValueError:
        return result
    return str(next(iter(value.values()))) if isinstance(value, dict) and value else result


def python(call: ToolCall) -> str:
    """The call as BFCL writes it."""
    return PythonCall(call.name, (), dict(call.arguments)).source
