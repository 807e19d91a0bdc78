"""Episodes run together without touching each other, within the model and within memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.episode import Turn, common, tokens_of
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.episodes import SPARE, run_episodes

END = 9


class Echo:
    """Writes as many tokens as the last of its context says, ending before the limit."""

    def __init__(self, kept: int | None = None):
        self.kept, self.calls, self.limits = kept, [], []

    @contextmanager
    def conversations(self) -> Iterator[int | None]:
        yield self.kept

    def sample(self, contexts: Sequence, keys: Sequence[SampleKey], sampling: Any) -> list[Turn]:
        self.calls.append([key.row for key in keys])
        self.limits.append(sampling.max_tokens)
        turns = []
        for context in contexts:
            wanted = (*[context[-1]] * context[-1], END)
            actions = wanted[: sampling.max_tokens]
            ended = "stop" if actions == wanted else "length"
            turns.append(Turn(context, actions, (True,) * len(actions), ended=ended))
        return turns


class World:
    """So many turns; each adds the model's tokens and an observation."""

    def __init__(self, first: tuple[int, ...], turns: int = 3, crash: int | None = None):
        self.tokens, self.left, self.crash, self.heard = first, turns, crash, 0

    def context(self) -> tuple[int, ...] | None:
        return self.tokens if self.left else None

    def act(self, turn: Turn) -> None:
        self.heard += 1
        if self.heard == self.crash:
            raise RuntimeError("the tool broke")
        self.tokens = (*self.tokens, *turn.actions, 2)
        self.left -= 1


def keys(count: int) -> list[SampleKey]:
    return [SampleKey(0, f"r{n}", 0) for n in range(count)]


FIRST = st.lists(st.integers(1, 4), min_size=1, max_size=40).map(tuple)


@given(st.lists(st.tuples(FIRST, st.integers(1, 4)), min_size=1, max_size=8), st.integers(1, 3000))
def test_what_is_remembered_changes_who_runs_together_and_nothing_else(worlds, kept):
    def played(policy: Echo) -> list:
        return run_episodes(
            policy, [World(*w) for w in worlds], keys(len(worlds)), Sampling(1.0, 5)
        )

    assert played(Echo(kept)) == played(Echo(None))


def test_no_more_episodes_run_together_than_are_remembered_but_always_one():
    worlds = [World((n,) * 600) for n in (1, 2, 3)]
    one = Echo(kept=1300)
    run_episodes(one, worlds, keys(3), Sampling(1.0, 2))
    assert {len(call) for call in one.calls} == {1}
    alike = Echo(kept=3000)
    run_episodes(alike, [World((1,) * 600) for _ in range(3)], keys(3), Sampling(1.0, 2))
    assert {len(call) for call in alike.calls} == {3}, "what they share counts once"


def test_a_turn_draws_from_its_own_key():
    policy = Echo()
    run_episodes(policy, [World((1,)), World((2,), turns=1)], keys(2), Sampling(1.0, 5))
    assert policy.calls == [["r0\x1f0", "r1\x1f0"], ["r0\x1f1"], ["r0\x1f2"]]


def test_an_environment_that_raises_ends_its_own_episode_and_keeps_its_turns():
    worlds = [World((1,)), World((1,), crash=2), World((1,))]
    whole, broken, other = run_episodes(Echo(), worlds, keys(3), Sampling(1.0, 5))
    assert broken.failure == "RuntimeError: the tool broke"
    assert len(broken.turns) == 2
    assert whole == other
    assert (len(whole.turns), whole.failure, whole.ended) == (3, "", "stop")


def test_a_turn_may_fill_the_positions_but_for_the_spare_ones():
    policy = Echo()
    (played,) = run_episodes(policy, [World((4, 4, 4))], keys(1), Sampling(1.0, 50), 3 + 4 + SPARE)
    assert policy.limits == [4]
    assert played.turns[0].ended == "length"
    assert played.ended == "context", "nothing more fits behind a turn that filled the model"


@pytest.mark.parametrize(("positions", "turns"), [(6, 0), (7, 1), (10, 1), (13, 2)])
def test_an_episode_without_room_ends_there_and_says_so(positions, turns):
    """Contexts of 4 and 8 tokens: one of 4 needs 4 + SPARE + 1 positions."""
    world = World((2, 2, 2, 2), turns=2)
    (played,) = run_episodes(Echo(), [world], keys(1), Sampling(1.0, 50), positions)
    assert len(played.turns) == turns
    assert played.ended == ("stop" if turns == 2 else "context")
    assert all(
        len(tokens_of(t.context)) + len(t.actions) + SPARE <= positions for t in played.turns
    )


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_the_common_beginning_is_the_longest_one(one, other):
    length = common(one, other)
    assert one[:length] == other[:length]
    assert one[: length + 1] != other[: length + 1] or length in (len(one), len(other))


class Talks(World):
    """Several conversations, the next of which begins where one is given up or over."""

    def __init__(self, *firsts: tuple[int, ...]):
        super().__init__(firsts[0], turns=1)
        self.later = list(firsts[1:])

    def context(self) -> tuple[int, ...] | None:
        if not self.left and self.later:
            self.skips()
        return super().context()

    def skips(self) -> bool:
        self.left = len(self.later[:1])
        self.tokens = self.later.pop(0) if self.later else ()
        return True


@pytest.mark.parametrize("long", [0, 1, 2])
def test_of_several_conversations_one_that_does_not_fit_is_given_up_and_the_others_go_on(long):
    firsts = [(1, 1), (2, 2), (3, 3)]
    firsts[long] = (1,) * 20  # type: ignore[call-overload, assignment]
    (played,) = run_episodes(Echo(), [Talks(*firsts)], keys(1), Sampling(1.0, 50), 12)
    assert [turn.context for turn in played.turns] == [f for f in firsts if len(f) == 2]
    assert (played.ended, played.failure) == ("stop", "")
