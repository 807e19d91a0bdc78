"""Runs rewards as training and evaluation need them: side by side, with deadlines, never a false 0.

A pure reward runs here; one that is slow or unsafe runs in killable workers, a judge in threads.
Where a checker comes to no verdict, `no_verdict` says whose doing it was: the answer's, which then
earns what a wrong one does, or the lab's, which is an abstention that says why. Both are counted.
Deciding how many are too many is the caller's.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, Self

from assay.data.episode import (
    Completion,
    Reward,
    completion_of,
    completion_values,
    reward_of,
    reward_values,
    row_of,
    row_values,
)
from assay.data.files import canonical_json, sha256_text
from assay.data.row import Row
from assay.errors import InputError
from assay.sandbox.isolation import Mode
from assay.sandbox.limits import CallOutcome, Limits
from assay.sandbox.pool import WorkerPool, WorkerPools
from assay.tasks.helper_model import HelperModel
from assay.tasks.judge_reward import Done, JudgeReward, Pair, run_judge
from assay.tasks.no_verdict import (
    OUTCOMES,
    Failed,
    abstention,
    attempt,
    earned,
    gold_completion,
    known,
    nothing_earned,
    rewarded,
)
from assay.tasks.reward_table import RewardTable
from assay.tasks.task import RewardFunction, is_unsafe, lowest
from assay.tasks.user_code import as_reward, as_value, function_at, place_of

DEADLINE_SECONDS = 10.0
REFUSED = "refused"
"""The one key of what a worker answers for a reward that no record holds: why."""


@dataclass(frozen=True, slots=True)
class WorkerReward:
    """A reward whose slow or unsafe part is a function that a worker runs."""

    unsafe: ClassVar[bool] = True

    worker: str
    """"package.module:function" as `sandbox.pool.Worker` has it, JSON in and JSON out."""
    ask: Callable[[Row, Completion], Reward | Mapping[str, Any]]
    """The reward where that is cheap to know, otherwise the arguments for the worker. Pure."""
    read: Callable[[Row, Completion, Any], Reward]
    """The reward from the worker's value. Pure."""
    folders: Callable[[], Sequence[str]] = tuple
    """Where the worker's function imports from beside the lab's own path; asked when it starts."""
    failed: Failed = nothing_earned
    """The reward where the answer made the worker fail. Pure."""
    gold: Callable[[Row], Completion] = gold_completion
    """A right answer to a row, with which a checker that failed is tried. Pure."""
    limits: Limits = Limits()
    """The limits of each call of the worker's function."""
    maker: Callable[..., "WorkerReward"] | None = None
    """Makes the reward with other options, which are its parameters with defaults."""
    outcomes: frozenset[str] = frozenset()
    """What `read` and `ask` say became of an answer; empty where that is not known."""
    own_program: bool = False
    """Whether the worker runs what the policy wrote: a failure is then the policy's doing, without
    a trial of the gold answer, and its outcomes are journalled."""

    def __call__(self, row: Row, completion: Completion) -> Reward:
        """One completion in a worker of its own; `RewardRunner` is the way to score many."""
        with RewardRunner(self, workers=1) as runner:
            return runner.score([(row, completion)])[0]


class Judgements(Protocol):
    """A journal of what judges and program checks said; `part` names a part of the reward."""

    def known(self, part: str, row: Row, completion: Completion) -> Reward | None:
        """The judgement of a completion, by its id; None if there is none."""
        ...

    def add(self, part: str, row: Row, completion: Completion, reward: Reward) -> None:
        """Write a judgement; it is on the disk on return."""
        ...


