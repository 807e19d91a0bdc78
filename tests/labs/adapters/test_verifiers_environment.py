"""Environments of the real `verifiers` are tasks: rows, dialogues and rubrics are the library's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion
from assay.tasks.running import RewardRunner
from assay.tasks.task import BaseTask, reward, task
from tests.cli.conftest import call
from tests.models.folders import save_tiny_model
from tests.tasks.user_files import forgotten, write

pytestmark = pytest.mark.slow
pytest.importorskip("verifiers.envs.multiturn_env", reason="needs verifiers 0.1")

SINGLE = """\
import verifiers as vf
from datasets import Dataset

from assay.labs.adapters.verifiers_environment import verifiers_task

ROWS = Dataset.from_list([{"question": f"Say {w} backwards.", "answer": w[::-1]} for w in WORDS])


async def right(completion, answer):
    return float(completion[-1]["content"].strip() == answer)


def short(completion, **kwargs):
    if completion[-1]["content"] == "crash":
        raise ValueError("no")
    return float(len(completion[-1]["content"]) < 10)


ENVIRONMENT = vf.SingleTurnEnv(
    dataset=ROWS, system_prompt="Reverse.", rubric=vf.Rubric([right, short], [1.0, 0.5])
)
TASK = verifiers_task("reverse", ENVIRONMENT, target=lambda example: example["answer"])
"""
MULTI = """\
import verifiers as vf
from datasets import Dataset

from assay.labs.adapters.verifiers_environment import verifiers_task

ROWS = Dataset.from_list([{"question": "Guess.", "answer": str(n)} for n in (3, 7)])


class Guess(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["guesses"] = 0

    @vf.stop
    async def found(self, state):
        return state.get("won", False)

    async def env_response(self, messages, state, **kwargs):
        state["guesses"] += 1
        guess = messages[-1]["content"]
        if guess == state["answer"]:
            state["won"] = True
            state["final_env_response"] = [{"role": "user", "content": "Right."}]
            return state["final_env_response"]
        higher = guess.isdigit() and int(guess) < int(state["answer"])
        return [{"role": "user", "content": "higher" if higher else "lower"}]


def won(state):
    return float(state.get("won", False)) / max(state["guesses"], 1)


TASK = verifiers_task("guess", Guess(max_turns=4, dataset=ROWS, rubric=vf.Rubric([won])))
"""
EXPERIMENT = """\
name  = "guess"
model = "path:model"
task  = "path:environment.py"

[data.train]
source = "verifiers:train"

[stage.rl]
method = "grpo"
data   = "train"
reward = "guess.rubric"
steps  = 1
prompts = 2
group   = 2
sampling = { max_tokens = 3 }
"""
WORDS = 'WORDS = ["stone", "river"]\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with forgotten(tmp_path):
        yield tmp_path


def made(folder: Path, text: str) -> Any:
    write(folder, "environment.py", WORDS + text)
    return task("path:environment.py", folder)


def scored(skill: BaseTask, row: Any, *said: Completion) -> list:
    with RewardRunner(reward(skill, "rubric")) as runner:
        return runner.score([(row, each) for each in said])


def test_a_single_turn_environment_is_rows_and_a_rubric(folder: Path) -> None:
    skill = made(folder, SINGLE)
    row, other = skill.sources["verifiers"]("train").rows
    assert [m.content for m in skill.prompt(row)] == ["Reverse.", "Say stone backwards."]
    assert skill.dialogue(row) is None and skill.reward_maximum == {"rubric": 1.5}
    gold, empty = (Completion(text) for text in (skill.target(row).content, ""))
    crash, exchanged = Completion("crash"), Completion(skill.target(other).content)
    rewards = scored(skill, row, gold, empty, exchanged, crash)
    assert [each.value for each in rewards] == [1.5, 0.5, 0.5, None]
    assert rewards[0].parts == {"right": 1.0, "short": 1.0, "num_turns": 1.0}
    assert "Error calling reward function short: no" in rewards[3].why


def play(skill: BaseTask, row: Any, *texts: str) -> tuple[list[str], Completion]:
    dialogue = skill.dialogue(row)
    asked = []
    assert dialogue is not None
    for text in texts:
        now = dialogue.asks()
        assert now == dialogue.asks()
        if now is None:
            break
        asked.append(now.messages[-1].content)
        dialogue.hears(text, "stop")
    return asked, Completion("\n".join(texts), messages=dialogue.messages)


def test_a_multi_turn_environment_is_a_dialogue_and_its_rubric_sees_the_state(folder: Path) -> None:
    skill = made(folder, MULTI)
    row, _ = skill.sources["verifiers"]("train").rows
    asked, won = play(skill, row, "9", "1", "3", "unheard")
    assert asked == ["Guess.", "lower", "higher"]
    assert [(m.role, m.content) for m in won.messages] == [
        *(("assistant", "9"), ("user", "lower"), ("assistant", "1"), ("user", "higher")),
        *(("assistant", "3"), ("user", "Right.")),
    ]
    cut = play(skill, row, "9", "1")[1]
    lost = play(skill, row, *"9999")[1]
    assert [each.value for each in scored(skill, row, won, cut, lost)] == [
        pytest.approx(1 / 3),
        0.0,
        0.0,
    ]


def test_a_conversation_that_the_environment_would_not_lead_to_is_unscored(folder: Path) -> None:
    skill = made(folder, MULTI)
    first, second = skill.sources["verifiers"]("train").rows
    (other,) = scored(skill, second, play(skill, first, "5", "3")[1])
    assert other.value is None and "otherwise when the episode is played again" in other.why


def test_a_multi_turn_environment_trains_a_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny_model(folder / "model")
    write(folder, "environment.py", MULTI)
    write(folder, "guess.toml", EXPERIMENT)
    monkeypatch.chdir(folder)
    ran = call("run", "guess.toml", "--despite", "its rows have no answers to imitate")
    assert ran.exit_code == 0, ran.output
    (metrics,) = folder.glob("runs/guess/*/metrics.jsonl")
    assert "num_turns" in metrics.read_text()


@pytest.mark.parametrize(
    ("rubric", "why"),
    [
        ("vf.JudgeRubric(judge_client=object())", "JudgeRubric asks a model by itself"),
        ("vf.Rubric([lambda completions: [1.0]])", "rewards over groups"),
    ],
)
def test_rewards_that_assay_cannot_ask_one_by_one_are_refused(
    folder: Path, rubric: str, why: str
) -> None:
    text = SINGLE.replace("vf.Rubric([right, short], [1.0, 0.5])", rubric)
    with pytest.raises(Exception, match=why) as raised:
        made(folder, text)
    assert "environment.py:" in str(raised.value)
