"""Code outside the package: loaded once, known by its source, and refused in one line."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.errors import InputError, RunFailure
from assay.tasks.running import RewardRunner
from assay.tasks.task import is_unsafe, reward, task, task_fingerprint
from assay.tasks.user_code import forget_changed_files, load_file
from tests.tasks.user_files import TASK, forgotten, write

ROW = Row("r", (Message("user", "1 + 1 = ?"), Message("assistant", "2")), gold="2")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with forgotten(tmp_path):
        yield tmp_path


def refusal(name: str, root: Path) -> str:
    with pytest.raises(InputError) as raised:
        task(name, root)
    return str(raised.value).replace(f"{root}/", "")


def test_a_class_in_a_file_is_a_task_with_defaults_for_all_but_its_rewards(folder: Path) -> None:
    write(folder, "sub/my-task.py", TASK)
    found = task("path:sub/my-task.py", folder)
    assert found.name == "sums" and not found.benchmarks
    assert found.prompt(ROW) == ROW.messages[:1] and found.target(ROW) == ROW.messages[1]
    bare = Row("b", ROW.messages[:1], gold="2")
    assert found.target(bare).content == "2"
    assert reward(found, "sums.exact")(ROW, Completion("2")).value == 1.0
    assert task("path:sub/my-task.py", folder).rewards is found.rewards


def test_the_name_of_a_file_shadows_no_module(folder: Path) -> None:
    write(folder, "json.py", TASK)
    assert task("path:json.py", folder).name == "sums"
    assert sys.modules["json"] is json and not (folder / "__pycache__").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\nx.y\n", "t.py:2: raises AttributeError: 'int' object has no attribute 'y'"),
        ("def f(:\n", "t.py:1: SyntaxError: invalid syntax"),
        ("import sys\n\nsys.exit(3)\n", "t.py:3: raises SystemExit: 3"),
        ("from beside import thing\n", "beside.py:2: raises ZeroDivisionError: division by zero"),
        ("x = 1\n", "t.py: defines no task (write TASK = ... for the one that is meant (docs/"),
        (TASK + "class More(BaseTask): ...\n", "t.py: defines 2 tasks: Sums, More (write TASK ="),
        ("TASK = 3\n", "t.py: TASK is 3, no task (extend assay.tasks.task.BaseTask)"),
        (TASK + "TASK = Sums()\nTASK.name = 'a b'\n", "t.py: the task's name is 'a b' (use"),
        (
            TASK.replace("prompt, completion, row", "text"),
            "t.py: reward 'exact' takes (text) (write (prompt, completion, row) -> float, "
            "(row, completion) -> Reward, or TRL's (prompts, completions, **columns) -> ",
        ),
        (
            TASK + "    def __init__(self): self.x = 1 / 0\n",
            "t.py: making Sums() raises ZeroDivisionError: division by zero (make it in the",
        ),
        ("# \xe9", "t.py: SyntaxError: invalid or missing encoding declaration"),
    ],
)
def test_a_file_that_brings_no_task_is_refused_in_one_line(
    folder: Path, text: str, expected: str
) -> None:
    write(folder, "t.py", text)
    write(folder, "beside.py", "thing = 1\n1 / 0\n")
    said = refusal("path:t.py", folder)
    assert said.startswith(expected) and "\n" not in said


def test_a_file_that_is_not_there_says_from_where_it_counts(folder: Path) -> None:
    assert refusal("path:t.py", folder) == f"t.py: no such file (it counts from {folder})"


def test_the_fingerprint_is_the_source_of_the_file_and_of_what_it_imports_beside_it(
    folder: Path,
) -> None:
    write(folder, "lab/t.py", "from near import deep\nimport pack.part\nimport os\n" + TASK)
    write(folder, "lab/near.py", "import far\ndeep = 1\n")
    write(folder, "lab/far.py", "")
    write(folder, "lab/os.py", "is not imported")
    write(folder, "lab/other.py", "is not imported")
    for name in ("__init__", "part"):
        write(folder, f"lab/pack/{name}.py", "")
    before = task_fingerprint("path:t.py", folder / "lab")
    assert [*before] == ["far.py", "near.py", "pack/__init__.py", "pack/part.py", "t.py"]
    with forgotten(folder):
        shutil.move(folder / "lab", folder / "moved")
        for name in ("near", "far", "pack", "pack.part"):
            del sys.modules[name]
        assert task_fingerprint("path:t.py", folder / "moved") == before
        write(folder, "moved/far.py", "# changed\n")
        forget_changed_files()
        changed = task_fingerprint("path:t.py", folder / "moved")
        assert {k for k in before if before[k] != changed[k]} == {"far.py"}


def test_a_file_beside_that_python_would_take_from_elsewhere_is_refused(folder: Path) -> None:
    write(folder, "t.py", "import pydantic\n" + TASK)
    write(folder, "pydantic.py", "")
    assert refusal("path:t.py", folder).startswith("t.py: imports 'pydantic', which is ")


def test_a_file_is_loaded_once_until_it_has_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to a text of the same length within the same second, by which Python knows a source."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(folder, "t.py", "from near import VALUE\nfrom pack.part import OTHER\n")
    write(folder, "pack/__init__.py", "")
    files = write(folder, "near.py", "VALUE = 1\n"), write(folder, "pack/part.py", "OTHER = 1\n")
    first = load_file("t.py", folder).module
    for file in files:
        before = file.stat()
        file.write_text(file.read_text().replace("1", "2"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert load_file("path:t.py", folder).module is first
    forget_changed_files()
    second = load_file("t.py", folder).module
    assert (second.VALUE, second.OTHER) == (2, 2)


def test_rewards_of_a_file_are_found_by_function(folder: Path) -> None:
    write(folder, "r.py", "def long(prompt, completion, row): return len(completion)\nshort = 3\n")
    skill = task("math")
    assert reward(skill, "path:r.py:long", folder)(ROW, Completion("abc")).value == 3.0
    for name, expected in {
        "path:r.py:lng": "r.py: there is no function 'lng' (did you mean 'long'?)",
        "path:r.py:short": "r.py: there is no function 'short'",
        "path:r.py": "'path:r.py' names no function (write path:FILE.py:FUNCTION)",
    }.items():
        with pytest.raises(InputError) as raised:
            reward(skill, name, folder)
        assert str(raised.value).replace(f"{folder}/", "").startswith(expected)
    write(folder, "w.py", "\ndef wrong(text): return 1\n")
    with pytest.raises(InputError, match=r"w\.py:2: reward 'wrong' takes \(text\) \(write"):
        reward(skill, "path:w.py:wrong", folder)


UNSAFE = """\
import os
from assay.tasks.task import unsafe
from near import add