class RewardRunner:
    """Scores completions; keeps the worker processes between calls and counts what came of them."""

    def __init__(
        self,
        reward: RewardFunction | RewardTable,
        deadline: float = DEADLINE_SECONDS,
        workers: int = 2,
        sandbox: Mode = "namespaces",
        *,
        concurrency: int = 8,
        helpers: Mapping[str, HelperModel] | None = None,
        journal: Judgements | None = None,
        pools: WorkerPools | None = None,
    ):
        """`deadline` is in seconds for each completion, those of a judge's batch together;
        `sandbox` "limits-only" leaves the namespaces out; `concurrency` counts batches of judges,
        which may ask `helpers`. With a journal, what it knows is not judged again. Workers are
        those of `pools`, which the caller closes; without, the runner's own."""
        self.reward, self.deadline, self.workers = reward, deadline, workers
        self.concurrency, self.helpers, self.journal = concurrency, helpers or {}, journal
        self.sandbox: Mode = sandbox
        self.scored = 0
        """Completions seen, abstentions included."""
        self.abstentions: Counter[str] = Counter()
        """Why -> how often."""
        self.outcomes: Counter[str] = Counter()
        """What became of the answers that were scored -> how often, where the reward tells."""
        self.told: Callable[[int, int], object] = lambda done, total: None
        """Hears how many completions of how many are judged, of each part that takes its time."""
        self._gold_checks: dict[str, bool] = {}
        """Whether a gold answer alone is checked within the limits, by what the worker is asked."""
        self._pools, self._own_pools = pools or WorkerPools(), pools is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers, unless they are others' too."""
        if self._own_pools:
            self._pools.close()

    @property
    def abstained_share(self) -> float:
        """Abstentions over completions seen; 0 before the first."""
        return self.abstentions.total() / self.scored if self.scored else 0.0

    def score(self, pairs: Sequence[Pair]) -> list[Reward]:
        """The reward of each completion, in order.

        Raises RunFailure when a worker cannot be had at all.
        """
        if isinstance(self.reward, RewardTable):
            rewards = self._run_table(self.reward, pairs)
        else:
            rewards = self._run(self.reward, pairs)
        self.scored += len(rewards)
        self.abstentions.update(reward.why for reward in rewards if reward.value is None)
        self.outcomes.update(each.outcome for each in rewards if known(each) and each.outcome)
        return rewards

    def _run_table(self, table: RewardTable, pairs: Sequence[Pair]) -> list[Reward]:
        """Each part on the completions whose conditions ask for it; parts alike once."""
        rewards_of: list[dict[str, Reward | None]] = [{} for _ in pairs]
        scored: dict[str, dict[int, Reward]] = {}
        for name in table.order:
            part = table.parts[name]
            wanted = [n for n, others in enumerate(rewards_of) if table.wanted(name, others)]
            before = scored.setdefault(part.same, {})
            fresh = [n for n in wanted if n not in before]
            rewards = self._run(part.reward, [pairs[n] for n in fresh], part.same)
            before |= dict(zip(fresh, rewards, strict=True))
            places = set(wanted)
            for n, others in enumerate(rewards_of):
                others[name] = before[n] if n in places else None
        return [table.combine({name: each[name] for name in table.parts}) for each in rewards_of]

    def _run(self, reward: RewardFunction, pairs: Sequence[Pair], part: str = "") -> list[Reward]:
        if isinstance(reward, JudgeReward) or (
            isinstance(reward, WorkerReward) and reward.own_program
        ):
            return self._run_once(reward, pairs, part)
        if isinstance(reward, WorkerReward):
            return self._run_in_workers(reward, pairs)
        if is_unsafe(reward):
            return self._run_in_workers(in_worker(reward), pairs)
        return [judged_here(reward, *pair) for pair in pairs]

    def _run_once(
        self, reward: "JudgeReward | WorkerReward", pairs: Sequence[Pair], part: str
    ) -> list[Reward]:
        """Judgements that cost: those in the journal are kept, new ones are written as they
        come."""
        journal = self.journal
        rewards = [None if journal is None else journal.known(part, *pair) for pair in pairs]
        fresh = [n for n, reward in enumerate(rewards) if reward is None]

        def done(place: int, judged: Reward) -> None:
            rewards[fresh[place]] = judged
            if journal is not None:
                journal.add(part, *pairs[fresh[place]], judged)
            self.told(sum(each is not None for each in rewards), len(pairs))

        unjudged = [pairs[n] for n in fresh]
        if isinstance(reward, WorkerReward):
            self._run_programs(reward, unjudged, done)
        elif unjudged:
            limits = {"concurrency": self.concurrency, "deadline": self.deadline}
            run_judge(reward, unjudged, self.helpers, **limits, done=done)
        return [each for each in rewards if each is not None]

    def _run_programs(self, reward: WorkerReward, pairs: Sequence[Pair], done: Done) -> None:
        """Programs that the policy wrote: one that fails earns what the reward says."""
        calls_of = [call_of(reward, pair) for pair in pairs]
        open_ = []
        for n, each in enumerate(calls_of):
            if isinstance(each, Reward | CallOutcome):
                done(n, each if isinstance(each, Reward) else abstention(each))
            else:
                open_.append(n)
        calls = [calls_of[n] for n in open_]
        for place, outcome in self._pool(reward).completed(calls, self.deadline) if calls else ():
            done(open_[place], self._of_program(reward, pairs[open_[place]], outcome))

    def _of_program(self, reward: WorkerReward, pair: Pair, outcome: CallOutcome) -> Reward:
        if outcome.failure in OUTCOMES:
            return reward.failed(*pair, outcome)
        verdict = rewarded(reward.read, *pair, outcome.value)
        # The comparison runs in the lab: where it fails, that says nothing of the program.
        return verdict if isinstance(verdict, Reward) else abstention(verdict)

    def _run_in_workers(self, reward: WorkerReward, pairs: Sequence[Pair]) -> list[Reward]:
        rewards = self._tried(reward, pairs)
        failed = [n for n, each in enumerate(rewards) if not isinstance(each, Reward)]
        if failed:
            # The second try gets workers that have served no other.
            self._pools.renew(*self._workers_of(reward))
            again = self._tried(reward, [pairs[n] for n in failed])
            for n, each in zip(failed, again, strict=True):
                rewards[n] = (
                    each if isinstance(each, Reward) else self._blamed(reward, *pairs[n], each)
                )
        return [each for each in rewards if isinstance(each, Reward)]

    def _tried(self, reward: WorkerReward, pairs: Sequence[Pair]) -> list[Reward | CallOutcome]:
        """The reward of each pair, or how the reward's parts or its worker failed."""
        rewards: list[Any] = [call_of(reward, pair) for pair in pairs]
        open_ = [n for n, each in enumerate(rewards) if not isinstance(each, Reward | CallOutcome)]
        if open_:
            calls = self._pool(reward).completed([rewards[n] for n in open_], self.deadline)
            for done, (place, outcome) in enumerate(calls, 1 + len(pairs) - len(open_)):
                n, failed = open_[place], outcome.failure is not None
                rewards[n] = outcome if failed else rewarded(reward.read, *pairs[n], outcome.value)
                self.told(done, len(pairs))
        return rewards

    def _blamed(
        self, reward: WorkerReward, row: Row, completion: Completion, failure: CallOutcome
    ) -> Reward:
        """What a failure that came twice makes of an answer."""
        if failure.failure in OUTCOMES and self._gold_is_checked(reward, row):
            return reward.failed(row, completion, failure)
        return abstention(failure)

    def _gold_is_checked(self, reward: WorkerReward, row: Row) -> bool:
        gold = attempt(reward.gold, row)
        call = call_of(reward, (row, gold))
        if isinstance(call, Reward | CallOutcome):
            return known(call)
        key = sha256_text(canonical_json([reward.worker, call]))
        if key not in self._gold_checks:
            tries = (self._tried(reward, [(row, gold)])[0] for _ in range(2))
            self._gold_checks[key] = any(map(known, tries))
        return self._gold_checks[key]

    def _pool(self, reward: WorkerReward) -> WorkerPool:
        return self._pools.pool(*self._workers_of(reward))

    def _workers_of(self, reward: WorkerReward) -> tuple[str, int, Limits, Mode, tuple[str, ...]]:
        return reward.worker, self.workers, reward.limits, self.sandbox, tuple(reward.folders())


