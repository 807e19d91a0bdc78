"""What a notebook defines means the same in another process, from its text alone."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from assay.errors import InputError
from assay.library.stored_code import module_text
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.task import BaseTask, unsafe
from assay.tasks.user_code import file_note, function_in
from tests.tasks.user_files import forgotten

DIGITS = re.compile(r"\d+")
WORTH = {"right": 2.0, "wrong": -1.0}


def last(text: str) -> str:
    """The last number."""
    return (DIGITS.findall(text) or [""])[-1]


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n > 0 and even(n - 1)


def doubled(function: Callable) -> Callable:
    @wraps(function)
    def twice(*arguments: Any) -> float:
        return 2 * function(*arguments)

    return twice


def bare(function: Callable) -> Callable:
    def twice(*arguments: Any) -> float:
        return 2 * function(*arguments)

    return twice


def plain(text: str, worth: float = WORTH["right"]) -> float:
    return worth if last(text) == "7" else WORTH["wrong"]


@doubled
def wrapped(text: str) -> float:
    return float(len(text))


@bare
def unnamed(text: str) -> float:
    return float(len(text))


@unsafe
def shown(text: str) -> float:
    return json.loads(text)["n"] + float(even(4))


@lru_cache
def cached(text: str) -> int:
    return sum(Counter(text).values())


def made(worth: float) -> Callable:
    seen = [worth]

    def closes(text: str) -> float:
        return worth * len(text) + seen[0]

    return closes


def counts() -> Callable:
    calls = 0

    def counted(text: str) -> int:
        nonlocal calls
        calls += 1
        return calls

    return counted


class Scorer:
    """A reward with a state."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, text: str) -> float:
        return self.by * len(last(text))


class Two(BaseTask):
    name = "two"

    def prompt(self, row: Any) -> Any:
        return last(row)


def elsewhere(folder: Path, text: str, expression: str) -> Any:
    """An expression's value in a process that has nothing but the text."""
    (folder / "stored.py").write_text(text)
    code = f"import json, stored as s; print(json.dumps({expression}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


CASES = {
    "plain": (plain, "1 and 7"),
    "wrapped": (wrapped, "abc"),
    "unnamed": (unnamed, "abc"),
    "shown": (shown, '{"n": 3}'),
    "cached": (cached, "aab"),
    "closes": (made(0.5), "abcd"),
    "counted": (counts(), "x"),
    "lambda": (lambda text: len(last(text)), "a 123"),
    "object": (Scorer(1.5), "a 12"),
    "partial": (partial(plain, worth=9.0), "7"),
}


PICKLED = ("unnamed", "counted", "lambda", "object", "partial")
"""What has no source that means the same at the top of a file."""


@pytest.mark.parametrize("name", CASES)
def test_a_function_says_elsewhere_what_it_says_here(tmp_path: Path, name: str) -> None:
    function, argument = CASES[name]
    text, expected = module_text("scored", function), function(argument)
    assert ("cloudpickle" in text) == (name in PICKLED)
    (tmp_path / "own.py").write_text(text)
    with forgotten(tmp_path):
        loaded, _ = function_in("path:own.py:scored", tmp_path)
        assert file_note(loaded), "the file is what the reward is known by"
        assert loaded(argument) == expected
    assert elsewhere(tmp_path, text, f"s.scored({argument!r})") == expected


def test_the_same_function_is_the_same_text_and_another_value_another() -> None:
    assert module_text("f", made(0.5)) == module_text("f", made(0.5))
    assert module_text("f", made(0.5)) != module_text("f", made(0.25))


def test_a_class_and_what_was_set_on_a_function_are_stored(tmp_path: Path) -> None:
    text = module_text("TASK", Two)
    assert elsewhere(tmp_path, text, "[s.TASK.name, s.TASK().prompt('9 8')]") == ["two", "8"]
    made_lower = made(1.0)
    made_lower.lowest = -1.0  # type: ignore[attr-defined]
    assert elsewhere(tmp_path, module_text("f", made_lower), "s.f.lowest") == -1.0
    assert elsewhere(tmp_path, module_text("shown", shown), "s.shown.unsafe") is True


def test_what_no_file_can_hold_is_refused_in_a_line() -> None:
    lock = Lock()

    def waits(text: str) -> bool:
        return lock.locked()

    with pytest.raises(
        InputError, match=r"'lock' cannot be stored: TypeError: cannot pickle"
    ) as no:
        module_text("waits", waits)
    assert "\n" not in str(no.value)

    with pytest.raises(InputError, match="'graded' is a JudgeReward, and no function"):
        module_text("graded", JudgeReward(lambda batch, helpers: []))

    import tests.written as own

    def by_module(text: str) -> str:
        return own.__name__

    with pytest.raises(InputError, match=r"uses the module 'tests.written', which no package has"):
        module_text("by_module", by_module)
