"""The training loop that all methods share: collect, journal, update, record, checkpoint.

Works with any `Policy`; it knows no tasks or files. A method gives the batch and the metrics to
watch, a recorder keeps the history. `FirstBatchCheck` wraps a method for work
done once, before the first update.
"""

import functools
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from assay.data.episode import Reward
from assay.data.splits import Mixture
from assay.errors import RunFailure
from assay.rl.objectives import Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy
from assay.rl.sampling_proof import TOLD, Drawn, NotAsTold, SamplingProof, Sums, drawn_sums
from assay.rollout.episodes import telling
from assay.sandbox.call_watch import started_memory, tree_cpu_seconds
from assay.train.checkpoint import Batch, Journal, Method, Place, Recorder, SampleRecord, TrainState
from assay.train.metric_names import (
    COEFFICIENTS,
    OWN,
    PREFERENCE,
    SOURCE_REWARD,
    SOURCE_SHARE,
)
from assay.train.update import LearningRate, Schedule, Totals, UpdateResult, alone, update


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The settings of the loop itself."""

    steps: int
    lr: float
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    warmup: float = 0.0
    min_lr: float = 0.0
    """See `update.LearningRate`."""
    clip_norm: float = 1.0
    micro_tokens: int = 2048
    max_skipped_steps: int = 3
    max_rollout_gap: float = float("inf")
    """Largest mean absolute gap between rollout and training log-probs."""


def train(
    policy: Policy,
    method: Method,
    optimizer: torch.optim.Optimizer,
    state: TrainState,
    settings: LoopSettings,
    recorder: Recorder,
    measure: Callable[[Policy, int], Mapping[str, float]] = lambda policy, step: {},
) -> None:
    """Train from `state.step` to `settings.steps`; `measure` adds metrics of a step's policy.

    Raises RunFailure after more than `max_skipped_steps` updates with a non-finite gradient,
    where the rollout gap is larger than allowed, and where a loss is not the sum of its parts;
    NotAsTold where completions are not drawn as they were asked for.
    """
    while state.step < settings.steps:
        started, cpu = time.perf_counter(), tree_cpu_seconds()
        start_peak()
        with at_step(state.step + 1):
            batch = method.collect(policy, state.place, recorder)
        collected = time.perf_counter()
        if batch.samples:
            recorder.samples(state.step + 1, batch.samples)
        rate = set_rate(optimizer, settings, state.step)
        turns = sum(len(packed.contexts) for packed in batch.updates)
        with telling(lambda done, of=turns: recorder.inside("trained", done, of)):
            results = run_updates(policy, batch, optimizer, settings)
        check_losses(state.step + 1, results)
        state.skipped += sum(not result.stepped for result in results)
        state.step += 1
        state.cursor += batch.consumed
        move_kl(state, batch, results)
        proof = SamplingProof(state.sampling)
        proven = proof.add(*evidence_of(policy, batch, results))
        updated = time.perf_counter()
        measured = measure(policy, state.step)
        finished = time.perf_counter()
        values = {
            **batch.metrics,
            **step_metrics(results),
            **proven,
            **measured,
            "learning_rate": rate,
            "skipped_steps": float(state.skipped),
            "rollout_seconds": collected - started,
            "update_seconds": updated - collected,
            "seconds": finished - started,
            "cpu_seconds": tree_cpu_seconds() - cpu,
            **peak_memory(),
        }
        recorder.metrics(state.step, values)
        check_step(state, settings, values)
        if proof.broken:
            raise NotAsTold(f"step {state.step}: {proof.broken}")
        recorder.checkpoint(policy, optimizer, state)


@contextmanager
def at_step(step: int) -> Iterator[None]:
    """Inside, what a sampler does wrong is told with the step's number."""
    try:
        yield
    except NotAsTold as failure:
        raise type(failure)(f"step {step}: {failure}") from failure


def evidence_of(
    policy: Policy, batch: Batch, results: Sequence[UpdateResult]
) -> tuple[Sums, list[Drawn]]:
    """What a step shows of its sampler (`SamplingProof.add`): of tokens whose entropies the sampler
    told, which are all that it drew, dropped groups too; and of those of the first epoch how far
    training's log-probs are from the told ones. Dropout would shift the latter.
    """
    drawn = [sample for sample in batch.samples if any(sample.variances)]
    columns = [(s.behaviour_logps, s.entropies, s.variances) for s in drawn]
    sums = (
        drawn_sums(*(np.concatenate(each) for each in zip(*columns, strict=True))) if drawn else {}
    )
    if not any(isinstance(part, nn.Dropout) and part.p for part in policy.module.modules()):
        for result in results[: len({id(packed) for packed in batch.updates})]:
            for name, value in result.totals.sums.items():
                if name.startswith(TOLD):
                    told = name.removeprefix(TOLD)
                    sums[told] = sums.get(told, 0.0) + value
    return sums, [(s.prompt, s.tokens, sum(s.behaviour_logps)) for s in drawn if s.prompt]


