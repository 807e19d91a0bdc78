"""Every method trains a policy that is no language model, through the one loop."""

from dataclasses import replace

import pytest
import torch

from assay.data.episode import Completion, Episode, Reward, Turn
from assay.errors import RunFailure
from assay.experiment.stage_tables import GrpoStage
from assay.experiment.training_settings import Overlong
from assay.rl.objectives import GrpoObjective
from assay.rl.policy import Sampling
from assay.train.checkpoint import Journalled, TrainState
from assay.train.grpo import Grpo
from assay.train.likelihood import Rft, Sft
from assay.train.loop import LoopSettings, train
from assay.train.sampled_groups import MultiTurn, PromptStream, SingleTurn
from tests.train import toys


def prompts(score=toys.score, *, group=8, share=0.1, source=None) -> PromptStream:
    source = source or SingleTurn(toys.contexts(), Sampling(1.0, 1), 0, score, toys.decode)
    return PromptStream(
        toys.rows(), source, prompts=4, group=group, seed=0, max_abstained_share=share
    )


def run(
    method, steps: int, *, lr=0.1, policy=None, state=None, recorder=None, plain=False, **settings
):
    """Trains a fresh policy unless told which, by AdamW or by `plain` descent."""
    policy, recorder = policy or toys.CandidatePolicy(), recorder or toys.MemoryRecorder()
    kind = torch.optim.SGD if plain else torch.optim.AdamW
    optimizer = kind(policy.module.parameters(), lr=lr, weight_decay=0.0)
    loop = LoopSettings(steps, lr, **settings)
    train(policy, method, optimizer, state or TrainState(), loop, recorder)
    return policy, recorder


def grpo(settings: GrpoStage | None = None, objective: GrpoObjective | None = None, **kwargs):
    return Grpo(
        prompts(**kwargs), settings or toys.settings(), objective or GrpoObjective(), toys.decode
    )


def test_a_batch_of_packs_takes_all_rows_of_each_and_an_epoch_takes_each_pack_once():
    stored = toys.right_answers(6)
    packs = ((0, 1, 2), (3,), (4, 5))
    _, recorder = run(Sft(stored, 2, 0, None, packs), 3)
    rows = [line["rows"] for line in recorder.lines]
    assert sum(rows) == 12 and {len(p) for p in packs} != set(rows), "two epochs of six rows"
    one, _ = run(Sft(stored, 3, 0, None, packs), 1)
    every, _ = run(Sft(stored, 6, 0), 1)
    assert torch.allclose(one.weight, every.weight), "each trained token weighs the same"


def test_rft_learns_from_its_own_rewarded_samples_alone():
    policy, recorder = run(Rft(prompts(), 1.0, 16, 1.0, toys.decode), 30)
    assert toys.accuracy(policy) > 0.8
    assert recorder.lines[-1]["kept_share"] > recorder.lines[0]["kept_share"]


def test_grpo_learns_and_does_one_forward_per_micro_batch_when_on_policy():
    policy, recorder = run(grpo(), 40)
    assert toys.accuracy(policy) > 0.8
    updated = sum(line["grad_norm"] > 0 for line in recorder.lines)
    assert policy.forwards == updated, "on-policy steps need one forward, and none without signal"


def test_grpo_without_any_signal_makes_no_forward_and_says_so():
    policy, recorder = run(grpo(score=lambda pairs: [Reward(0.5) for _ in pairs]), 3)
    assert policy.forwards == 0
    assert {line["signal_share"] for line in recorder.lines} == {0.0}
    assert {line["groups_dropped"] for line in recorder.lines} == {4.0}


def test_several_updates_per_rollout_use_the_log_probs_before_the_first():
    settings = toys.settings(minibatches=2, epochs=3)
    policy, recorder = run(grpo(settings, GrpoObjective(several_updates=True)), 15)
    assert toys.accuracy(policy) > 0.8
    assert any(line["clip_high_share"] + line["clip_low_share"] > 0 for line in recorder.lines)
    assert policy.version > 15


def test_dynamic_sampling_refills_up_to_its_limit():
    _, recorder = run(grpo(toys.settings(max_batches=3), score=toys.dull_at_first(every=2)), 4)
    assert max(line["sampled_batches"] for line in recorder.lines) > 1
    assert all(line["sampled_batches"] <= 3 for line in recorder.lines)
    cursors = [state.cursor for state in recorder.states]
    taken = [line["sampled_batches"] * 4 for line in recorder.lines]
    assert cursors == [sum(taken[: i + 1]) for i in range(4)]


def test_an_abstention_is_no_zero_and_too_many_stop_the_run():
    def silent_first(pairs):
        rewards = toys.score(pairs)
        return [Reward(None, why="deadline"), *rewards[1:]]

    _, recorder = run(grpo(score=silent_first), 2)
    records = recorder.samples_by_step[1]
    assert records[0].reward.value is None
    assert records[0].advantage == 0.0
    others = [r.advantage for r in records if r.row_id == records[0].row_id]
    assert any(others) and sum(others) == pytest.approx(0, abs=1e-5), (
        "its siblings' baseline has no 0 of it"
    )
    judged = [r.reward.value for r in records[1:] if r.reward.value is not None]
    assert recorder.lines[0]["reward_mean"] == pytest.approx(sum(judged) / len(judged))
    with pytest.raises(RunFailure, match=r"abstained.*deadline"):
        run(grpo(score=silent_first, share=0.01), 1)


