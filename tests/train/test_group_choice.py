"""Which groups a step trains on and averages over: refills, dropped groups, visits to a row."""

from collections.abc import Collection, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.data.episode import Episode, Reward, Turn
from assay.rl.advantages import ADVANTAGES
from assay.rl.aggregation import AGGREGATIONS
from assay.rl.objectives import GrpoObjective
from assay.rl.presets import PRESETS
from assay.rl.thought import Thinking
from assay.train.checkpoint import Place
from assay.train.grpo import Grpo
from assay.train.likelihood import Rft
from assay.train.pair_choice import OVERLONG, choose, groups_that_teach
from assay.train.sampled_groups import StoredPrompts
from assay.train.update import accumulate
from tests.train import toys

DROPPING = sorted(n for n, each in ADVANTAGES.items() if not each.whitened)
THINKING = Thinking(
    lambda tokens: "".join({0: "<think>", 1: "</think>"}.get(t, "x") for t in tokens),
    frozenset({-1}),
)
Rewards = Sequence[float | Reward]


def group(
    number: int, rewards: Rewards, lengths: Sequence[int] = (), cut: Collection[int] = ()
) -> list[Episode]:
    """Completions of query `number`, of so many actions each; those in `cut` are truncated."""
    found = []
    for member, reward in enumerate(rewards):
        length = lengths[member % len(lengths)] if lengths else 1 + (number + member) % 3
        actions = tuple((number + 3 * member + i) % toys.CANDIDATES for i in range(length))
        ended = "length" if member in cut else "stop"
        turn = Turn(toys.query(number), actions, (True,) * length, None, ended)
        given = reward if isinstance(reward, Reward) else Reward(reward)
        found.append(Episode(f"q{number}#{member}", f"q{number}", (turn,), given))
    return found


