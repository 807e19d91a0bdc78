"""Runs episodes of several turns against environments, as many together as the cache holds.

An environment gives the policy's next context and takes its turn; tool calls, simulators and text
are its part. Every turn keeps the context it was sampled from. Nothing is judged here, and which
episodes run together never changes the tokens drawn.
"""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Condition
from typing import Any, Protocol

from assay.data.episode import Context, Ended, Turn, common, tokens_of
from assay.rl.policy import SampleKey, Sampling

PLACES = 256
"""Processes that count without sharing a place, by the end of their ids."""


@dataclass(frozen=True)
class _Count:
    told: Callable[[int], None]
    places: memoryview
    owner: int

    def add(self, turns: int) -> None:
        self.places[os.getpid() % PLACES] += turns
        if os.getpid() == self.owner:
            self.told(sum(self.places))


_COUNT: ContextVar[_Count | None] = ContextVar("finished_turns", default=None)


@contextmanager
def telling(told: Callable[[int], None]) -> Iterator[None]:
    """Inside, `told` hears of the number of turns that are finished, in the caller's thread; of
    episodes of several, how many episodes are over."""
    places = memoryview(mmap.mmap(-1, 8 * PLACES)).cast("q")
    token = _COUNT.set(_Count(told, places, os.getpid()))
    try:
        yield
    finally:
        _COUNT.reset(token)


def turn_finished(turns: int = 1) -> None:
    """A turn is finished, sampled or trained on."""
    if (count := _COUNT.get()) is not None:
        count.add(turns)


@contextmanager
def counting_episodes() -> Iterator[Callable[[int], None]]:
    """Inside, turns are not counted; gives what counts so many episodes that are over instead."""
    count = _COUNT.get()
    token = _COUNT.set(None)
    try:
        yield count.add if count else lambda over: None
    finally:
        _COUNT.reset(token)


TURN = "\x1f"
"""Between the row and the number of a turn in its key."""
SPARE = 2
"""Positions that stay free behind a turn, as BFCL's local handlers leave them: they ask for at most
`positions - context - 2` tokens."""
GROWTH = 512
"""Tokens by which an episode is expected to grow, when there is to be memory for it."""


class Environment(Protocol):
    """One episode's world."""

    def context(self) -> Context | None:
        """What the policy sees next; None when it is over. Asking twice changes nothing."""
        ...

    def act(self, turn: Turn) -> None:
        """Take the policy's turn."""
        ...


def skips(environment: object) -> bool:
    """Whether an environment, or a dialogue, goes on without the context that it gave last: one
    that consists of several has a method `skips` that gives up the one which cannot be read."""
    own = getattr(environment, "skips", None)
    return own is not None and own()


class Samples(Protocol):
    """The part of `rl.policy.Policy` that episodes need; a sampler alone has it too."""

    def sample(
        self, contexts: Sequence[Context], keys: Sequence[SampleKey], sampling: Sampling
    ) -> list[Turn]:
        """One turn per context."""
        ...

    def conversations(self) -> AbstractContextManager[int | None]:
        """See `rl.policy.Policy.conversations`."""
        ...


@dataclass(frozen=True, slots=True)
class Played:
    """An episode as it went."""

    turns: tuple[Turn, ...]
    ended: Ended
    """As the last turn did, or "context"; "stored" where there was no turn at all."""
    failure: str = ""
    """What the environment raised, which ended the episode."""


