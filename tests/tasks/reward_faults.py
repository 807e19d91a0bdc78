"""Rewards that misbehave on purpose, importable by name so that a worker can run them."""

import os
from dataclasses import asdict
from pathlib import Path

from assay.data.episode import Completion, Reward
from assay.data.row import Row


def length(row: Row, completion: Completion) -> Reward:
    return Reward(float(len(completion.text)), {"letters": float(len(completion.text))})


def constant(row: Row, completion: Completion) -> Reward:
    return Reward(10.0)


def moody(row: Row, completion: Completion) -> Reward:
    """Does what the completion says."""
    if completion.text == "raise":
        raise KeyError("mood")
    if completion.text == "loop":
        while True:
            pass
    if completion.text == "die":
        os._exit(1)
    if completion.text == "write":
        Path("/etc/assay-reward-test").write_text("written")
    if completion.text == "nan":
        return Reward(float("nan"))
    return Reward(1.0, why=str(os.getpid()))


def repeat(row: Row, completion: Completion) -> Reward:
    """Says what it was given, which must have come through the worker whole."""
    return Reward(1.0, why=repr((asdict(row), asdict(completion))))


for each in (moody, repeat):
    each.unsafe = True  # type: ignore[attr-defined]
