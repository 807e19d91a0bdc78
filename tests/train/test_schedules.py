"""Schedules: their shapes, values after a resume, one temperature for sampling and ratios."""

import math

import pytest
import torch
from transformers.optimization import get_scheduler

from assay.experiment.stage_tables import GrpoStage
from assay.lab.session.stage_methods import schedules_of
from assay.train.checkpoint import TrainState
from assay.train.grpo import Grpo, objective_of
from assay.train.loop import StepMetrics
from assay.train.sampled_groups import PromptStream
from assay.train.update import LearningRate, Schedule
from tests.train import toys
from tests.train.test_methods import grpo, run


@pytest.mark.parametrize(
    ("shape", "warmup", "least"),
    [
        *(("constant", 0.4, 0.0), ("cosine", 0.4, 0.0), ("linear", 0.4, 0.0)),
        *(("cosine", share, 1e-4) for share in (0.0, 0.25, 0.9)),
    ],
)
def test_the_learning_rate_rises_to_its_peak_and_has_transformers_shape(shape, warmup, least):
    """With a minimum: min + (peak - min) (1 + cos(pi t)) / 2, t the share behind the warm-up."""
    peak, steps = 1e-3, 40
    rising = round(steps * warmup)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    name = "cosine_with_min_lr" if least else shape
    more = {"min_lr": least} if least else {}
    theirs = get_scheduler(name, optimizer, rising, steps, more)
    ours = LearningRate(peak, steps, shape, warmup, least)
    for step in range(steps):
        if step < rising:
            # Theirs begins at 0; the first update here is at a part of the peak.
            assert ours.at(step) == pytest.approx(peak * (step + 1) / rising)
        else:
            assert ours.at(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        if least and step >= rising:
            share = (step - rising) / (steps - rising)
            closed = least + (peak - least) * (1 + math.cos(math.pi * share)) / 2
            assert ours.at(step) == pytest.approx(closed, rel=1e-12)
        optimizer.step()
        theirs.step()
    assert ours.at(rising) == pytest.approx(peak)
    assert shape == "constant" or ours.at(steps) == pytest.approx(least, abs=1e-12)


MOVING = {
    "temperature": Schedule(1.0, 0.5, 5),
    "kl_coef": Schedule(0.0, 0.4, 5),
    "clip_low": Schedule(0.2, 0.1, 5),
    "clip_high": Schedule(0.28, 0.2, 5, "cosine"),
}


KEYS = {
    "sampling": {"temperature": {"start": 1.0, "end": 0.5, "steps": 5}},
    "kl": {"coef": {"start": 0.0, "end": 0.4, "steps": 5}},
    "clip": {
        "low": {"start": 0.2, "end": 0.1, "steps": 5},
        "high": {"start": 0.28, "end": 0.2, "steps": 5, "shape": "cosine"},
    },
}


def method():
    made = {"method": "grpo", "data": "d", "steps": 5, "prompts": 4, "reward": "r", **KEYS}
    stage = GrpoStage.model_validate({**made, "algorithm": "verl_grpo"})
    assert schedules_of(stage, 5) == MOVING
    return StepMetrics(grpo(stage, objective_of(stage)), MOVING, {})


def test_each_step_writes_and_uses_its_values():
    _, recorder = run(method(), 5, plain=True)
    for step, line in enumerate(recorder.lines):
        for name, schedule in MOVING.items():
            assert line[name] == schedule.at(step), name
    # Without a coefficient there is no KL term, and no forward pass for it.
    assert "kl_loss" not in recorder.lines[0] and recorder.lines[1]["kl_loss"] >= 0
    assert recorder.lines[4]["kl_coef"] == 0.4


def test_a_resumed_stage_goes_on_with_the_values_of_its_step():
    whole, recorder = run(method(), 5, plain=True)
    half, _ = run(method(), 3, plain=True)
    # The loop ends where its own settings say, the schedule does not.
    resumed, again = run(method(), 5, state=TrainState(3, 12), policy=half, plain=True)
    assert torch.equal(whole.weight, resumed.weight)
    untimed = [name for name in recorder.lines[3] if "seconds" not in name and "memory" not in name]
    for name in untimed:
        assert [x[name] for x in recorder.lines[3:]] == [x[name] for x in again.lines], name


def test_ratios_use_the_temperature_that_sampled():
    made = method().method
    assert isinstance(made, Grpo) and isinstance(made.prompts, PromptStream)
    source = made.prompts.source
    object.__setattr__(source, "temperature", MOVING["temperature"])

    sampled: list[float] = []
    scored: list[float] = []

    class Spy(toys.CandidatePolicy):
        def sample(self, contexts, keys, sampling):
            sampled.append(sampling.temperature)
            return super().sample(contexts, keys, sampling)

        def score(self, packed, entropy=False):
            scored.append(packed.temperature)
            return super().score(packed, entropy)

    run(made, 3, policy=Spy(), plain=True)
    assert sampled == [1.0, 0.875, 0.75]
    assert list(dict.fromkeys(scored)) == sampled
