"""Environments of verifiers through the gateway: their own rows, harness, tools and judges, and the
rewards that verifiers itself gives to the same answers.

ASSAY_VERIFIERS_PYTHON names the Python in which verifiers 0.4 is installed.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.errors import InputError
from assay.labs.worlds import verifiers
from assay.rl.policy import Sampling
from assay.tasks.helper_model import HelperAnswer
from assay.tasks.task import BenchmarkOptions
from tests.agents.scripted import Scripted, renderer, run
from tests.labs.worlds.environments.replies import answer, grade

PYTHON = os.environ.get("ASSAY_VERIFIERS_PYTHON", "")
FOLDER = Path(__file__).parent / "environments"
TURNS = {
    "sums_of_one_turn": [1, 1, 1, 1],
    "sums_of_three_turns": [1, 2, 1, 2],
    "sums_with_a_tool": [2, 2, 2, 2],
    "sums_with_a_judge": [1, 1, 1, 1],
}
NEEDED = pytest.mark.skipif(not PYTHON, reason="ASSAY_VERIFIERS_PYTHON is not set")


class Grader(SimpleNamespace):
    """A helper model that grades."""

    def called_by(self, caller):
        return self

    def answer(self, batch):
        return [HelperAnswer(grade(each.messages[-1].content)) for each in batch]


def says(text: str, key: str) -> str:
    said = answer(text, (re.findall(r'"name": "(\w*add)"', text) or [""])[0])
    return f"<tool_call>\n{json.dumps(said)}\n</tool_call>" if isinstance(said, dict) else said


@pytest.mark.slow
@NEEDED
@pytest.mark.parametrize("name", TURNS)
def test_rewards_are_those_that_verifiers_gives_to_the_same_answers(name, monkeypatch):
    monkeypatch.setattr(verifiers, "installed", lambda name: Path(PYTHON))
    monkeypatch.setattr("assay.engines.environments.python_of", lambda name: Path(PYTHON))
    loaded = verifiers.read(name, BenchmarkOptions({}, FOLDER))
    policy = Scripted(renderer().tokenizer, says)
    settings = {"kept": True, "deadline": 400.0}
    helpers = {"grader": Grader(name="grader", sampling=Sampling(0.0, 8))}
    outcome = run(
        FOLDER,
        verifiers.command(),
        policy,
        loaded.rows,
        settings=settings,
        helpers=helpers,
        together=2,
    )
    program = str(verifiers.PROGRAM.parent)
    command = [PYTHON, "-I", "oracle.py", name, program]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    alone = json.loads(done.stdout.splitlines()[-1])
    assert [each.value for each in outcome.rewards] == alone, outcome.rewards
    assert [len(played.turns) for played in outcome.played] == TURNS[name]
    assert len(set(alone)) > 1 or name == "sums_with_a_tool"


def test_without_verifiers_its_environment_is_named(monkeypatch):
    monkeypatch.setattr(verifiers, "installed", lambda name: None)
    with pytest.raises(InputError, match=r"not installed.*assay engines add verifiers"):
        verifiers.read("anything", BenchmarkOptions({}, FOLDER))
