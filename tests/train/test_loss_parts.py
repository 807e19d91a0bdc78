"""The loss that a step records is the sum of its parts, and the one that was differentiated."""

from dataclasses import dataclass, replace

import pytest
import torch

from assay.errors import RunFailure
from assay.judge.identity import loss_parts
from assay.rl.objectives import GrpoObjective, ObjectiveOutput
from assay.train.likelihood import Rce, Rft, Sft
from assay.train.update import Totals, constant
from tests.train import toys
from tests.train.test_methods import grpo, prompts, run

EVERY_TERM = GrpoObjective(kl_coef=0.3, entropy_coef=0.1, several_updates=True)
SEVERAL = toys.settings(drop=False, minibatches=2, epochs=2, aggregation="seq_mean_token_mean")


def test_grpo_writes_every_part_with_its_coefficient():
    _, recorder = run(grpo(SEVERAL, EVERY_TERM), 5)
    for line in recorder.lines:
        assert (line["kl_coef"], line["entropy_coef"]) == (0.3, 0.1)
        parts = line["policy_loss"] + 0.3 * line["kl_loss"] - 0.1 * line["entropy_bonus"]
        assert line["loss"] == pytest.approx(parts, abs=1e-12)
    assert loss_parts(recorder.lines) is None
    moved = recorder.lines[-1]
    assert moved["kl_loss"] > 0 < moved["entropy_bonus"] and moved["policy_loss"] != 0


@pytest.mark.parametrize(
    "method",
    [
        Sft(toys.right_answers(20), 10, 0),
        Rft(prompts(), 1.0, 64, 1.0, toys.decode),
        Rce(prompts(), constant(0.5), 1.0, toys.decode),
    ],
    ids=["sft", "rft", "rce"],
)
def test_the_likelihood_methods_write_their_weighted_likelihood(method):
    _, recorder = run(method, 2)
    for line in recorder.lines:
        assert line["loss"] == line["nll_loss"] > 0
    line = recorder.lines[-1]
    nll = recorder.lines[0]["nll"]
    if isinstance(method, Sft):
        assert line["loss"] == pytest.approx(line["nll"])
    if isinstance(method, Rft):
        # Fewer completions than a batch weigh less in proportion.
        first = recorder.lines[0]
        kept = round(first["kept_share"] * first["completions"])
        assert first["loss"] == pytest.approx(nll * kept / 64)


@dataclass(frozen=True)
class Forgetful(GrpoObjective):
    """Differentiates a term that it does not write."""

    def __call__(self, scores, packed) -> ObjectiveOutput:
        output = super().__call__(scores, packed)
        return replace(output, loss=output.loss + 1e-3 * scores.logps_S.sum())


def test_a_term_that_is_not_written_stops_training_and_names_the_parts():
    with pytest.raises(RunFailure, match=r"step 1, update 1 of 1: .*1 x policy_loss"):
        run(grpo(objective=Forgetful()), 1)


@pytest.mark.parametrize(("off", "holds"), [(0.9e-5, True), (1.1e-5, False)])
def test_the_tolerance_is_a_share_of_the_size_not_of_a_sum_that_cancels(off, holds):
    totals = Totals(parts={"policy_loss": 0.0}, coefficients={"policy_loss": 1.0}, size=2.0)
    assert replace(totals, loss=off * 2).adds_up is holds
    assert replace(totals, loss=-off * 2).adds_up is holds


def test_the_spread_of_advantages_is_over_judged_completions():
    _, recorder = run(grpo(), 1)
    (line,) = recorder.lines
    values = [r.advantage for r in recorder.samples_by_step[1] if r.reward.value is not None]
    tensor = torch.tensor(values, dtype=torch.float64)
    assert line["advantage_mean"] == pytest.approx(float(tensor.mean()), abs=1e-9)
    assert line["advantage_std"] == pytest.approx(float(tensor.std(correction=0)))
    assert (line["advantage_min"], line["advantage_max"]) == (min(values), max(values))  # type: ignore[arg-type]
    assert min(values) < 0 < max(values)  # type: ignore[arg-type]