def call_of(reward: WorkerReward, pair: Pair) -> Reward | Mapping[str, Any] | CallOutcome:
    """What a worker is to be asked, or the reward where that is known without one."""

    def ask() -> Reward | Mapping[str, Any]:
        call = reward.ask(*pair)
        return call if isinstance(call, Mapping) else as_value(call, reward.ask)

    return attempt(ask)


def judged_here(reward: RewardFunction, row: Row, completion: Completion) -> Reward:
    """The reward of a pure function; where it raises on the gold answer too, an abstention."""
    verdict = rewarded(reward, row, completion)
    if isinstance(verdict, Reward):
        return verdict
    if known(rewarded(reward, row, gold_completion(row))):
        return earned(lowest(reward), {}, verdict)
    return abstention(verdict)


def in_worker(function: RewardFunction) -> WorkerReward:
    """`function` as a reward that runs whole in a worker, in namespaces.

    Raises InputError when it has no importable name (a lambda, or defined inside a function).
    """
    inner = getattr(function, "function", function)
    options = inner.keywords if isinstance(inner, partial) else {}
    place = place_of(inner.func if isinstance(inner, partial) else inner)

    def ask(row: Row, completion: Completion) -> Mapping[str, Any]:
        sent = {"row": row_values(row), "completion": completion_values(completion)}
        return {**sent, "options": options}

    def read(row: Row, completion: Completion, value: Any) -> Reward:
        if REFUSED in value:
            raise InputError(value[REFUSED])
        return reward_of(value)

    def failed(row: Row, completion: Completion, failure: CallOutcome) -> Reward:
        return earned(lowest(function), {}, failure)

    return WorkerReward(f"assay.tasks.running:scorer:{place}", ask, read, failed=failed)


