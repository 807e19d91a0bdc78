"""What judges and program checks said: a journal, so that a kill loses no judgement, and what a
judge said of answers that people labelled (`agreement/NAME-HASH.json`).

A line is on the disk before the judgement is used. Its key is the completion's name, the part of
the reward, and hashes of what was judged and by what: samples with the same text have judgements of
their own, and a text that another machine samples in its place is judged again. The journal goes
once what it holds is recorded.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.episode import (
    Completion,
    Reward,
    completion_values,
    reward_of,
    reward_values,
    row_values,
)
from assay.data.files import (
    append_line,
    atomic_write_text,
    canonical_json,
    named_line,
    sha256_text,
    sync,
)
from assay.data.row import Row
from assay.errors import RunFailure
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import FIX, DamagedFile, as_entry, read_json, whole_lines, write_listed


@dataclass(frozen=True, slots=True)
class Key:
    """Which judgement."""

    completion: str
    """`Completion.id`."""
    part: str
    """The part of a reward table; "" for a reward that is not one of several."""
    judged: str
    """The sha256 of row and completion."""
    judge: str
    """The sha256 of the reward."""


class JudgementJournal:
    """The judgements in one file; see `tasks.running.Judgements`."""

    def __init__(self, file: Path, judge: str):
        """`judge` is the sha256 of what the reward depends on; the file need not exist."""
        self._file, self._judge = file, judge
        self._known: dict[Key, Reward] | None = None

    def known(self, part: str, row: Row, completion: Completion) -> Reward | None:
        """The judgement of a completion; None if there is none. Raises DamagedFile."""
        return self._entries().get(self._key(part, row, completion))

    def add(self, part: str, row: Row, completion: Completion, reward: Reward) -> None:
        """Write a judgement; it is on the disk on return. Raises RunFailure."""
        key = self._key(part, row, completion)
        self._entries()[key] = reward
        try:
            fresh = not self._file.exists()
            append_line(self._file, self._line(key, reward))
            sync(self._file)
            if fresh:
                sync(self._file.parent)
        except OSError as error:
            raise RunFailure(f"{self._file}: cannot be written: {error.strerror}") from error

    def drop(self, prefix: str) -> None:
        """Forget the judgements of completions whose names begin so: they are recorded elsewhere.

        Others stay: a resumed run comes by steps again that it has recorded.
        """
        kept = {k: r for k, r in self._entries().items() if not k.completion.startswith(prefix)}
        if not kept:
            self._file.unlink(missing_ok=True)
        elif len(kept) < len(self._entries()):
            lines = (f"{self._line(*entry)}\n" for entry in kept.items())
            atomic_write_text(self._file, "".join(lines))
        self._known = kept

    def _key(self, part: str, row: Row, completion: Completion) -> Key:
        values = [row_values(row), {**completion_values(completion), "id": ""}]
        return Key(completion.id, part, sha256_text(canonical_json(values)), self._judge)

    def _line(self, key: Key, reward: Reward) -> str:
        return named_line(self._file, {**asdict(key), "reward": reward_values(reward)})

    def _entries(self) -> dict[Key, Reward]:
        if self._known is None:
            self._known = _read(self._file)
        return self._known


def _read(file: Path) -> dict[Key, Reward]:
    if not file.exists():
        return {}
    return dict(_entry(line, file, n) for n, line in enumerate(whole_lines(file), 1))


def _entry(line: dict[str, Any], file: Path, number: int) -> tuple[Key, Reward]:
    try:
        reward = reward_of(line.pop("reward"))
        return Key(**line), reward
    except (KeyError, TypeError) as error:
        problem = f"is no judgement: {' '.join(str(error).split())}"
        raise DamagedFile(problem, file=file, line=number, fix=FIX) from error


FOLDER = "agreement"
SCHEMA = 2


@dataclass(frozen=True, slots=True)
class LabelledJudgement:
    """One labelled answer, and what the judge said of it."""

    item: str
    cluster: str
    """The source of the item; intervals are over these."""
    label: Mapping[str, float]
    """Of people, by criterion; of a pair under `preference`."""
    verdict: Mapping[str, float]
    """Of the judge, by the same names; empty where it abstained."""


@dataclass(frozen=True)
class JudgedLabels:
    """The labelled answers of a rubric and what its judge said of them."""

    kind: str
    """The name of the reward."""
    settings: Mapping[str, Any]
    """The rubric, as records of evaluations have it among their options."""
    levels: Mapping[str, Sequence[float]]
    """The grades of each criterion."""
    model: str
    least_kappa: float
    labels: str
    """The name of the file of labels."""
    judged: Sequence[LabelledJudgement]


def write_judged(run: RunDirectory, name: str, labels: JudgedLabels) -> Path:
    """Write what was found, in the place of what was there; returns the file."""
    file = run.path / FOLDER / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    write_listed(
        run.path, file, json.dumps({"schema": SCHEMA, "name": name, **asdict(labels)}) + "\n"
    )
    return file


def read_judged(run: RunDirectory) -> list[JudgedLabels]:
    """All that the run holds. Raises DamagedFile."""
    return [read_file(file) for file in sorted((run.path / FOLDER).glob("*.json"))]


def read_file(file: Path) -> JudgedLabels:
    """What one file holds. Raises DamagedFile."""
    values = read_json(file, dict)
    if (name := values.pop("name", file.stem)) != file.stem:
        raise DamagedFile(f"holds {name}", file=file, fix=FIX)
    values.pop("schema", None)
    return as_entry(JudgedLabels, values, file)
