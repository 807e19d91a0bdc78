"""The task called "reasoning_gym": questions that the package reasoning-gym makes by seed, and its
own scorers.

`source = "reasoning_gym:NAME"`, or of several `NAME+OTHER`, gives different questions alone, also
between levels, and those that differ in signs and spaces alone stay on one side of a split. What a
table's `seed` leads to lies apart from what any other leads to.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.files import normalise_text
from assay.data.loaded import Item, LeftOut, Loaded, gather
from assay.data.row import Message, Row
from assay.engines.environments import last_words
from assay.errors import InputError, RunFailure
from assay.tasks.running import WorkerReward
from assay.tasks.task import BaseTask, BenchmarkOptions

NAME = "reasoning_gym"
PACKAGE = "assay.labs.worlds.gym_package"
RIGHT, WRONG = "right", "wrong"
SAME = "asks what another row asks"


@lru_cache(maxsize=16)
def asked_package(call: str, arguments: str) -> list[Any]:
    """What a call of the package gives, in a process whose hashes are the same every time. Raises
    InputError."""
    if find_spec(NAME) is None:
        problem = f"the package {NAME} is not installed"
        raise InputError(problem, fix="pip install 'assay-lab[worlds]'")
    command = [sys.executable, "-m", PACKAGE, call, arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailure(f"{NAME} ended with {last_words(done.stderr)}")
    told = json.loads(done.stdout)
    if "refused" in told:
        raise InputError(**told["refused"])
    return told["given"]


def read(names: str, options: BenchmarkOptions) -> Loaded:
    """The rows of a source. Raises InputError."""
    made = asked_package("read", json.dumps([names, dict(options.values)]))
    return gather(items(made))


def items(made: list[Any]) -> Iterator[Item]:
    """The rows of generated items."""
    alike: dict[str, str] = {}
    for each in made:
        if each["again"]:
            yield LeftOut(each["id"], SAME)
            continue
        item = each["item"]
        form = normalise_text(item["question"]).replace(" ", "")
        before = (Message("system", each["system"]),) if each["system"] else ()
        yield Row(
            each["id"],
            (*before, Message("user", item["question"])),
            gold=str(item["answer"]),
            conversation=alike.setdefault(form, each["id"]),
            extra={key: each[key] for key in ("world", "level", "options", "item")},
        )


def answer_of(text: str) -> str:
    """What stands in the last `<answer>`, else all that follows the thought."""
    text = text.rpartition("</think>")[2]
    _, opened, rest = text.rpartition("<answer>")
    return (rest.partition("</answer>")[0] if opened else text).strip()


def ask(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    """What the worker is asked."""
    if "item" not in row.extra:
        return Reward(None, why=f"the row is none of {NAME}'s")
    settings = {key: row.extra[key] for key in ("level", "options", "item")}
    return {"name": row.extra["world"], **settings, "answer": answer_of(completion.text)}


def judged(row: Row, completion: Completion, value: float) -> Reward:
    """The package's score."""
    return Reward(value, outcome=RIGHT if value >= 1 else WRONG)


class GymTask(BaseTask):
    """Generated questions whose scorers come with them."""

    name = NAME
    rewards = {"score": WorkerReward(f"{PACKAGE}:score", ask, judged)}  # noqa: RUF012
    sources = {NAME: read}  # noqa: RUF012

    def check_source(self, source: str, options: BenchmarkOptions) -> None:
        """See `BaseTask`."""
        read(source.partition(":")[2], options)

    def target(self, row: Row) -> Message:
        """The gold answer, in the tags that a system prompt of the package asks for."""
        tagged = row.messages[0].role == "system"
        return Message("assistant", f"<answer>{row.gold}</answer>" if tagged else str(row.gold))

    def explained(self, name: str) -> list[str]:
        """See `BaseTask`."""
        return asked_package("explained", json.dumps([name]))


TASK = GymTask()
