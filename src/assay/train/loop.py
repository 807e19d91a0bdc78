"""The one loop that all methods share: collect, journal, update, record, checkpoint.

Written for any `Policy`. It knows neither tasks nor files; a method says what to train on, a
recorder keeps the history.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from assay.rl.policy import Policy
from assay.train.peak_memory import peak_memory_mb, start_peak
from assay.train.schedule import rate_factor
from assay.train.train_state import Batch, Method, Recorder, TrainingFailure, TrainState
from assay.train.update import UpdateResult, update


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The settings of the loop itself."""

    steps: int
    learning_rate: float
    schedule: str = "constant"
    warmup: float = 0.0
    clip_norm: float = 1.0
    micro_tokens: int = 2048
    max_skipped_steps: int = 3
    max_rollout_gap: float = float("inf")
    """Largest mean absolute gap between rollout and training log-probs."""
    max_steps_without_bonus: int | None = None
    """Steps with signal in a row whose advantages may go without their estimator's own bonus."""


DEAD_BONUS = 1e-3
"""A bonus of less than this share of the advantages that it is added to counts as none: one answer
with a thought among hundreds without is still plain GRPO. EGPO's caps are at 0.5 and 0.2."""


def train(
    policy: Policy,
    method: Method,
    optimizer: torch.optim.Optimizer,
    state: TrainState,
    settings: LoopSettings,
    recorder: Recorder,
    look: Callable[[Policy, int], Mapping[str, float]] = lambda policy, step: {},
) -> None:
    """Train from `state.step` to `settings.steps`; `look` adds metrics of a step's policy.

    Raises TrainingFailure after more than `max_skipped_steps` updates with a non-finite gradient,
    where the rollout gap is larger than allowed, and where the bonus that an estimator is named for
    was below `DEAD_BONUS` in `max_steps_without_bonus` steps with signal in a row.
    """
    while state.step < settings.steps:
        started = time.perf_counter()
        start_peak()
        batch = method.collect(policy, state, recorder)
        collected = time.perf_counter()
        if batch.samples:
            recorder.samples(state.step + 1, batch.samples)
        rate = set_rate(optimizer, settings, state.step)
        results = run_updates(policy, batch, optimizer, settings)
        state.skipped += sum(not result.stepped for result in results)
        state.step += 1
        updated = time.perf_counter()
        seen = look(policy, state.step)
        finished = time.perf_counter()
        values = {
            **batch.metrics,
            **step_metrics(results),
            **seen,
            "learning_rate": rate,
            "skipped_steps": float(state.skipped),
            "rollout_seconds": collected - started,
            "update_seconds": updated - collected,
            "seconds": finished - started,
            "peak_memory_mb": peak_memory_mb(),
        }
        count_bonus(state, values)
        recorder.metrics(state.step, values)
        check_health(state, settings, values)
        recorder.checkpoint(policy, optimizer, state)


def check_health(state: TrainState, settings: LoopSettings, values: dict[str, float]) -> None:
    """Raise TrainingFailure where going on would train on numbers that mean nothing."""
    if state.skipped > settings.max_skipped_steps:
        raise TrainingFailure(
            f"step {state.step}: {state.skipped} updates had a non-finite gradient; "
            "lower the learning rate or start from an earlier checkpoint"
        )
    gap = values.get("rollout_gap_mean", 0.0)
    if gap > settings.max_rollout_gap:
        raise TrainingFailure(
            f"step {state.step}: rollout and training log-probs differ by {gap:.3f} on average, "
            f"more than {settings.max_rollout_gap}; the sampler does not sample from the model "
            "that is trained"
        )

    if state.without_bonus == settings.max_steps_without_bonus:
        raise TrainingFailure(
            f"step {state.step}: the entropy bonus was below {DEAD_BONUS:.1%} of the advantages in "
            f"{state.without_bonus} steps with signal in a row, so that this is plain GRPO; "
            f"{values['share_without_cot']:.0%} of the answers hold no thought that counts (teach "
            "the model to think first, see that the rendering lets it, or use algorithm = 'grpo')"
        )


def count_bonus(state: TrainState, values: dict[str, float]) -> None:
    """Count the step where it had signal; steps without any say nothing of the bonus."""
    if "bonus_to_advantage" in values and values["signal_share"]:
        alive = values["bonus_to_advantage"] >= DEAD_BONUS
        state.without_bonus = 0 if alive else state.without_bonus + 1


def set_rate(optimizer: torch.optim.Optimizer, settings: LoopSettings, step: int) -> float:
    """Set and return the learning rate of this step."""
    factor = rate_factor(settings.schedule, step, settings.steps, settings.warmup)
    rate = settings.learning_rate * factor
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


def step_metrics(results: list[UpdateResult]) -> dict[str, float]:
    """Gradient norm (mean over the step's updates) and the objective's means per trained token."""
    if not results:
        return {"grad_norm": 0.0}
    sums: dict[str, float] = {}
    for result in results:
        for name, value in result.sums.items():
            sums[name] = sums.get(name, 0.0) + value
    tokens = sums.pop("tokens", 0.0)
    means = {name: value / tokens for name, value in sums.items() if tokens}
    return {"grad_norm": sum(r.grad_norm for r in results) / len(results), **means}
