"""Runs episodes of several turns against environments, all active ones together.

An environment says what the policy sees next and takes what it did; tool calls, simulators and
text belong to it. Every turn keeps the context it really had.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from assay.data.episode import Context, Episode, Reward, Turn
from assay.rl.policy import Policy, SampleKey


class Environment(Protocol):
    """One episode's world."""

    def context(self) -> Context | None:
        """What the policy sees next; None when the episode is over."""
        ...

    def act(self, turn: Turn) -> None:
        """Take the policy's turn."""
        ...

    def reward(self) -> Reward:
        """What the finished episode earned."""
        ...


@dataclass
class _Running:
    """An episode under way."""

    id: str
    group: str
    environment: Environment
    turns: list[Turn]
    failure: str = ""


def run_episodes(
    policy: Policy,
    environments: Sequence[tuple[str, str, Environment]],
    keys: Sequence[SampleKey],
    sampling: Any,
) -> list[Episode]:
    """One finished episode per (id, group, environment), in order.

    Turn t of an episode draws from its key with sample number extended by t. An environment that
    raises ends its episode with an abstention that says why; the others go on.
    """
    running = [_Running(id, group, world, []) for id, group, world in environments]
    with policy.conversations():
        while take_turns(policy, running, keys, sampling):
            pass
    return [finished(r) for r in running]


def take_turns(
    policy: Policy, running: Sequence[_Running], keys: Sequence[SampleKey], sampling: Any
) -> bool:
    """One turn for every episode that is not over; whether there was any."""
    waiting = [
        (r, key, context)
        for r, key in zip(running, keys, strict=True)
        if not r.failure and (context := guarded(r, r.environment.context)) is not None
    ]
    if not waiting:
        return False
    turns = policy.sample(
        [context for _, _, context in waiting],
        [replace(key, row=f"{key.row}\x1f{len(r.turns)}") for r, key, _ in waiting],
        sampling,
    )
    for (r, _, _), turn in zip(waiting, turns, strict=True):
        r.turns.append(turn)
        guarded(r, lambda r=r, turn=turn: r.environment.act(turn))
    return True


def guarded(running: _Running, call: Any) -> Any:
    """The call's result; an exception is kept as the episode's failure."""
    try:
        return call()
    except Exception as error:
        running.failure = f"{type(error).__name__}: {error}"
        return None


def finished(running: _Running) -> Episode:
    """The episode with its reward, or with an abstention where its world failed."""
    reward = None if running.failure else guarded(running, running.environment.reward)
    if reward is None:
        reward = Reward(None, why=f"environment: {running.failure}")
    return Episode(running.id, running.group, tuple(running.turns), reward)
