"""A stage's first update is checked before it is made, once; a failing check changes nothing."""

from collections.abc import Mapping

import torch

from assay.data.episode import Reward
from assay.errors import RunFailure
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import Packed
from assay.rl.policy import Sampling
from assay.train.checkpoint import TrainState
from assay.train.grpo import Grpo
from assay.train.loop import FirstBatchCheck, LoopSettings, train
from assay.train.sampled_groups import PromptStream, SingleTurn
from tests.train import toys


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


def run(check: Watch | None, steps: int, score=toys.score, start: int = 0):
    source = SingleTurn(toys.contexts(), Sampling(1.0, 1), 0, score, toys.decode)
    stream = PromptStream(toys.rows(), source, prompts=4, group=8, seed=0)
    method = Grpo(stream, toys.settings(), GrpoObjective(), toys.decode)
    policy, recorder = toys.CandidatePolicy(), toys.MemoryRecorder()
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=0.1)
    state = TrainState(step=start, cursor=4 * start)
    checked = FirstBatchCheck(method, check) if check else method
    try:
        train(policy, checked, optimizer, state, LoopSettings(steps, 0.1), recorder)
    except RunFailure as failure:
        return policy, recorder, failure
    return policy, recorder, None


def test_the_first_update_is_checked_once_and_its_step_says_what_was_found():
    check = Watch()
    _, recorder, _ = run(check, 3)
    assert check.versions == [0], "once, and before the weights moved"
    first, *others = recorder.lines
    assert first["self_check_logp"] == 0.25
    assert first["rollout_seconds"] >= first["self_check_seconds"] > 0
    assert not [k for line in others for k in line if k.startswith("self_check")]
    assert len(check.asked[0].contexts) % 8 == 0
    assert "reward_mean" in first


def test_a_step_without_signal_leaves_the_check_to_the_next():
    calls = {"n": 0}

    def dull_at_first(pairs):
        calls["n"] += 1
        return [Reward(0.5) for _ in pairs] if calls["n"] == 1 else toys.score(pairs)

    check = Watch()
    _, recorder, _ = run(check, 3, dull_at_first)
    assert ["self_check_logp" in line for line in recorder.lines] == [False, True, False]


def test_a_resumed_stage_is_checked_again():
    check = Watch()
    _, recorder, _ = run(check, 4, start=2)
    assert [line["step"] for line in recorder.lines if "self_check_logp" in line] == [3]


def test_a_failing_check_stops_the_run_before_anything_is_trained():
    policy, recorder, failure = run(Watch(fails=True), 3)
    assert str(failure) == "the paths differ"
    assert torch.equal(policy.weight, toys.CandidatePolicy().weight)
    assert recorder.lines == []


def test_a_check_that_passes_changes_nothing_of_the_run():
    policy, recorder, _ = run(Watch(), 3)
    other, unchecked, _ = run(None, 3)
    assert torch.equal(policy.weight, other.weight)
    assert recorder.samples_by_step == unchecked.samples_by_step
