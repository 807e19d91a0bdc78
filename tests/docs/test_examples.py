"""The manual's examples are real: each is taken out of its page and does what the page says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.rl.advantages import ADVANTAGES, AdvantageInput, AdvantageOptions
from assay.tasks.running import RewardRunner
from tests.docs.pages import as_module


def test_the_reward_of_the_page_runs_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = as_module("add-a-task.md", "rewards_of_the_manual", tmp_path, monkeypatch, 1)
    row = Row("r", (Message("user", "?"),), gold="(a|aa)+")
    pairs = [(row, Completion(text, (1,))) for text in ("aaa", "aab")]
    with RewardRunner(page.REWARDS["matches"], sandbox="limits-only") as judge:
        assert judge.score(pairs) == [Reward(1.0), Reward(0.0)]


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
