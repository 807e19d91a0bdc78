"""A tiny lab in which nothing is wrong, and what tests ask of its check."""

import json
from pathlib import Path

import pytest

from assay.errors import Finding
from assay.lab.check import work
from assay.lab.check.all_checks import CheckResult
from tests.from_files import check_experiment
from tests.tiny_labs import SUMS, make_lab

SOUND = (
    "stage.sft.optimizer.lr=1e-5",
    "stage.sft.steps=4",
    "stage.sft.checkpoint_every=2",
    "stage.rl.optimizer.lr=1e-6",
    "stage.rl.steps=3",
    "stage.rl.checkpoint_every=2",
    "stage.rl.reward={ accuracy = 1.0, repetition = 0.5 }",
    "evaluate.dev.reward=accuracy",
)
SEARCH = {
    "name": "search",
    "description": "",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def make_sound_lab(folder: Path) -> Path:
    """The tiny lab's root with rows apart; with SOUND settings nothing in it is wrong."""
    return make_lab(folder, rows={"sums.jsonl": SUMS[:16], "test.jsonl": SUMS[16:]}).parent


def look(
    lab: Path,
    *overrides: str,
    file: str = "tiny.toml",
    timed: bool = False,
    settings: tuple[str, ...] = SOUND,
) -> CheckResult:
    """The check of the lab's experiment; with `timed` the model's speed is really measured, which
    takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        if not timed:
            patch.setattr(work, "measure", lambda subject: work.Speed(1e-5, 1e-3, 1e-5))
        return check_experiment(lab / file, (*settings, *overrides), root=lab)


def found(report: CheckResult, words: str) -> Finding:
    """The only finding whose first line holds these words."""
    (finding,) = [f for f in report.findings if words in f.what]
    return finding


def silent(report: CheckResult, words: str) -> bool:
    return not any(words in f.what for f in report.findings)


def add_row(file: Path, question: str, answer: str, id_: str = "added", **more: object) -> None:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    with file.open("a") as lines:
        lines.write(json.dumps({"id": id_, "messages": messages, **more}) + "\n")
