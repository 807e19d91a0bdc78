"""Reward functions of the real TRL are rewards as they are, and say what they say there."""

from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.tasks.task import reward, task
from tests.tasks.user_files import forgotten, write

pytestmark = pytest.mark.slow
rewards = pytest.importorskip("trl.rewards", reason="needs trl")

ROW = Row("r", (Message("user", "1 + 1 = ?"),), gold="2", extra={"solution": r"\boxed{2}"})
TEXTS = (r"<think>easy</think>\boxed{2}", r"\boxed{3}", "<think>a</think>", "")


@pytest.mark.parametrize("name", ["think_format_reward", "accuracy_reward"])
def test_a_function_of_trl_gives_what_trl_gives(tmp_path: Path, name: str) -> None:
    write(tmp_path, "from_trl.py", f"from trl.rewards import {name}\n")
    with forgotten(tmp_path):
        judge = reward(task("math"), f"path:from_trl.py:{name}", tmp_path)
        found = [judge(ROW, Completion(text)).value for text in TEXTS]
    said = [[{"role": "assistant", "content": text}] for text in TEXTS]
    theirs = getattr(rewards, name)(completions=said, solution=[r"\boxed{2}"] * len(TEXTS))
    assert found == theirs and len({*found}) > 1
