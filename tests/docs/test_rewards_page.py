"""The examples of rewards.md do what the page says."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.experiment.tables import EvaluateSpec
from assay.lab.models.metering import MeteredModel
from assay.lab.session.reward_parts import full_reward, reward_of
from assay.labs.math.task import TASK
from assay.rl.policy import Sampling
from assay.tasks.running import RewardRunner
from tests.docs.pages import DOCS, as_module, blocks
from tests.scripted_helper import ScriptedHelper, read_script

REPORT = "../tests/docs/report_001.md"
PAGES = ("rewards.md", REPORT)
ROW = Row("r", (Message("user", "?"),), gold="7")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    return as_module("rewards.md", "rewards_page", tmp_path, monkeypatch)


def test_the_judge_asks_its_helper_and_abstains_where_that_fails(module, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(
        '{"prompt": "good", "answer": "8 of 10"}\n'
        '{"prompt": "odd", "answer": "well"}\n'
        '{"failure": "HTTP 500"}\n'
    )
    grader = ScriptedHelper("grader", script, read_script(script))
    helpers = {"grader": MeteredModel("grader", grader, Sampling(temperature=0.0))}
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


def judged(table: Mapping[str, Any], said: list[Completion]) -> list[Reward]:
    """The rewards of some answers by a table as the file has it."""
    rest = {"data": "d", "role": "report", "checkpoints": ["base"]}
    spec = EvaluateSpec.model_validate({**rest, **table}).reward
    assert spec is not None
    with RewardRunner(reward_of(TASK, spec, Path()), 2.0, sandbox="limits-only") as runner:
        return runner.score([(ROW, each) for each in said])


def tables() -> list[dict[str, Any]]:
    """The page's tables: the first example, basic, quality, and the part `unread`."""
    return [tomllib.loads(block) for page in PAGES for block in blocks(page, "toml")]


def cells(start: str) -> list[list[str]]:
    """The body of the page's table whose head begins like this."""
    text = (DOCS / REPORT).read_text(encoding="utf-8")
    lines = text[text.index(start) :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_means_what_the_page_says() -> None:
    table = tables()[0]
    tokens = tuple(range(5000))
    said = [
        Completion(r"\boxed{7}", tokens),
        Completion(r"again, again, again, again, again, \boxed{7}", tokens),
        Completion(r"\boxed{8}", tokens),
        Completion(r"\boxed{7}", tokens, "length"),
    ]
    values = [reward.value for reward in judged(table, said)]
    assert values == pytest.approx([110.0, 100.0, 0.0, -1.0], abs=1e-3)
    spec = EvaluateSpec.model_validate(
        {"data": "d", "role": "report", "checkpoints": ["base"], **table}
    ).reward
    assert spec is not None and full_reward(TASK, spec, Path()) == pytest.approx(110.0)


def test_the_reports_words_and_its_code_pay_what_the_page_says() -> None:
    _, basic, _, unread = tables()
    parts = basic["reward"]
    words = {"correct": {"kind": "math.accuracy", "value": 100}, **unread["reward"]}
    rows = cells("| answer to a question")
    said = [
        Completion(row[0].split("`")[1], (0,), "length" if "cut" in row[0] else "stop")
        for row in rows
    ]
    for place, table in ((1, words), (2, parts)):
        values = [reward.value for reward in judged({"reward": table}, said)]
        assert values == [float(row[place]) for row in rows]
