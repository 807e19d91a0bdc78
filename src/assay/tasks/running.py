"""Runs rewards as training and evaluation need them: side by side, with deadlines, never a false 0.

A pure reward runs here; one that is slow or unsafe runs in killable workers. Whatever goes wrong
becomes an abstention that says why, and is counted. Deciding how many are too many is the caller's.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Self

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row, ToolCall
from assay.errors import InputError
from assay.sandbox.isolation import Mode
from assay.sandbox.limits import Outcome
from assay.sandbox.pool import WorkerPool
from assay.tasks.task import RewardFunction, is_unsafe

DEADLINE_SECONDS = 10.0

Pair = tuple[Row, Completion]


@dataclass(frozen=True, slots=True)
class WorkerReward:
    """A reward whose slow or unsafe part is a function that a worker runs."""

    unsafe: ClassVar[bool] = True

    worker: str
    """"package.module:function", JSON in and JSON out."""
    ask: Callable[[Row, Completion], Reward | Mapping[str, Any]]
    """The reward where that is cheap to know, otherwise the arguments for the worker. Pure."""
    read: Callable[[Row, Completion, Any], Reward]
    """The reward from the worker's value. Pure."""
    folders: Callable[[], Sequence[str]] = tuple
    """Where the worker's function imports from beside the lab's own path; asked when it starts."""

    def __call__(self, row: Row, completion: Completion) -> Reward:
        """One completion in a worker of its own; `RewardRunner` is the way to score many."""
        with RewardRunner(self, workers=1) as runner:
            return runner.score([(row, completion)])[0]


@dataclass(frozen=True, slots=True)
class WeightedReward:
    """The weighted sum of several rewards; where one abstains, the whole does and names it."""

    rewards: Mapping[str, RewardFunction]
    weights: Mapping[str, float]
    """A weight for each reward's name."""

    def combine(self, parts: Mapping[str, Reward]) -> Reward:
        """The sum; its parts are each reward's value and, as "name/part", that reward's parts."""
        silent = [f"{name}: {part.why}" for name, part in parts.items() if part.value is None]
        flat = {name: part.value for name, part in parts.items() if part.value is not None}
        for name, part in parts.items():
            flat |= {f"{name}/{inner}": value for inner, value in part.parts.items()}
        if silent:
            return Reward(None, flat, "; ".join(silent))
        why = "; ".join(f"{name}: {part.why}" for name, part in parts.items() if part.why)
        return Reward(sum(self.weights[name] * flat[name] for name in parts), flat, why)