def check_step(state: TrainState, settings: LoopSettings, values: Mapping[str, float]) -> None:
    """Raise RunFailure where going on would train on numbers that mean nothing."""
    if state.skipped > settings.max_skipped_steps:
        raise RunFailure(
            f"step {state.step}: {state.skipped} updates had a non-finite gradient; "
            "lower the learning rate or start from an earlier checkpoint"
        )
    heard = values.get("advantage_max", 0.0) > values.get("advantage_min", 0.0)
    masked = values.get("masked_share") or values.get("importance_cut_share")
    if state.step == 1 and values.get("grad_norm") == 0 and heard and not masked:
        raise RunFailure(
            "step 1: the gradient is exactly 0 although completions have different advantages: the "
            "loss does not depend on the policy, and no step would learn anything"
        )
    gap = values.get("rollout_gap_mean", 0.0)
    if gap > settings.max_rollout_gap:
        raise RunFailure(
            f"step {state.step}: rollout and training log-probs differ by {gap:.3f} on average, "
            f"more than {settings.max_rollout_gap}; the sampler does not sample from the model "
            "that is trained"
        )


def set_rate(optimizer: torch.optim.Optimizer, settings: LoopSettings, step: int) -> float:
    """Set and return the learning rate of this step."""
    rate = LearningRate(
        settings.lr, settings.steps, settings.schedule, settings.warmup, settings.min_lr
    ).at(step)
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def run_updates(
    policy: Policy, batch: Batch, optimizer: torch.optim.Optimizer, settings: LoopSettings
) -> list[UpdateResult]:
    """The step's optimizer updates in order."""
    return [
        update(
            policy,
            packed,
            batch.objective,
            optimizer,
            micro_tokens=settings.micro_tokens,
            clip_norm=settings.clip_norm,
        )
        for packed in batch.updates
    ]


def move_kl(state: TrainState, batch: Batch, results: Sequence[UpdateResult]) -> None:
    """Set an adaptive KL coefficient to that of the next step; a step without a KL leaves it."""
    metrics = loss_metrics([result.totals for result in results]) if results else {}
    if batch.adaptive_kl is not None and "kl_loss" in metrics:
        state.kl_coef = batch.adaptive_kl.next(metrics["kl_coef"], metrics["kl_loss"])


def check_losses(step: int, results: Sequence[UpdateResult]) -> None:
    """Raise RunFailure where the loss of an update is not the sum of its parts."""
    for number, result in enumerate(results, 1):
        totals = result.totals
        if not totals.adds_up:
            terms = " + ".join(
                f"{totals.coefficients[name]:g} x {name} {value:.6g}"
                for name, value in totals.parts.items()
            )
            raise RunFailure(
                f"step {step}, update {number} of {len(results)}: the loss is {totals.loss:.6g} "
                f"and its parts add up to {totals.sum_of_parts:.6g} ({terms}); the objective "
                "leaves out a part or its coefficient"
            )


def step_metrics(results: Sequence[UpdateResult]) -> dict[str, float]:
    """Gradient norm, loss and its parts (means over the step's updates), and the objective's means
    per trained token, per pair, or per token that the policy sampled."""
    if not results:
        return {"grad_norm": 0.0}
    sums: dict[str, float] = {}
    for result in results:
        for name, value in result.totals.sums.items():
            if not name.startswith(TOLD):
                sums[name] = sums.get(name, 0.0) + value
    tokens, pairs = sums.pop("tokens", 0.0), sums.pop("pairs", 0.0)
    counts = {name: pairs if pairs and name in PREFERENCE else tokens for name in sums}
    if (own := sums.pop("own_tokens", None)) is not None:
        counts |= dict.fromkeys(OWN & counts.keys(), own)
    means = {name: value / counts[name] for name, value in sums.items() if counts[name]}
    norm = sum(r.grad_norm for r in results) / len(results)
    return {"grad_norm": norm, **loss_metrics([r.totals for r in results]), **means}


def loss_metrics(updates: Sequence[Totals]) -> dict[str, float]:
    """`loss`, its parts and their coefficients:
    loss = policy_loss + kl_coef * kl_loss - entropy_coef * entropy_bonus, or loss = nll_loss.

    Written as the sum of the parts: `check_losses` has compared it with what was differentiated.
    """
    count = len(updates)
    metrics = {"loss": sum(totals.sum_of_parts for totals in updates) / count}
    for part, coefficient in updates[0].coefficients.items():
        if part in updates[0].parts:
            metrics[part] = sum(totals.parts[part] for totals in updates) / count
        if part in COEFFICIENTS:
            metrics[COEFFICIENTS[part]] = abs(coefficient)
    return metrics


PEAK, RESET = "VmHWM:", "5"
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
LOOK_SECONDS = 5.0
"""How long a look at other processes counts: it takes 6 ms for each that has imported torch."""


