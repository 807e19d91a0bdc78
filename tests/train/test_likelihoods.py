"""RFT and RCE learn likelihoods at temperature 1, and a small last minibatch weighs little."""

import pytest
import torch

from assay.experiment.stage_tables import RceStage, RftStage
from assay.lab.session.stage_methods import StageInput, build_method
from assay.rl.packed import pack
from assay.train.checkpoint import Place
from assay.train.likelihood import Rce, Rft
from assay.train.sampled_groups import StoredPrompts, value_of
from tests.train import toys
from tests.train.test_group_choice import gradient, group

ROWS = [group(n, [1.0, 1.0, 0.0, 1.0]) for n in range(3)]
"""Nine of twelve completions are kept."""


def rft(batch: int) -> Rft:
    return Rft(StoredPrompts(ROWS, 3), 1.0, batch, 1.0, toys.decode)


def test_the_last_minibatch_of_rft_is_weighed_by_its_completions():
    kept = [e for one in ROWS for e in one if value_of(e) == 1.0]
    first, last = gradient(rft(8))
    policy = toys.CandidatePolicy()
    (alone,) = (e.turns[0] for e in kept[8:])
    logps_S = policy.score(pack(kept[8:])).logps_S
    (-logps_S.sum() / len(alone.actions) * (1 / 8)).backward()
    torch.testing.assert_close(last, policy.weight.grad)
    (whole,) = gradient(rft(9))
    assert whole.norm() > 0 and first.norm() > last.norm()
    # Whole minibatches weigh 1, whatever their number.
    made = rft(3).collect(toys.CandidatePolicy(), Place(), toys.MemoryRecorder())
    assert [float(p.weight_S.sum()) for p in made.updates] == pytest.approx([1.0] * 3)


def given() -> StageInput:
    class Decoder:
        decode = None

    return StageInput(None, (), Decoder(), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [None, 0.5])
@pytest.mark.parametrize("stage", [RftStage, RceStage])
def test_likelihoods_are_at_temperature_1_unless_asked_otherwise(stage, asked, monkeypatch):
    monkeypatch.setattr("assay.lab.session.stage_methods.sampled_prompts", lambda *_: None)
    table = {
        "method": stage.model_fields["method"].annotation.__args__[0],
        "data": "sums",
        "steps": 1,
        "prompts": 1,
        "reward": "accuracy",
        "sampling": {"temperature": 0.7},
        **({} if asked is None else {"likelihood_temperature": asked}),
    }
    method = build_method(stage.model_validate(table), given(), 1)
    assert isinstance(method, Rft | Rce)
    assert method.temperature == (asked or 1.0)
