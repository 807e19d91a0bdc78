"""Rewards that judge a batch of completions and may ask helper models, run in threads.

What the judge could not know is an abstention with its reason: where it raises, takes longer than
its deadline, or returns what no record can hold. What the policy did is the judge's to score.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.errors import RunFailure, look_up
from assay.rl.policy import SampleKey
from assay.sandbox.limits import CallOutcome
from assay.tasks.helper_model import DECLARE, Caller, HelperFailed, HelperModel, Question
from assay.tasks.no_verdict import Failed, attempt, nothing_earned
from assay.tasks.user_code import as_value

Pair = tuple[Row, Completion]
Judge = Callable[[Sequence[Pair], Mapping[str, HelperModel]], Sequence[Reward]]
"""One reward per completion, in order. It is called from several threads at once."""


@dataclass(frozen=True, slots=True)
class JudgeReward:
    """A reward that is given to a batch of completions."""

    judge: Judge
    helpers: tuple[str, ...] = ()
    """The helper models that it asks, by the names of their tables; it is given no others."""
    questions: int | None = 1
    """What it asks each of them about a completion; None where that is the completion's choice."""
    batch: int | None = 1
    """Completions of one call; None is all of a step, or of a chunk of an evaluation."""
    least_seconds: float = 0.0
    """That a batch is given, also where the deadline of its completions is less."""
    longest: int | None = None
    """Characters; a longer completion is not judged: it earns what `failed` says."""
    failed: Failed = nothing_earned
    """The reward of a completion that is too long. Pure."""
    maximum: float | None = None
    """The full reward; None is what the task says, or 1. `math.inf` for one that grades without a
    full value, such as a log-probability."""
    maker: Callable[..., "JudgeReward"] | None = None
    """Makes the reward with other options, which are its parameters with defaults."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What its judgements depend on beside code and options, such as a rubric; for fingerprints."""
    of_stored: Callable[[Mapping[str, Any]], Reward] | None = None
    """The same reward of a stored candidate, by what it holds; None where a model must be asked.
    Pure."""

    def __call__(self, row: Row, completion: Completion) -> Reward:
        """One completion, without helper models; `running.RewardRunner` is the way to judge."""
        return self.judge([(row, completion)], {})[0]


def answers(
    helper: HelperModel, conversations: Sequence[Sequence[Message]], keys: Sequence[str]
) -> list[str]:
    """What a helper model answers as its table says, in order; `keys` name the random numbers.

    Raises HelperFailed where an answer failed, so that a judge abstains.
    """
    sent = zip(conversations, keys, strict=True)
    replies = helper.answer(
        [Question(each, helper.sampling, SampleKey(0, key, 0)) for each, key in sent]
    )
    for each in replies:
        if each.failure:
            raise HelperFailed(f"{helper.name} gave no answer: {each.failure}")
    return [each.text for each in replies]


Done = Callable[[int, Reward], None]
"""Told the place and the reward of each completion as soon as it is judged."""


def run_judge(
    reward: JudgeReward,
    pairs: Sequence[Pair],
    helpers: Mapping[str, HelperModel],
    *,
    concurrency: int,
    deadline: float,
    done: Done,
) -> None:
    """Judge all pairs, at most `concurrency` batches at a time, each within `deadline` seconds for
    each of its completions, and at least the reward's own.

    Raises what `done` raises, InputError, and RunFailure, which stops the run.
    What is under way then is judged to its end, since it may have been paid for.
    """
    models = {name: look_up(helpers, name, "helper model", DECLARE) for name in reward.helpers}
    short = []
    for n, (row, completion) in enumerate(pairs):
        if reward.longest is not None and len(completion.text) > reward.longest:
            why = f"{len(completion.text)} characters, more than {reward.longest}"
            done(n, reward.failed(row, completion, CallOutcome(failure="length", why=why)))
        else:
            short.append(n)
    size = reward.batch or max(len(short), 1)
    batches = [short[i : i + size] for i in range(0, len(short), size)]
    waiting, running = [*range(len(batches))][::-1], dict[int, float]()
    finished = queue.SimpleQueue[tuple[int, list[Reward] | RunFailure]]()
    stopped: RunFailure | None = None

    def seconds(number: int) -> float:
        return max(deadline * len(batches[number]), reward.least_seconds)

    while (waiting and stopped is None) or running:
        while waiting and stopped is None and len(running) < concurrency:
            number = waiting.pop()
            running[number] = time.monotonic() + seconds(number)
            batch = [pairs[n] for n in batches[number]]
            work = number, reward.judge, batch, helpers_for(batch, models), finished
            # A daemon: a judge that hangs must not keep the process from ending.
            threading.Thread(target=_judge, args=work, name="assay-judge", daemon=True).start()
        try:
            came = [finished.get(timeout=max(min(running.values()) - time.monotonic(), 0.0))]
        except queue.Empty:  # what a call returns that outlived its deadline is not looked at
            now = time.monotonic()
            came = [(number, list[Reward]()) for number, end in running.items() if end <= now]
        for number, rewards in came:
            if running.pop(number, None) is None:
                continue
            if isinstance(rewards, RunFailure):
                stopped = rewards
                continue
            late = Reward(None, why=f"the judge took more than {seconds(number):g} seconds")
            places = batches[number]
            for n, each in zip(places, rewards or [late] * len(places), strict=True):
                done(n, each)
    if stopped is not None:
        raise stopped


def _judge(
    number: int,
    judge: Judge,
    batch: Sequence[Pair],
    helpers: Mapping[str, HelperModel],
    finished: "queue.SimpleQueue[tuple[int, list[Reward] | RunFailure]]",
) -> None:
    try:
        finished.put((number, judged_batch(judge, batch, helpers)))
    except RunFailure as error:
        finished.put((number, error))


def helpers_for(
    batch: Sequence[Pair], helpers: Mapping[str, HelperModel]
) -> dict[str, HelperModel]:
    """The helper models with their calls recorded for the step under way, and for the completion
    where there is one alone."""
    caller = Caller()
    if len(batch) == 1:
        row, completion = batch[0]
        caller = Caller(problem=row.id, completion=completion.id)
    return {name: helper.called_by(caller) for name, helper in helpers.items()}


def judged_batch(
    judge: Judge, batch: Sequence[Pair], helpers: Mapping[str, HelperModel]
) -> list[Reward]:
    """The rewards of a batch; abstentions where the judge fails. Raises what stops the run."""
    rewards = attempt(lambda: list(judge(batch, helpers)))
    if isinstance(rewards, CallOutcome):
        return [Reward(None, why=f"the judge failed: {rewards.why}")] * len(batch)
    if len(rewards) != len(batch):
        why = f"the judge gave {len(rewards)} rewards for {len(batch)} completions"
        return [Reward(None, why=why)] * len(batch)
    return [_sound(judge, each) for each in rewards]


def _sound(judge: Judge, value: Any) -> Reward:
    """A reward that records can hold, else an abstention."""
    if not isinstance(value, Reward):
        return Reward(None, why=f"the judge gave {type(value).__name__}, no Reward")
    reward = attempt(as_value, value, judge)
    if isinstance(reward, CallOutcome):
        return Reward(None, why=f"the judge failed: {reward.why}")
    return reward
