"""The manual's examples are real: each is taken out of its page and does what the page says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.lab.check.all_checks import check_experiment
from assay.lab.run import runner
from assay.rl.advantages import ADVANTAGES, AdvantageInput, AdvantageOptions
from assay.rl.objectives import Grpo as GrpoObjective
from assay.rollout.sampling import Sampling
from assay.tasks import task as registry
from assay.tasks.running import RewardRunner, WeightedReward
from assay.tasks.task import BenchmarkOptions, UnknownNameError
from assay.train.grpo import Grpo, GrpoSettings
from assay.train.loop import LoopSettings, train
from assay.train.sampled_groups import Prompts, SingleTurn
from assay.train.train_state import TrainState
from tests.docs.pages import as_module, blocks
from tests.models.folders import tiny_model, tiny_tokenizer
from tests.train import toys


@pytest.fixture
def reverse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Task:
    """The task of add-a-task.md, registered as the page says."""
    as_module("add-a-task.md", "reverse_of_the_manual", tmp_path, monkeypatch)
    table = cast(dict[str, str], registry.TASKS)
    monkeypatch.setitem(table, "reverse", "reverse_of_the_manual")
    return registry.task("reverse")


def values(task: registry.Task, rows: tuple[Row, ...], texts: list[str]) -> list[float | None]:
    """What the task's reward gives to texts, row by row."""
    pairs = [(row, Completion(text)) for row, text in zip(rows, texts, strict=True)]
    with RewardRunner(registry.reward(task, "exact")) as judge:
        return [reward.value for reward in judge.score(pairs)]


def test_the_task_proves_its_gold_answers_and_refuses_wrong_ones(reverse: registry.Task) -> None:
    rows = reverse.sources["reverse"]("train").rows
    gold = [reverse.target(row).content for row in rows]
    assert values(reverse, rows, gold) == [1.0] * len(rows)
    assert values(reverse, rows, [""] * len(rows)) == [0.0] * len(rows)
    assert values(reverse, rows, [*gold[1:], gold[0]]) == [0.0] * len(rows)
    assert values(reverse, (Row("r", rows[0].messages),), ["amber"]) == [None]


def test_the_tasks_benchmark_takes_its_option_and_no_other(reverse: registry.Task) -> None:
    make = reverse.benchmarks["reverse/words"]
    items = make(BenchmarkOptions({"shortest": 7})).items
    assert [item.id for item in items] == ["lantern"]
    with pytest.raises(UnknownNameError, match="shortest"):
        make(BenchmarkOptions({"shortet": 7}))
    train = {row.id for row in reverse.sources["reverse"]("train").rows}
    assert train.isdisjoint(item.id for item in make(BenchmarkOptions()).items)


@pytest.fixture
def experiment(reverse: registry.Task, tmp_path: Path) -> Path:
    """The experiment file of add-a-task.md in a lab that has a tiny model."""
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    file = tmp_path / "reverse.toml"
    file.write_text(blocks("add-a-task.md", "toml")[0], encoding="utf-8")
    return file


def test_the_tasks_experiment_has_nothing_wrong(experiment: Path, tmp_path: Path) -> None:
    report = check_experiment(experiment, ["model=path:model"], root=tmp_path)
    assert not [f for f in report.findings if f.severity == "error"]


def test_the_tasks_experiment_trains_and_measures(experiment: Path, tmp_path: Path) -> None:
    (run,) = runner.start(experiment, ["model=path:model"], root=tmp_path)
    stages = [json.loads(line)["stage"] for line in run.metrics.read_text().splitlines()]
    assert stages == ["sft", "sft", "rl", "rl"]
    records = sorted(path.name for path in run.evaluations.glob("test-*/*.parquet"))
    assert records[0] == "base.parquet"
    assert len(records) == 3


@pytest.fixture
def rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """The rewards of add-a-reward.md, by name."""
    return as_module("add-a-reward.md", "rewards_of_the_manual", tmp_path, monkeypatch).REWARDS


ROW = Row("r", (Message("user", "?"),), gold="(a|aa)+", extra={"budget": 4})
BARE = Row("bare", (Message("user", "?"),), gold="a")
ENDLESS = "a" * 60 + "b"
"""The pattern of ROW takes a time on this that doubles with every two letters."""


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


def test_the_unsafe_reward_runs_in_a_worker_and_what_never_ends_earns_0(rewards: dict) -> None:
    pairs = [(ROW, Completion(text)) for text in ("aaa", "b", ENDLESS)]
    with RewardRunner(rewards["matches"], 3.0, sandbox="limits-only") as judge:
        scored = judge.score(pairs)
    assert [reward.value for reward in scored] == [1.0, 0.0, 0.0]
    assert scored[2].outcome == "timed out"


def test_the_weights_of_the_page_add_the_two_rewards_up(rewards: dict) -> None:
    import tomllib

    weights = tomllib.loads(blocks("add-a-reward.md", "toml")[0])["reward"]
    both = WeightedReward(rewards, weights)
    pairs = [(row, Completion("a", (1,))) for row in (ROW, BARE)]
    with RewardRunner(both, sandbox="limits-only") as judge:
        good, silent = judge.score(pairs)
    assert good.value == pytest.approx(1.2)
    assert good.parts["within_budget/tokens"] == 1.0
    assert silent.value is None
    assert silent.why == "within_budget: the row has no budget"


@pytest.fixture
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the estimator of add-an-estimator.md, in the register for one test."""
    before = dict(ADVANTAGES)
    as_module("add-an-estimator.md", "estimator_of_the_manual", tmp_path, monkeypatch)
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


def test_the_estimator_trains_a_policy_through_grpo(sign: str) -> None:
    source = SingleTurn(toys.contexts(), Sampling(1.0, 1), 0, toys.score, toys.decode)
    prompts = Prompts(toys.rows(), source, prompts=4, group=8, seed=0)
    method = Grpo(prompts, GrpoSettings(advantage=sign), GrpoObjective(), toys.decode)
    policy, recorder = toys.CandidatePolicy(), toys.MemoryRecorder()
    before = toys.accuracy(policy)
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=0.1, weight_decay=0.0)
    train(policy, method, optimizer, TrainState(), LoopSettings(40, 0.1), recorder)
    assert before < 0.35 < 0.8 < toys.accuracy(policy)
    signs = {
        record.advantage for records in recorder.samples_by_step.values() for record in records
    }
    assert signs <= {-1.0, 0.0, 1.0}
