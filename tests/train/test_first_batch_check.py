"""A stage's first update is checked before it is made, once; a failing check changes nothing."""

from collections.abc import Mapping

import pytest
import torch

from assay.errors import RunFailure
from assay.rl.packed import Packed
from assay.train.checkpoint import TrainState
from assay.train.loop import FirstBatchCheck
from tests.train import toys
from tests.train.test_methods import grpo, run


class Watch:
    """A check that remembers what it was asked."""

    def __init__(self, fails: bool = False):
        self.asked: list[Packed] = []
        self.versions: list[int] = []
        self.fails = fails

    def __call__(self, policy, packed, objective) -> Mapping[str, float]:
        self.asked.append(packed)
        self.versions.append(policy.version)
        if self.fails:
            raise RunFailure("the paths differ")
        return {"self_check_logp": 0.25}


def checked(check: Watch | None, steps: int, score=toys.score, start: int = 0):
    method = FirstBatchCheck(grpo(score=score), check) if check else grpo(score=score)
    return run(method, steps, state=TrainState(start, 4 * start), plain=True)


def test_the_first_update_is_checked_once_and_its_step_says_what_was_found():
    check = Watch()
    _, recorder = checked(check, 3)
    assert check.versions == [0], "once, and before the weights moved"
    first, *others = recorder.lines
    assert first["self_check_logp"] == 0.25
    assert first["rollout_seconds"] >= first["self_check_seconds"] > 0
    assert not [k for line in others for k in line if k.startswith("self_check")]
    assert len(check.asked[0].contexts) % 8 == 0
    assert "reward_mean" in first


def test_a_step_without_signal_leaves_the_check_to_the_next():
    _, recorder = checked(Watch(), 3, toys.dull_at_first())
    assert ["self_check_logp" in line for line in recorder.lines] == [False, True, False]


def test_a_resumed_stage_is_checked_again():
    _, recorder = checked(Watch(), 4, start=2)
    assert [line["step"] for line in recorder.lines if "self_check_logp" in line] == [3]


def test_a_failing_check_stops_the_run_before_anything_is_trained():
    policy, recorder = toys.CandidatePolicy(), toys.MemoryRecorder()
    method = FirstBatchCheck(grpo(), Watch(fails=True))
    with pytest.raises(RunFailure, match="the paths differ"):
        run(method, 3, policy=policy, recorder=recorder)
    assert torch.equal(policy.weight, toys.CandidatePolicy().weight)
    assert recorder.lines == []


def test_a_check_that_passes_changes_nothing_of_the_run():
    policy, recorder = checked(Watch(), 3)
    other, unchecked = checked(None, 3)
    assert torch.equal(policy.weight, other.weight)
    assert recorder.samples_by_step == unchecked.samples_by_step