@dataclass
class _Running:
    """An episode under way."""

    place: int
    environment: Environment
    key: SampleKey
    turns: list[Turn] = field(default_factory=list)
    context: Context | None = None
    overlong: bool = False
    failure: str = ""

    def look(self, positions: int | None) -> bool:
        """Ask for the next context; whether there is one that can be answered."""
        try:
            self.context = self.environment.context()
            while self._outgrows(positions) and skips(self.environment):
                self.context = self.environment.context()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a world's SystemExit too ends this episode alone
            self.fail(error)
        self.overlong = self._outgrows(positions)
        return not self.failure and self.context is not None and not self.overlong

    def _outgrows(self, positions: int | None) -> bool:
        if self.context is None or positions is None:
            return False
        return len(tokens_of(self.context)) + SPARE >= positions

    def take(self, turn: Turn) -> None:
        """Pass the turn to the environment."""
        self.turns.append(turn)
        try:
            self.environment.act(turn)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a world's SystemExit too ends this episode alone
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Keep what the environment raised: it ends this episode and no other."""
        self.failure = f"{type(error).__name__}: {error}"

    @property
    def played(self) -> Played:
        """What is left of it when it is over."""
        ended: Ended = self.turns[-1].ended if self.turns else "stored"
        return Played(tuple(self.turns), "context" if self.overlong else ended, self.failure)


def run_episodes(
    policy: Samples,
    environments: Sequence[Environment],
    keys: Sequence[SampleKey],
    sampling: Sampling,
    positions: int | None = None,
) -> list[Played]:
    """Every environment's episode, in order.

    Turn t of an episode draws from its key with the row extended by t. An environment that raises
    ends its own episode. With `positions`, contexts are tokens: a turn may fill them but for SPARE,
    and an episode whose next context leaves no token to write ends as "context".
    """
    if environments and hasattr(environments[0], "begin"):
        return run_agents(policy, environments, keys, sampling, positions)  # type: ignore[arg-type]
    running = [
        _Running(place, world, key)
        for place, (world, key) in enumerate(zip(environments, keys, strict=True))
    ]
    with policy.conversations() as kept, counting_episodes() as count:
        ready = [r for r in running if r.look(positions)]
        count(len(running) - len(ready))
        if kept is not None:
            # Episodes that begin alike run one after the other, while what they share is kept.
            ready.sort(key=by_context)
        active: list[_Running] = []
        while active or ready:
            admit(active, ready, kept)
            take_turns(policy, active, sampling, positions)
            still = [r for r in active if r.look(positions)]
            count(len(active) - len(still))
            active = still
    return [r.played for r in running]


class SlowEnvironment(Environment, Protocol):
    """An environment that takes its time, and names its turns by what they ask."""

    @property
    def agent(self) -> Any:
        """Has `together`, how many episodes run at once, and `news`, a `Condition` that is notified
        when one may have stopped waiting."""
        ...

    def begin(self, key: SampleKey) -> None:
        """Start it."""
        ...

    def waits(self) -> bool:
        """Whether `context` would have to wait."""
        ...

    @property
    def name(self) -> str:
        """The name of the turn that is sampled next."""
        ...

    def sampling(self, sampling: Sampling) -> Sampling:
        """The settings of the turn that is sampled next."""
        ...

    def ordered(self) -> tuple[Turn, ...]:
        """The turns in an order that does not depend on when they came."""
        ...


GATHER_SECONDS = 5.0
"""For which the requests of all agents are awaited once one is there."""
SETTLE_SECONDS = 0.005
"""For which nothing new has to come: an agent may send several requests at once."""


def settle(agents: Sequence[SlowEnvironment], news: Condition) -> None:
    """Wait until every agent has sent what it sends before it is answered, or has ended.

    Batches are then the same in every run of agents that take less than GATHER_SECONDS between two
    requests, and with them the last bits of log-probabilities.
    """
    with news:
        news.wait_for(lambda: not any(each.waits() for each in agents), GATHER_SECONDS)
        news.wait_for(lambda: not all(each.waits() for each in agents))
        while news.wait(SETTLE_SECONDS):
            pass


def run_agents(
    policy: Samples,
    agents: Sequence[SlowEnvironment],
    keys: Sequence[SampleKey],
    sampling: Sampling,
    positions: int | None = None,
) -> list[Played]:
    """Every agent's episode, in order, some of them at once; see `run_episodes`.

    Each waits until all others have sent their next request (`settle`).
    """
    together, news = agents[0].agent.together, agents[0].agent.news
    running = [
        _Running(place, agent, key)
        for place, (agent, key) in enumerate(zip(agents, keys, strict=True))
    ]
    coming, begun = list(running), []
    with policy.conversations() as kept, counting_episodes() as count:
        while coming or begun:
            while coming and len(begun) < together:
                begun.append(coming.pop(0))
                agents[begun[-1].place].begin(begun[-1].key)
            settle([agents[r.place] for r in begun], news)
            ready = [r for r in begun if not agents[r.place].waits()]
            over = [r for r in ready if not r.look(positions)]
            count(len(over))
            begun = [r for r in begun if r not in over]
            active: list[_Running] = []
            waiting = sorted((r for r in ready if r not in over), key=by_context)
            admit(active, waiting, kept)
            take_turns(policy, active, sampling, positions, agents)
    return [replace(r.played, turns=agents[r.place].ordered()) for r in running]


def by_context(running: _Running) -> tuple[tuple[int, ...], int]:
    """The order in which episodes that begin alike run one after the other."""
    return tokens_of(running.context or ()), running.place


def admit(active: list[_Running], ready: list[_Running], kept: int | None) -> None:
    """Move waiting episodes to the active ones while the keys of all fit together."""
    while ready:
        together = [*active, ready[0]]
        if active and kept is not None and kept_tokens(together) > kept:
            return
        active.append(ready.pop(0))


def kept_tokens(episodes: Sequence[_Running]) -> int:
    """Tokens whose keys all these contexts need; what several begin with counts once."""
    contexts = sorted(tokens_of(r.context or ()) for r in episodes)
    shared = sum(common(one, other) for one, other in pairwise(contexts))
    return sum(map(len, contexts)) - shared + GROWTH * len(contexts)


def take_turns(
    policy: Samples,
    active: Sequence[_Running],
    sampling: Sampling,
    positions: int | None,
    agents: Sequence[SlowEnvironment] | None = None,
) -> None:
    """One turn for every active episode."""
    for limited, group in by_limit(active, sampling, positions, agents):
        names = [str(len(r.turns)) if agents is None else agents[r.place].name for r in group]
        keys = [
            replace(r.key, row=f"{r.key.row}{TURN}{name}")
            for r, name in zip(group, names, strict=True)
        ]
        turns = policy.sample([r.context for r in group], keys, limited)
        for r, turn in zip(group, turns, strict=True):
            r.take(turn)


def by_limit(
    active: Sequence[_Running],
    sampling: Sampling,
    positions: int | None,
    agents: Sequence[SlowEnvironment] | None = None,
) -> Iterator[tuple[Sampling, list[_Running]]]:
    """Episodes with the sampling that leaves them within the model's positions; that of agents is
    what each asks for."""
    groups: dict[Sampling, list[_Running]] = {}
    for r in active:
        limited = sampling if agents is None else agents[r.place].sampling(sampling)
        if positions is not None:
            room = positions - SPARE - len(tokens_of(r.context or ()))
            limited = replace(limited, max_tokens=min(limited.max_tokens, room))
        groups.setdefault(limited, []).append(r)
    yield from groups.items()
