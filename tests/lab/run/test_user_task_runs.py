"""A task in a user's file goes through every command, and a change of it is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import call
from tests.tasks.user_files import forgotten, write
from tests.tiny_labs import make_lab

TASK = """\
from assay.tasks.task import BaseTask
from near import clean


def exact(prompt, completion, row):
    return clean(completion) == row.gold


class Sums(BaseTask):
    name = "sums"
    rewards = {"exact": exact}
"""
NEAR = "def clean(text):\n    return text.removeprefix(r'\\boxed{').removesuffix('}')\n"
SHORT = "def short(completions, **k): return [-len(c[0]['content']) for c in completions]\n"
MORE = """
[data.test]
source = "path:test.jsonl"
format = "messages"

[evaluate.test]
data   = "test"
reward = "exact"
role   = "report"
checkpoints = ["base", "rl.last"]
sampling = { max_tokens = 4 }
"""
EDITS = {
    '"math"': '"path:mine/my task.py"',
    "{ accuracy = 1.0, cosine = 0.5 }": '{ "sums.exact" = 1.0, "path:short.py:short" = 0.1 }',
    '"accuracy"': '"exact"',
    "steps  = 40": "steps = 2",
    "checkpoint_every = 8": "checkpoint_every = 1",
    "steps  = 4\n": "steps = 2\n",
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tiny lab, its task in a user's file."""
    make_lab(tmp_path, edits=EDITS, until="[evaluate.test]", tables=MORE)
    write(tmp_path, "mine/my task.py", TASK)
    write(tmp_path, "mine/near.py", NEAR)
    write(tmp_path, "short.py", SHORT)
    monkeypatch.chdir(tmp_path)
    with forgotten(tmp_path):
        yield tmp_path


def test_a_run_is_not_resumed_with_another_task_or_without_it(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.lab.run import runner

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "train", interrupt)
        call("run", "tiny.toml", "--despite", "short answers earn nothing")
    write(lab, "mine/near.py", NEAR + "# another\n")
    refused = call("resume", "tiny")
    assert refused.exit_code == 2 and "task_source.near.py was" in refused.output
    (lab / "mine" / "my task.py").unlink()
    gone = call("resume", "tiny")
    assert gone.exit_code == 2 and "my task.py: no such file (it counts from" in gone.output
