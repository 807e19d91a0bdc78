"""`assay check` finds rewards that are no functions of the answer, and broken dialogues."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.data.row import Message, Row
from assay.lab.check.gold_trials import broken_dialogues, problem_of
from assay.tasks.task import Asked
from tests.lab.sound_lab import found, look, make_sound_lab, silent
from tests.tasks.user_files import forgotten, write

REWARDS = """\
from itertools import count

NUMBER = count()


def counts(prompt, completion, row):
    return float(completion == f"\\\\boxed{{{row.gold}}}") - 1e-3 * next(NUMBER)


def steady(prompt, completion, row):
    return float(completion == f"\\\\boxed{{{row.gold}}}")


def careless(prompt, completion, row):
    return 1.0
"""


def test_a_reward_that_is_not_the_same_twice_is_an_error_with_its_line(tmp_path: Path) -> None:
    lab = make_sound_lab(tmp_path)
    write(lab, "mine.py", REWARDS)
    with forgotten(lab):
        report = look(lab, "stage.rl.reward=path:mine.py:counts")
        finding = found(report, "'path:mine.py:counts' (mine.py:6) does not say the same twice")
        assert finding.severity == "error" and "24 of 24" in finding.evidence
        assert silent(look(lab, "stage.rl.reward=path:mine.py:steady"), "same twice")
        careless = found(look(lab, "stage.rl.reward=path:mine.py:careless"), "right from wrong")
        assert "'path:mine.py:careless' (mine.py:14)" in careless.evidence


ROW = Row("r", (Message("user", "?"),))


@dataclass
class Talk:
    """Asks three times; its kinds break what a dialogue promises."""

    kind: str = ""
    heard: list[Message] = field(default_factory=list)
    asked: int = 0

    def asks(self) -> Asked | None:
        self.asked += 1
        if self.kind == "broken":
            raise KeyError("word")
        turns = {"over": 0, "endless": 10_000}.get(self.kind, 3)
        if len(self.heard) >= turns:
            return None
        text = str(self.asked) if self.kind == "moving" else "?"
        return Asked((Message("user", text),))

    def hears(self, text: str, ended: str) -> None:
        self.heard.append(Message("assistant", text))

    @property
    def messages(self) -> tuple[Message, ...]:
        return () if self.kind == "deaf" else tuple(self.heard)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("", ""),
        ("over", "is over before anything is asked"),
        ("moving", "asks something else when it is asked twice"),
        ("deaf", "has 0 messages of the assistant after 1 answers"),
        ("endless", "goes on after 100 empty answers"),
    ],
)
def test_a_dialogue_keeps_its_promises(kind: str, problem: str) -> None:
    assert problem_of(lambda row: Talk(kind), ROW) == problem
    findings = list(broken_dialogues("stage.rl", [ROW], lambda row: Talk(kind)))
    assert [f.what for f in findings] == ([f"stage.rl: the dialogue {problem}"] if problem else [])  # type: ignore[union-attr]


def test_what_a_dialogue_raises_is_named() -> None:
    (finding,) = broken_dialogues("stage.rl", [ROW, ROW], lambda row: Talk("broken"))
    assert finding.what == "stage.rl: the dialogue raises KeyError: 'word'"  # type: ignore[union-attr]
    assert list(broken_dialogues("stage.rl", [ROW], lambda row: None)) == []
