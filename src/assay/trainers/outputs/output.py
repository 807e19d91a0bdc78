"""What a trainer wrote, as Assay's steps: the terms that every reader of a tool's files shares.

A reader holds no state, and raises InputError for a damaged file. `steps(after, ended)` reads what
is there now and yields the whole steps behind `after`; what a living tool is still writing, or a
killed one left half written, is not yielded yet, but where the tool has `ended`. So a run is
followed by asking again with the last step that was recorded. `checkpoints()` are the whole ones by
step, and `weights(saved, scratch)` is the folder of one's weights as Transformers or peft reads it,
made in `scratch` where the tool writes another kind. Names of metrics are translated by tables;
what has no counterpart keeps the tool's name behind the tool's own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.episode import Ended
from assay.errors import InputError
from assay.models.folder import ADAPTER, INDEX, WEIGHTS

Number = float | None
"""None: the tool wrote that there is none."""
Weights = Sequence[float] | None
"""Of reward functions; None: 1 each."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of a table of metrics."""

    theirs: str
    ours: str = ""
    """Empty: it is another quantity, or Assay has none such; it keeps the tool's name."""
    rest: bool = False
    """It is 1 less the tool's value."""
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
            found[line.ours] = 1 - mean if line.rest and mean is not None else mean
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
    # The loss of held-out rows, which sft stages have, comes behind that of the trained ones.
    if rounds and (kept[-1]["step"] % updates or not (ended or "reward" in kept[-1])):
        rounds.popitem()
    return list(rounds.items())


def repeats(earlier: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether an entry was logged again, or what stands before it was. An update has a loss, and
    what was measured on held-out rows behind it another."""
    if earlier["step"] != entry["step"]:
        return earlier["step"] > entry["step"]
    return any(loss in earlier and loss in entry for loss in ("loss", "eval_loss"))


JOURNAL = "answers"


def journal_files(folder: Path) -> list[Path]:
    """The journals below a tool's output in which `reward.py` of an exported folder notes what it
    judged: an answer's row, its tokens, what the reward said. Each process of each attempt has its
    own, those of a process by time: RANK-TIME-PROCESS.jsonl."""
    return sorted((folder / JOURNAL).glob("*-*-*.jsonl"), key=process_of)


def process_of(file: Path) -> tuple[int, int]:
    """The rank of a journal's process, and when it was started."""
    rank, started, _ = file.stem.split("-")
    return int(rank), int(started)


def by_key(folder: Path) -> dict[str, Answer]:
    """The answers by the tool's own names."""
    lines = (line for file in journal_files(folder) for line in log_lines(file))
    return {line["key"]: journalled(line) for line in lines}


def in_order(folder: Path, first: int, last: int) -> list[Answer]:
    """The answers to updates `first` to `last` in the order of processes; of a process that was
    started again, those of its last attempt at them."""
    found: dict[int, list[Answer]] = {}
    for file in journal_files(folder):
        own = [journalled(line) for line in log_lines(file) if first <= line["step"] <= last]
        if own:
            found[process_of(file)[0]] = own
    return [answer for own in found.values() for answer in own]


def journalled(line: Mapping[str, Any], **more: Any) -> Answer:
    """An answer as `reward.py` noted it, with what the tool says of it."""
    return Answer(
        text=line["text"],
        reward=line["value"],
        row=line["id"],
        tokens=tuple(line["tokens"]),
        parts=line["parts"],
        why=line["why"] or "",
        ended=line["ended"],
        **more,
    )
