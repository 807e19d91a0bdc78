"""The manual's examples are real: each is taken out of its page and does what the page says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.rl.advantages import ADVANTAGES, AdvantageInput, AdvantageOptions
from assay.tasks.reward_table import weighted
from assay.tasks.running import RewardRunner
from tests.docs.pages import as_module, blocks


@pytest.fixture
def rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """The rewards of add-a-task.md, by name."""
    return as_module("add-a-task.md", "rewards_of_the_manual", tmp_path, monkeypatch, 1).REWARDS


ROW = Row("r", (Message("user", "?"),), gold="(a|aa)+", extra={"budget": 4})
BARE = Row("bare", (Message("user", "?"),), gold="a")


def test_the_pure_reward_scores_and_abstains(rewards: dict) -> None:
    lengths = [4, 6, 9]
    pairs = [(ROW, Completion("x", tuple(range(n)))) for n in lengths]
    with RewardRunner(rewards["within_budget"]) as judge:
        scored = judge.score([*pairs, (BARE, Completion("x", (1,)))])
        assert judge.abstentions == {"the row has no budget": 1}
    assert scored[:3] == [
        Reward(1.0, {"tokens": 4.0}),
        Reward(0.5, {"tokens": 6.0}),
        Reward(0.0, {"tokens": 9.0}),
    ]
    assert scored[3].value is None


def test_the_weights_of_the_page_add_the_two_rewards_up(rewards: dict) -> None:
    import tomllib

    weights = tomllib.loads(blocks("add-a-task.md", "toml")[2])["reward"]
    both = weighted(rewards, weights)
    pairs = [(row, Completion("a", (1,))) for row in (ROW, BARE)]
    with RewardRunner(both, sandbox="limits-only") as judge:
        good, silent = judge.score(pairs)
    assert good.value == pytest.approx(1.2)
    assert good.parts["within_budget/tokens"] == 1.0
    assert silent.value is None
    assert silent.why == "within_budget: the row has no budget"


@pytest.fixture
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the estimator of extend.md, in the register for one test."""
    before = dict(ADVANTAGES)
    as_module("extend.md", "estimator_of_the_manual", tmp_path, monkeypatch)
    (name,) = set(ADVANTAGES) - set(before)
    yield name
    del ADVANTAGES[name]
    assert before == ADVANTAGES


def test_the_estimator_keeps_the_side_of_the_mean(sign: str) -> None:
    batch = AdvantageInput(
        rewards_E=torch.tensor([0.0, 0.1, 5.0, 0.3, 0.3]),
        group_E=torch.tensor([0, 0, 0, 1, 1]),
        episode_S=torch.tensor([0, 1, 2, 2, 3, 4]),
        mask_S=torch.tensor([True, True, True, False, True, True]),
    )
    advantage_S = ADVANTAGES[sign](batch, AdvantageOptions())
    assert advantage_S.dtype == torch.float32
    assert advantage_S.tolist() == [-1.0, -1.0, 1.0, 0.0, 0.0, 0.0]
