"""A part of an algorithm that is set records what it did; one that is not set, nothing."""

from typing import Any

from assay.data.episode import Reward
from assay.rl.losses import Clip
from assay.rl.objectives import GrpoObjective
from assay.train.grpo import Grpo
from assay.train.likelihood import Rce
from assay.train.sampled_groups import StoredGroups
from assay.train.update import constant
from tests.train import toys
from tests.train.test_group_choice import group
from tests.train.test_methods import grpo, run


def written(method, steps: int = 4, **settings: Any) -> list[dict[str, float]]:
    return run(method, steps, **settings)[1].lines


def test_clip_higher_counts_what_an_equal_bound_would_have_cut() -> None:
    """The toy's updates are large, so that ratios pass the lower of the two upper bounds."""
    settings = toys.settings(epochs=4)

    def raised(clip: Clip) -> list[float]:
        objective = GrpoObjective(clip=clip, several_updates=True)
        lines = written(grpo(settings, objective), lr=0.3)
        return [line["clip_raised_share"] for line in lines if "clip_raised_share" in line]

    assert max(raised(Clip(0.2, 0.9))) > 0
    assert raised(Clip(0.2, 0.2)) == []
    assert set(raised(Clip(50.0, 51.0))) == {0.0}
    once = written(grpo(None, GrpoObjective(clip=Clip(0.2, 0.28))), 1)
    assert once[0]["clip_raised_share"] == 0, "with one update no ratio can leave 1"


def test_top_entropy_counts_the_tokens_that_it_leaves_out() -> None:
    lines = written(grpo(toys.settings(top_entropy_share=0.5)), 2)
    assert all(0.2 < line["entropy_cut_share"] <= 0.5 for line in lines)


def test_masked_completions_and_replaced_groups_are_counted() -> None:
    settings = toys.settings(max_batches=3, mask_truncated=True)
    none = written(grpo(settings, score=lambda pairs: [Reward(0.5) for _ in pairs]), 1)
    assert none[0]["groups_replaced"] == 8, "two batches of four in place of one that teaches not"
    assert none[0]["masked_share"] == none[0]["truncated_share"]


def test_a_curriculum_counts_the_candidates_that_it_leaves_out() -> None:
    rewards = [float(a == 1) for a in range(toys.CANDIDATES)]
    groups = tuple(tuple(group(i, rewards)) for i in range(8))
    for best, expected in (((2,), 1 - 2 / toys.CANDIDATES), ((toys.CANDIDATES,), 0.0), ((), None)):
        method = Rce(StoredGroups(groups, 4, 0), constant(1.0), 1.0, toys.decode, best)
        (line,) = written(method, 1)
        assert line.get("left_out_share") == expected
        stream = StoredGroups(groups, 4, 0, None, best)
        (line,) = written(Grpo(stream, toys.settings(), GrpoObjective(), toys.decode), 1)
        assert line.get("left_out_share") == expected