def start_peak() -> None:
    """Let the peak start again from what is held now."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        CLEAR.write_text(RESET)
    except OSError:
        return  # `host_memory_mb` then counts from the start of the process.


def peak_memory() -> dict[str, float]:
    """MiB held at most since `start_peak` where the weights are; beside a GPU the machine's too."""
    host = host_memory_mb()
    if not torch.cuda.is_available():
        return {"peak_memory_mb": host}
    device = torch.cuda.max_memory_allocated() / 2**20
    return {"peak_memory_mb": device, "host_memory_mb": host}


def host_memory_mb() -> float:
    """MiB of main memory, with what other processes of this one held not longer than LOOK_SECONDS
    ago."""
    others = held_by_others(int(time.monotonic() / LOOK_SECONDS)) / 2**20
    try:
        return int(STATUS.read_text().split(PEAK)[1].split()[0]) / 1024 + others
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 + others


@functools.lru_cache(maxsize=1)
def held_by_others(look: int) -> int:
    """Bytes of all that this process started, at the look of this number."""
    return started_memory()


@dataclass
class SourceShares:
    """A `Method` whose steps also say how much came from each set of a mixture."""

    method: Method
    order: Mixture
    seed: int

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """See `checkpoint.Method`. Means of rewards leave abstentions out."""
        batch = self.method.collect(policy, place, journal)
        visited = self.order.sources(self.seed, place.cursor, batch.consumed)
        shares = {SOURCE_SHARE + p.name: visited[p.name] / batch.consumed for p in self.order.parts}
        rewards: dict[str, list[float]] = {}
        for sample in batch.samples:
            if sample.reward.value is not None:
                # The rows of a mixture are named SET/ID.
                name = SOURCE_REWARD + sample.row_id.partition("/")[0]
                rewards.setdefault(name, []).append(sample.reward.value)
        means = {name: sum(values) / len(values) for name, values in rewards.items()}
        return replace(batch, metrics={**batch.metrics, **shares, **means})


@dataclass
class StepMetrics:
    """A `Method` whose metrics hold the scheduled settings of each step, and what a task computes
    from the step's rewards."""

    method: Method
    schedules: Mapping[str, Schedule]
    """By the metric's name."""
    of_rewards: Mapping[str, Callable[[Sequence[Reward]], float | None]]
    """By the metric's name; None where the rewards do not decide."""
    of_groups: Mapping[str, Callable[[Sequence[Sequence[Reward]]], float | None]] = field(
        default_factory=dict
    )
    """The same from the rewards of each visit to a row."""

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """See `checkpoint.Method`."""
        batch = self.method.collect(policy, place, journal)
        metrics = {name: schedule.at(place.step) for name, schedule in self.schedules.items()}
        rewards = [sample.reward for sample in batch.samples]
        if rewards:
            values = {
                name: value_at(place, name, of, rewards) for name, of in self.of_rewards.items()
            }
            groups = rewards_by_group(batch.samples)
            values |= {n: value_at(place, n, of, groups) for n, of in self.of_groups.items()}
            metrics |= {name: value for name, value in values.items() if value is not None}
        return replace(batch, metrics={**batch.metrics, **metrics})


def value_at(
    place: Place, name: str, of: Callable[[Any], float | None], rewards: Sequence[Any]
) -> float | None:
    """A metric of the rewards, or of their groups. Raises RunFailure where it fails."""
    try:
        value = of(rewards)
        return None if value is None else float(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        problem = f"the task's metric {name!r} failed: {type(error).__name__}: {error}"
        raise RunFailure(f"step {place.step + 1}: {problem}") from error


def rewards_by_group(samples: Sequence[SampleRecord]) -> list[list[Reward]]:
    """The rewards of each visit to a row, in the samples' order."""
    groups: dict[tuple[str, int], list[Reward]] = {}
    for sample in samples:
        groups.setdefault((sample.row_id, sample.visit), []).append(sample.reward)
    return list(groups.values())


Check = Callable[[Policy, Packed, Objective], Mapping[str, float]]
"""Raises a RunFailure, or returns metrics; leaves policy and random numbers as they were."""


@dataclass
class FirstBatchCheck:
    """A `Method` whose first update is checked; the step's metrics hold what was found. A process
    that holds a part of the weights cannot check.

    A resumed stage checks again, because machine and versions may be others.
    """

    method: Method
    check: Check
    done: bool = False

    def collect(self, policy: Policy, place: Place, journal: Journal) -> Batch:
        """See `checkpoint.Method`. A batch without updates is passed on unchecked."""
        batch = self.method.collect(policy, place, journal)
        own = alone(policy)
        if self.done or not batch.updates or own is None:
            return batch
        started = time.perf_counter()
        figures = self.check(own, batch.updates[0], batch.objective)
        self.done = True
        seconds = time.perf_counter() - started
        return replace(batch, metrics={**batch.metrics, **figures, "self_check_seconds": seconds})