def method(groups: Sequence[Sequence[Episode]], prompts: int, **options) -> Grpo:
    """GRPO over stored groups, `prompts` of them a batch, in as many batches as there are."""
    kl = options.pop("kl", 0.0)
    options = {"max_batches": -(-len(groups) // prompts), **options}
    stream, objective = StoredPrompts(groups, prompts), GrpoObjective(kl_coef=kl)
    return Grpo(stream, toys.settings(**options), objective, toys.decode, THINKING)


def collected(made: Grpo):
    return made.collect(toys.CandidatePolicy(), Place(), toys.MemoryRecorder())


def gradient(made: Grpo | Rft) -> torch.Tensor:
    """Gradients of the step's updates at the starting weights, one below the other."""
    policy, found = toys.CandidatePolicy(), []
    batch = made.collect(policy, Place(), toys.MemoryRecorder())
    for packed in batch.updates:
        policy.module.zero_grad()
        accumulate(policy, packed, batch.objective, 10**6)
        assert policy.weight.grad is not None
        found.append(policy.weight.grad.clone())
    found = [one for one in found if one.any()]
    return torch.stack(found) if found else torch.zeros(0)


DULL = [group(n, [0.5] * 4) for n in range(4)]
SHARP = [group(4 + n, [1.0, 0.0, 0.0, 1.0]) for n in range(4)]


@pytest.mark.parametrize("options", [{"kl": 0.05}, {"advantage": "reinforce_pp_baseline"}, {}])
def test_where_groups_are_kept_the_gradient_comes_from_the_refills_that_had_signal(options):
    found = gradient(method([*DULL, *SHARP], 4, drop=False, **options))
    alone = gradient(method(SHARP, 4, drop=False, **options))
    assert alone.abs().max() > 0.01
    torch.testing.assert_close(found, alone)


def test_what_signal_leaves_free_is_filled_with_the_first_of_the_others():
    groups = [DULL[0], SHARP[0], DULL[1], DULL[2], DULL[3], SHARP[1]]
    kept = choose(groups, 4, drop=False, count=True)
    assert (kept.trained, kept.counted) == ((0, 1, 2, 5), ())
    dropped = choose(groups, 4, drop=True, count=True)
    assert (dropped.trained, dropped.counted) == ((1, 5), (0, 2))
    assert choose(groups, 4, drop=True, count=False).counted == ()
    assert choose([*groups, *SHARP], 4, drop=False, count=True).trained == (1, 5, 6, 7)
    assert choose([[], *DULL], 9, drop=False, count=True).trained == (1, 2, 3, 4)


@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_after_a_refill_the_averages_are_over_what_the_step_trains_on(aggregation, drop, count):
    groups = [DULL[0], SHARP[0], DULL[1], SHARP[1], SHARP[2]]
    made = method(
        groups, 2, aggregation=aggregation, drop=drop, algorithm="grpo" if count else "dapo"
    )
    (packed,) = collected(made).updates
    (alone,) = collected(method(groups[1:4:2], 2, aggregation=aggregation)).updates
    assert torch.equal(packed.weight_S, alone.weight_S)
    if aggregation in ("token_mean", "seq_mean_token_mean"):
        assert float(packed.weight_S.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_only_groups_that_were_dropped_and_not_replaced_are_counted(aggregation):
    groups = [DULL[0], SHARP[0], DULL[1], SHARP[1], DULL[2], DULL[3]]
    whole = gradient(method(groups, 3, aggregation=aggregation))
    step = gradient(method([DULL[0], SHARP[0], SHARP[1]], 3, aggregation=aggregation, drop=False))
    torch.testing.assert_close(whole, step)


@st.composite
def steps(draw: st.DrawFn) -> list[list[Episode]]:
    """Groups of a step or two: some of equal rewards, some whose completions were cut."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, 4))
        rewards = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=size, max_size=size))
        if draw(st.booleans()):
            rewards = [rewards[0]] * size
        lengths = draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
        found.append(group(number, rewards, lengths, draw(st.sets(st.integers(0, size - 1)))))
    return found


@pytest.mark.parametrize("advantage", DROPPING)
@given(
    groups=steps(),
    prompts=st.integers(1, 6),
    options=st.fixed_dictionaries(
        {
            "aggregation": st.sampled_from(sorted(AGGREGATIONS)),
            "mask_truncated": st.booleans(),
            "minibatches": st.integers(1, 2),
        }
    ),
)
def test_dropping_groups_without_signal_changes_no_gradient(advantage, groups, prompts, options):
    found = [
        gradient(method(groups, prompts, advantage=advantage, drop=drop, **options))
        for drop in (True, False)
    ]
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "name", sorted(n for n in PRESETS if not ADVANTAGES[PRESETS[n].advantage].whitened)
)
@given(groups=steps(), prompts=st.integers(1, 6), mask_truncated=st.booleans())
def test_a_preset_that_counts_dropped_groups_loses_nothing_by_dropping_and_others_average_the_rest(
    name, groups, prompts, mask_truncated
):
    preset = PRESETS[name]
    options = {
        "advantage": preset.advantage,
        "aggregation": preset.aggregation,
        "mask_truncated": mask_truncated,
    }
    counting = "grpo" if preset.keep_dropped_in_denominator else "dapo"
    dropped = gradient(method(groups, prompts, algorithm=counting, **options))
    if not preset.keep_dropped_in_denominator:
        teaching = sorted(groups_that_teach(shaped(groups, **options)))[:prompts]
        groups = [groups[g] for g in teaching]
    if groups:
        whole = gradient(method(groups, prompts, drop=False, **options))
        torch.testing.assert_close(dropped, whole, rtol=1e-6, atol=1e-12)


def shaped(groups, **options):
    made = method(groups, 1, **options)
    return [made.shaped(one) for one in groups]


def test_the_alpha_of_gpg_counts_the_groups_that_were_dropped():
    groups = [group(0, [0.0] * 4), group(1, [1.0, 0.0, 0.0, 0.0])]
    (packed,) = collected(method(groups, 2, advantage="gpg")).updates
    # 8 episodes, of which one was rewarded.
    assert float(packed.advantage_S.max()) == pytest.approx(8 / 1 * 0.75)


def test_a_punishment_for_length_alone_is_no_signal_for_dynamic_sampling():
    punished = [Reward(v, {"right": 0.0, OVERLONG: v}) for v in (-0.5, 0.0, 0.0, 0.0)]
    groups = [group(0, punished), SHARP[0]]
    assert groups_that_teach(groups) == {1}
    batch = collected(method(groups, 1))
    assert batch.metrics["sampled_batches"] == 2
    assert {r.row_id for r in batch.samples if r.advantage} == {"q4"}
    # Where nothing better is found, it is trained on, and dropping leaves it in.
    assert choose(groups, 2, drop=True, count=True).trained == (0, 1)
    # Rewards that are equal only after the punishment move nothing.
    level = [Reward(0.5, {"right": 1.0, OVERLONG: -0.5}), Reward(0.5, {"right": 0.5, OVERLONG: 0})]
    assert groups_that_teach([group(0, level)]) == set()


def test_a_group_all_of_whose_completions_are_masked_does_not_count_as_signal():
    masked = group(0, [1.0, 0.0], cut=(0, 1))
    batch = collected(method([masked, SHARP[0]], 1, mask_truncated=True))
    assert batch.metrics["sampled_batches"] == 2
    assert {r.row_id for r in batch.samples if r.advantage} == {"q4"}