def test_truncated_completions_can_be_masked_but_still_count_in_the_baseline():
    class Cut(toys.CandidatePolicy):
        def sample(self, contexts, keys, sampling):
            turns = super().sample(contexts, keys, sampling)
            return [replace(t, ended="stop" if t.actions[0] else "length") for t in turns]

    policy = Cut()
    before = policy.weight.clone()
    _, recorder = run(grpo(toys.settings(mask_truncated=True)), 1, policy=policy)
    assert recorder.lines[0]["truncated_share"] > 0
    cut = [r for r in recorder.samples_by_step[1] if r.ended == "length"]
    assert cut
    assert {r.advantage for r in cut} == {0.0}
    assert not torch.equal(before, policy.weight)


def journal_of(recorder: toys.MemoryRecorder) -> dict[str, Journalled]:
    """What the first step left behind."""
    samples = recorder.samples_by_step[1]
    return {f"{r.row_id}#{r.sample}": Journalled(r.tokens, r.reward) for r in samples}


def resumed(
    journal: dict[str, Journalled], settings: GrpoStage | None = None
) -> tuple[list[str], list[Reward]]:
    """The rows that are judged, and all rewards, where the first step finds a journal."""
    recorder = toys.MemoryRecorder(journal={1: journal})
    judged: list[str] = []

    def watch(pairs):
        judged.extend(row.id for row, _ in pairs)
        return toys.score(pairs)

    run(grpo(settings, score=watch), 1, recorder=recorder)
    return judged, [record.reward for record in recorder.samples_by_step[1]]


def test_journalled_rewards_are_taken_over_but_that_of_other_tokens_which_is_judged():
    _, first = run(grpo(), 1)
    journal = journal_of(first)
    strange = next(iter(journal))
    journal[strange] = Journalled((99,), Reward(7.0, {"right": 7.0}))
    judged, rewards = resumed(journal)
    assert judged == [strange.rpartition("#")[0]]
    assert rewards == [record.reward for record in first.samples_by_step[1]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_gradients_skip_the_step_are_counted_and_stop_the_run(bad):
    class Broken(toys.CandidatePolicy):
        def score(self, packed, entropy=False):
            scores = super().score(packed, entropy)
            return type(scores)(scores.logps_S * bad, scores.entropy_S)

    policy = Broken()
    before = policy.weight.clone()
    stored = (Episode("a", "a", (Turn(toys.query(0), (1,), (True,)),)),)
    with pytest.raises(RunFailure, match="3 updates had a non-finite gradient"):
        run(Sft(stored, 1, 0), 10, policy=policy, max_skipped_steps=2)
    assert torch.equal(before, policy.weight)


def test_a_rollout_that_samples_from_another_model_stops_the_run():
    class Stale(toys.CandidatePolicy):
        def sample(self, contexts, keys, sampling):
            turns = super().sample(contexts, keys, sampling)
            return [
                replace(t, behaviour_logps=(x - 1.0,))
                for t in turns
                for x in t.behaviour_logps or ()
            ]

    with pytest.raises(RunFailure, match=r"differ by 1\.000"):
        run(grpo(), 1, policy=Stale(), max_rollout_gap=0.25)


class Counter:
    """Three turns: the tool answers with the running sum, which is what was said in the end."""

    def __init__(self, row, crash=False):
        self.start = int(row.messages[0].content)
        self.actions: list[int] = []
        self.crash = crash

    def context(self):
        if len(self.actions) == 3:
            return None
        total = self.start + sum(self.actions)
        return tuple(float(i == (len(self.actions) * 2 + total % 2)) for i in range(toys.FEATURES))

    def act(self, turn):
        if self.crash and len(self.actions) == 1:
            raise RuntimeError("the tool broke")
        self.actions.append(turn.actions[0])

    def completion(self, ended):
        return Completion(str(self.start + sum(self.actions)), tuple(self.actions), ended)


def even(pairs):
    return [Reward(float(int(completion.text) % 2 == 0)) for _, completion in pairs]


def multi_turn(crashing: frozenset[str] = frozenset(), share: float = 0.1) -> Grpo:
    source = MultiTurn(lambda row: Counter(row, row.id in crashing), Sampling(1.0, 1), 0, even)
    return grpo(source=source, share=share)


def test_multi_turn_episodes_with_tool_results_between_the_turns_train():
    _, recorder = run(multi_turn(), 60)
    means = [line["reward_mean"] for line in recorder.lines]
    assert sum(means[:5]) / 5 < 0.7 < 0.9 < sum(means[-5:]) / 5
    assert {len(r.tokens) for r in recorder.samples_by_step[1]} == {3}


def test_an_episode_whose_world_crashes_abstains_and_the_others_go_on():
    _, recorder = run(multi_turn(frozenset({"q0", "q1", "q2", "q3"}), share=0.9), 5)
    records = [r for step in recorder.samples_by_step.values() for r in step]
    crashed = [r for r in records if r.row_id in {"q0", "q1", "q2", "q3"}]
    assert crashed
    assert {r.reward.value for r in crashed} == {None}
    assert all("RuntimeError: the tool broke" in r.reward.why for r in crashed)
    assert all(r.reward.value is not None for r in records if r not in crashed)


def test_a_journalled_reward_is_not_punished_for_its_length_a_second_time():
    settings = toys.settings(overlong=Overlong(buffer=2, factor=0.5), max_tokens=1)
    _, first = run(grpo(settings), 1)
    _, again = resumed(journal_of(first), settings)
    assert again == [record.reward for record in first.samples_by_step[1]]
