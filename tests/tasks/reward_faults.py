"""Rewards that misbehave on purpose, importable by name so that a worker can run them."""

import os
import signal
from dataclasses import asdict
from pathlib import Path

from assay.data.episode import Completion, Reward
from assay.data.row import ImagePart, Row


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


def dies_once(row: Row, completion: Completion) -> Reward:
    """Kills its process where the file that the completion names is still there."""
    if completion.text and Path(completion.text).exists():
        Path(completion.text).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return Reward(1.0)


def noted(row: Row, completion: Completion) -> Reward:
    """Writes into the file that the completion names how it was asked; raises where told."""
    file, _, mood = completion.text.partition(" ")
    with Path(file).open("a") as log:
        log.write(f"{mood}\n")
    return moody(row, Completion(mood))


def noting(row: Row, completion: Completion) -> Reward:
    """Notes facts, among them the first bytes of the row's image."""
    (image,) = (part for part in row.messages[0].parts if isinstance(part, ImagePart))
    return Reward(
        1.0,
        facts={"said": completion.text, "bytes": len(image.data or b""), "tools": str(row.tools)},
    )


def padded(row: Row, completion: Completion, size: int = 1, mark: str = "-") -> Reward:
    """The options that it was given, in another process."""
    return Reward(float(size), why=f"{mark} {os.getpid()}")


for each in (padded, moody, repeat, dies_once, noted, noting):
    each.unsafe = True  # type: ignore[attr-defined]


def run_program(program: str) -> str:
    """What a program that a model wrote leaves in `answer`."""
    names: dict[str, str] = {}
    exec(program, names)
    return names["answer"]


SEARCH = """
import gc, sys
answer, frame, found, half = "", sys._getframe(), [], "gold of"
while frame is not None:
    found += [frame.f_locals, frame.f_globals]
    frame = frame.f_back
for each in [*found, *gc.get_objects()]:
    said = repr(each) if isinstance(each, (dict, list, tuple, str)) else ""
    at = said.find(half + " the row")
    if at >= 0:
        answer = said[at:at + 15]
"""
"""Looks for the gold answer in its callers and in all that Python knows of."""