@unsafe
def process(prompt, completion, row):
    return add(os.getpid(), 0)
"""


def test_an_unsafe_reward_of_a_file_runs_in_a_worker_with_what_lies_beside_it(folder: Path) -> None:
    write(folder, "r.py", UNSAFE)
    write(folder, "near.py", "def add(a, b): return a + b\n")
    judge = reward(task("math"), "path:r.py:process", folder)
    assert is_unsafe(judge)
    with RewardRunner(judge, workers=1, sandbox="limits-only") as runner:
        values = [each.value for each in runner.score([(ROW, Completion("x"))] * 2)]
    assert len({*values, os.getpid()}) == 3


ODD = """
def number(row, completion):
    return "one"


def nothing(row, completion):
    return None


def leaves(row, completion):
    import sys

    sys.exit()


leaves.unsafe = True
"""


def test_what_a_users_reward_does_wrong_is_told_with_its_file_and_line(folder: Path) -> None:
    write(folder, "r.py", ODD)
    bare = task("math", folder)

    def why(function: str) -> str:
        found = reward(bare, f"path:r.py:{function}", folder)
        with RewardRunner(found, sandbox="limits-only") as runner:
            return runner.score([(ROW, Completion("2"))])[0].why

    assert why("number") == "exception: number returned str, not a number or a Reward (r.py:2)"
    assert why("nothing") == "nothing returned None (r.py:6)"
    assert why("leaves").startswith("exception: SystemExit")
    raises = reward(bare, "path:r.py:leaves", folder)
    raises.unsafe = False  # type: ignore[attr-defined]
    assert why("leaves") == "exception: SystemExit (r.py:13)"


def test_a_worker_refuses_a_file_that_changed_after_the_lab_had_loaded_it(folder: Path) -> None:
    write(folder, "r.py", UNSAFE.replace("from near import add", "add = max"))
    judge = reward(task("math"), "path:r.py:process", folder)
    write(folder, "r.py", UNSAFE.replace("from near import add", "add = min"))
    with (
        RewardRunner(judge, workers=1, sandbox="limits-only") as runner,
        pytest.raises(RunFailure, match=r"r\.py: has changed since the run began"),
    ):
        runner.score([(ROW, Completion("x"))])
