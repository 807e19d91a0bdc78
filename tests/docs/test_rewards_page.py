"""The examples of rewards.md do what the page says."""

import tomllib
from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.experiment.tables import EvaluateSpec
from assay.lab.setup.reward_parts import full_reward, reward_of
from assay.lab.setup.scripted_helper import ScriptedHelper, read_script
from assay.rl.policy import Sampling
from assay.tasks.helper_model import Usage
from assay.tasks.math.task import TASK
from assay.tasks.running import RewardRunner
from tests.docs.pages import as_module, blocks

ROW = Row("r", (Message("user", "?"),), gold="7")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    return as_module("rewards.md", "rewards_page", tmp_path, monkeypatch)


def test_the_judge_asks_its_helper_and_abstains_where_that_fails(module, tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text(
        '[[rule]]\nprompt = "good"\nanswer = "8 of 10"\n'
        '[[rule]]\nprompt = "odd"\nanswer = "well"\n'
        '[[rule]]\nfailure = "HTTP 500"\n'
    )
    given = (script, Sampling(temperature=0.0), read_script(script), Usage())
    helpers = {"grader": ScriptedHelper("grader", *given)}
    texts = ["good", "good", "odd", "good", "lost", "x" * 20_001]
    pairs = [(ROW, Completion(text, id=f"1/r#{n}")) for n, text in enumerate(texts)]
    with RewardRunner(module.graded, helpers=helpers) as runner:
        rewards = runner.score(pairs)
    assert [reward.value for reward in rewards] == [0.8, 0.8, None, 0.8, None, 0.0]
    assert rewards[0].facts == {"said": "8 of 10"} and rewards[5].outcome == "too long"
    assert "HTTP 500" in rewards[4].why


def test_the_program_earns_by_what_it_prints(module) -> None:
    texts = ["```python\nprint(3 + 4)\n```", "```python\nwhile True: pass\n```", "7"]
    with RewardRunner(module.prints_gold, 1.0, sandbox="limits-only") as runner:
        rewards = runner.score([(ROW, Completion(text)) for text in texts])
    assert [(reward.value, reward.outcome) for reward in rewards] == [
        *((1.0, ""), (0.0, "timed out"), (0.0, "no program")),
    ]


def test_the_table_means_what_the_page_says() -> None:
    table = tomllib.loads(blocks("rewards.md", "toml")[0])
    rest = {"data": "d", "role": "report", "checkpoints": ["base"]}
    spec = EvaluateSpec.model_validate({**rest, **table}).reward
    assert spec is not None
    tokens = tuple(range(5000))
    said = [
        Completion(r"\boxed{7}", tokens),
        Completion(r"again, again, again, again, again, \boxed{7}", tokens),
        Completion(r"\boxed{8}", tokens),
        Completion(r"\boxed{7}", tokens, "length"),
    ]
    with RewardRunner(reward_of(TASK, spec, Path())) as runner:
        values = [reward.value for reward in runner.score([(ROW, each) for each in said])]
    assert values == pytest.approx([110.0, 100.0, 0.0, -1.0], abs=1e-3)
    assert full_reward(TASK, spec, Path()) == pytest.approx(110.0)