class RewardRunner:
    """Scores completions; keeps the worker processes between calls and counts abstentions."""

    def __init__(
        self,
        reward: RewardFunction | WeightedReward,
        deadline: float = DEADLINE_SECONDS,
        workers: int = 2,
        sandbox: Mode = "namespaces",
    ):
        """`deadline` is in seconds for each completion; `sandbox` "limits-only" leaves the
        namespaces out."""
        self.reward, self.deadline, self.workers = reward, deadline, workers
        self.sandbox: Mode = sandbox
        self.scored = 0
        """Completions seen, abstentions included."""
        self.abstentions: Counter[str] = Counter()
        """Why -> how often."""
        self._pools: dict[str, WorkerPool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    @property
    def abstained_share(self) -> float:
        """Abstentions over completions seen; 0 before the first."""
        return self.abstentions.total() / self.scored if self.scored else 0.0

    def score(self, pairs: Sequence[Pair]) -> list[Reward]:
        """The reward of each completion, in order.

        Raises WorkerStartError or IsolationUnavailable when a worker cannot be had at all.
        """
        if isinstance(self.reward, WeightedReward):
            columns = {name: self._run(each, pairs) for name, each in self.reward.rewards.items()}
            rewards = [
                self.reward.combine({name: column[i] for name, column in columns.items()})
                for i in range(len(pairs))
            ]
        else:
            rewards = self._run(self.reward, pairs)
        self.scored += len(rewards)
        self.abstentions.update(reward.why for reward in rewards if reward.value is None)
        return rewards

    def _run(self, reward: RewardFunction, pairs: Sequence[Pair]) -> list[Reward]:
        if isinstance(reward, WorkerReward):
            return self._run_in_workers(reward, pairs)
        if is_unsafe(reward):
            return self._run_in_workers(in_worker(reward), pairs)
        return [_guarded(reward, *pair) for pair in pairs]

    def _run_in_workers(self, reward: WorkerReward, pairs: Sequence[Pair]) -> list[Reward]:
        asked = [_guarded(reward.ask, *pair) for pair in pairs]
        open_ = [index for index, answer in enumerate(asked) if not isinstance(answer, Reward)]
        settled = {i: answer for i, answer in enumerate(asked) if isinstance(answer, Reward)}
        if open_:
            pool = self._pool(reward)
            outcomes = pool.map([asked[index] for index in open_], self.deadline)
            for index, outcome in zip(open_, outcomes, strict=True):
                settled[index] = _reward_from(reward, pairs[index], outcome)
        return [settled[index] for index in range(len(pairs))]

    def _pool(self, reward: WorkerReward) -> WorkerPool:
        if reward.worker not in self._pools:
            self._pools[reward.worker] = WorkerPool(
                reward.worker, self.workers, isolation=self.sandbox, folders=reward.folders()
            )
        return self._pools[reward.worker]


def _reward_from(reward: WorkerReward, pair: Pair, outcome: Outcome) -> Reward:
    if outcome.failure == "deadline":
        return Reward(None, why="deadline")
    if outcome.failure is not None:
        return Reward(None, why=f"{outcome.failure}: {outcome.why}")
    return _guarded(reward.read, *pair, outcome.value)


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result; an abstention where it raises or its value is not a finite number."""
    try:
        result = function(*arguments)
    except Exception as error:  # one bad completion is data, not the end of a run
        return Reward(None, why=f"exception: {type(error).__name__}: {error}")
    if isinstance(result, Reward) and result.value is not None and not math.isfinite(result.value):
        return Reward(None, result.parts, f"the value is {result.value}")
    return result


def in_worker(function: RewardFunction) -> WorkerReward:
    """`function` as a reward that runs whole in a worker, in namespaces.

    Raises InputError when it has no importable name (a lambda, or defined inside a function).
    """
    name = getattr(function, "__qualname__", "<unnamed>")
    if "<" in name or "." in name:
        raise InputError(
            f"the unsafe reward {name} cannot run in a worker", fix="define it in a module"
        )
    place = f"{function.__module__}:{name}"

    def ask(row: Row, completion: Completion) -> Mapping[str, Any]:
        return {
            "function": place,
            "row": dataclasses.asdict(row),
            "completion": dataclasses.asdict(completion),
        }

    def read(row: Row, completion: Completion, value: Any) -> Reward:
        return Reward(**value)

    return WorkerReward("assay.tasks.running:score_in_worker", ask, read)


def score_in_worker(
    function: str, row: Mapping[str, Any], completion: Mapping[str, Any]
) -> dict[str, Any]:
    """The worker's side of `in_worker`: the reward of a row and completion sent as JSON."""
    module, _, name = function.partition(":")
    messages = tuple(_message(message) for message in row["messages"])
    sent = Row(**{**row, "messages": messages, "tools": tuple(row["tools"])})
    said = tuple(_message(message) for message in completion["messages"])
    tokens = tuple(completion["tokens"])
    received = Completion(**{**completion, "tokens": tokens, "messages": said})
    return dataclasses.asdict(getattr(import_module(module), name)(sent, received))


def _message(sent: Mapping[str, Any]) -> Message:
    calls = tuple(ToolCall(**call) for call in sent["tool_calls"])
    return Message(**{**sent, "tool_calls": calls})