def scorer(place: str) -> Callable[..., dict[str, Any]]:
    """The worker's side of `in_worker`: the reward at a `place`, of rows and completions in JSON.

    Called once by a worker, before its calls, so that none of them imports the reward's module.
    """
    function = function_at(place)

    def score(
        row: Mapping[str, Any], completion: Mapping[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        reward = as_reward(partial(function, **options) if options else function, "the reward")
        try:
            value = reward(row_of(row), completion_of(completion))
            return reward_values(as_value(value, function))
        except InputError as wrong:
            return {REFUSED: str(wrong)}

    return score


PROGRAM = "assay.sandbox.tested_code:run_program"


def program_check(
    program: Callable[[Row, Completion], str | Reward],
    compare: Callable[[Row, Completion, str], Reward],
    *,
    read: Callable[[Row], str] = lambda row: "",
    failed: Failed = nothing_earned,
    longest: int = 100_000,
    limits: Limits | None = None,
) -> WorkerReward:
    """A reward from the output of a program.

    `program` takes the Python source out of a completion, or says what one without earns; `read` is
    the program's standard input; `compare` judges its output, and runs in the lab. `failed` is the
    reward of a program that failed, or has more than `longest` characters.
    """

    def ask(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
        source = program(row, completion)
        if not isinstance(source, str):
            return as_value(source, program)
        if len(source) > longest:
            why = f"{len(source)} characters, more than {longest}"
            return failed(row, completion, CallOutcome(failure="length", why=why))
        return {"program": source, "text": read(row)}

    def judge(row: Row, completion: Completion, value: Any) -> Reward:
        if not is_reply(value):
            why = "its process answered in another form"
            return failed(row, completion, CallOutcome(failure="crash", why=why))
        if value["error"]:
            return failed(row, completion, CallOutcome(failure="program", why=value["error"]))
        return compare(row, completion, value["output"])

    return WorkerReward(
        PROGRAM, ask, judge, failed=failed, limits=limits or Limits(), own_program=True
    )


def is_reply(value: Any) -> bool:
    """Whether a value is a reply of `run_program`; a program can answer in place of its caller,
    and only texts are taken from it."""
    return (
        isinstance(value, dict)
        and value.keys() == {"output", "error"}
        and all(isinstance(text, str) for text in value.values())
    )
