"""What a trainer wrote, as Assay's steps: the terms that every reader of a tool's files shares.

A reader holds no state. `steps(after)` reads what is there now and yields the whole steps behind
`after`; what a living tool is still writing, or a killed one left half written, is not yielded yet.
So a run is followed by asking again with the last step that was recorded. Names of metrics are
translated by tables; what has no counterpart keeps the tool's name behind the tool's own.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from assay.data.episode import Ended
from assay.errors import InputError
from assay.models.folder import ADAPTER, INDEX, WEIGHTS

Number = float | None
"""None: the tool wrote that there is none."""
Weights = Sequence[float] | None
"""Of reward functions; None: 1 each."""


def as_it_is(value: float) -> float:
    """For metrics of the same unit."""
    return value


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of a table of metrics."""

    theirs: str
    ours: str = ""
    """Empty: it is another quantity, or Assay has none such; it keeps the tool's name."""
    how: str = "as it is"
    """How the value is converted, for the page."""
    convert: Callable[[float], float] = as_it_is
    unlike: str = ""
    """What its definition has else, in a sentence without its end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion as a tool recorded it. What the tool does not say is None or empty."""

    text: str
    reward: float | None
    prompt: str = ""
    row: str = ""
    """Its id, where the folder was exported."""
    tokens: tuple[int, ...] = ()
    logps: tuple[float, ...] = ()
    parts: Mapping[str, float] | None = None
    why: str = ""
    """Why there is no reward."""
    advantage: float | None = None
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a stage as Assay counts it: a batch (sft), or a round of sampling (grpo)."""

    number: int
    metrics: Mapping[str, Number]
    """By Assay's names, and by `TOOL/NAME`."""
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """A whole checkpoint of the tool."""

    step: int
    """Assay's."""
    folder: Path


class Output(Protocol):
    """What a tool wrote into a folder."""

    @property
    def folder(self) -> Path:
        """Where its checkpoints lie."""
        ...

    def steps(self, after: int = 0, ended: bool = False) -> Iterator[Step]:
        """The whole steps behind `after`, in order; `ended`: the tool writes no more. Raises
        InputError."""
        ...

    def checkpoints(self) -> Sequence[Saved]:
        """The whole checkpoints by step."""
        ...

    def weights(self, saved: Saved, scratch: Path) -> Path:
        """The folder of a checkpoint's weights as Transformers, or peft, reads it; made in
        `scratch` where the tool writes another kind. Raises InputError."""
        ...


class NotItsFolder(InputError):
    """A folder that the tool did not write."""


def holds_weights(folder: Path) -> bool:
    """Whether a folder is one of a model or an adapter, as Transformers and peft write them."""
    return any((folder / name).is_file() for name in (WEIGHTS, INDEX, ADAPTER))


COUNTERS = frozenset({"epoch", "num_tokens", "training/global_step", "training/epoch"})
"""What a tool counts from the start, and says nothing of a step."""


def translated(
    tool: str, table: Sequence[Metric], entries: Sequence[Mapping[str, Any]]
) -> dict[str, Number]:
    """The numbers of a step's entries, each the mean over the entries that have it; a None where
    no entry has a number."""
    known = {line.theirs: line for line in table}
    found: dict[str, Number] = {}
    for name in dict.fromkeys(name for entry in entries for name in entry if name not in COUNTERS):
        given = [entry[name] for entry in entries if name in entry]
        numbers = [float(value) for value in given if is_number(value)]
        if not numbers and any(value is not None for value in given):
            continue
        mean = sum(numbers) / len(numbers) if numbers else None
        line = known.get(name)
        if line is None or not line.ours:
            found[f"{tool}/{name}"] = mean
        else:
            found[line.ours] = None if mean is None else line.convert(mean)
    return found


def weighted(parts: Mapping[str, float], columns: Sequence[str], weights: Weights) -> float | None:
    """The reward of an answer: the sum of what its reward functions gave, times their weights; None
    where none gave any. `columns` are the functions in the tool's order."""
    factors = dict(zip(columns, weights or [1.0] * len(columns), strict=False))
    return sum(factors.get(name, 1.0) * value for name, value in parts.items()) if parts else None


def is_number(value: Any) -> bool:
    """Whether it is a number, or the text of one, as ms-swift and Transformers 5 may log it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def log_lines(file: Path) -> list[dict[str, Any]]:
    """The JSON objects of a log that a tool may be writing to; a last line without its end is not
    there yet. Raises InputError."""
    found = []
    for number, line in enumerate(file.read_bytes().split(b"\n")[:-1], 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            fix = "restore the file, or name another folder"
            raise InputError("is no JSON", file=file, line=number, fix=fix) from error
        if not isinstance(value, dict):
            raise InputError("is no JSON object", file=file, line=number)
        found.append(value)
    return found


BESIDE = frozenset({"step", "epoch"})
"""What every entry of a log has."""


def by_round(
    entries: Sequence[Mapping[str, Any]], updates: int, ended: bool
) -> list[tuple[int, list[Mapping[str, Any]]]]:
    """The entries of each whole round of `updates` optimizer steps, by the round's number.

    A tool that was resumed repeats steps: the later entry counts, and what stood behind it before
    the repetition does not. A round is whole once its last update was logged, or a later one.
    """
    kept: list[Mapping[str, Any]] = []
    for entry in entries:
        while kept and repeats(kept[-1], entry):
            kept.pop()
        kept.append(entry)
    rounds: dict[int, list[Mapping[str, Any]]] = {}
    for entry in kept:
        rounds.setdefault(-(-entry["step"] // updates), []).append(entry)
    if rounds and (kept[-1]["step"] % updates or not (ended or samples(kept[-1]))):
        rounds.popitem()
    return list(rounds.items())


def repeats(earlier: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether an entry was logged again, or what stands before it was. An update has a loss, and
    what was measured on held-out rows behind it another."""
    if earlier["step"] != entry["step"]:
        return earlier["step"] > entry["step"]
    return any(loss in earlier and loss in entry for loss in ("loss", "eval_loss"))


def samples(entry: Mapping[str, Any]) -> bool:
    """Whether nothing more is logged of the entry's step. The loss of held-out rows, which sft
    stages have, comes behind that of the trained ones."""
    return "reward" in entry
