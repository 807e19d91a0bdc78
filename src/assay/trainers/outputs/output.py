"""What a trainer wrote, as Assay's steps: the terms that every reader of a tool's files shares.

A reader holds no state, and raises InputError for a damaged file. `steps(after, ended)` reads what
is there now and yields the whole steps behind `after`; what a living tool is still writing, or a
killed one left half written, is not yielded yet, but where the tool has `ended`. So a run is
followed by asking again with the last step that was recorded. `checkpoints()` are the whole ones by
step, and `weights(saved, scratch)` is the folder of one's weights as Transformers or peft reads it,
made in `scratch` where the tool writes another kind. Names of metrics are translated by tables;
what has no counterpart keeps the tool's name behind the tool's own.

The readers of TRL 1.16 and ms-swift 4.6, whose trainers are Transformers', are here. Their log is
`logging.jsonl`, which ms-swift and exported folders have, else the newest checkpoint's
`trainer_state.json`. TRL's completions are tables, one an update, ms-swift's lines of one file.
Read from the packages' trainers, and held by tests that train with them.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from assay.data.episode import Ended
from assay.errors import InputError
from assay.models.folder import ADAPTER, INDEX, WEIGHTS, read_object

Number = float | None
"""None: the tool wrote that there is none."""
Weights = Sequence[float] | None
"""Of reward functions; None: 1 each."""


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One line of a table of metrics."""

    theirs: str
    ours: str = ""
    """Empty: it is another quantity, or Assay has none such; it keeps the tool's name."""
    rest: bool = False
    """It is 1 less the tool's value."""
    unlike: str = ""
    """What its definition has else, in a sentence without its end."""


@dataclass(frozen=True, slots=True)
class RecordedCompletion:
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
    answers: tuple[RecordedCompletion, ...] = ()


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
    tool: str, table: Sequence[MetricLine], entries: Sequence[Mapping[str, Any]]
) -> dict[str, Number]:
    """The numbers of a step's entries, each the mean over the entries that have it; a None where
    no entry has a number."""
    known = {line.theirs: line for line in table}
    values: dict[str, Number] = {}
    for name in dict.fromkeys(name for entry in entries for name in entry if name not in COUNTERS):
        amounts = [entry[name] for entry in entries if name in entry]
        numbers = [float(value) for value in amounts if is_number(value)]
        if not numbers and any(value is not None for value in amounts):
            continue
        mean = sum(numbers) / len(numbers) if numbers else None
        line = known.get(name)
        if line is None or not line.ours:
            values[f"{tool}/{name}"] = mean
        else:
            values[line.ours] = 1 - mean if line.rest and mean is not None else mean
    return values


def weighted(rewards: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
    """The reward of an answer, its parts and why it has none: the sum of what reward functions, in
    the tool's order, have `rewards` it, times their weights."""
    parts = {name: float(v) for name, v in rewards.items() if is_number(v) and v == v}
    factors = dict(zip(rewards, weights or [1.0] * len(rewards), strict=False))
    reward = sum(factors.get(name, 1.0) * value for name, value in parts.items())
    if not parts:
        return {"reward": None, "parts": parts, "why": "no reward function scored it"}
    return {"reward": reward, "parts": parts}


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
    entries = []
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
        entries.append(value)
    return entries


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


def by_key(folder: Path) -> dict[str, RecordedCompletion]:
    """The answers by the tool's own names."""
    lines = (line for file in journal_files(folder) for line in log_lines(file))
    return {line["key"]: journalled(line) for line in lines}


def in_order(folder: Path, first: int, last: int) -> list[RecordedCompletion]:
    """The answers to updates `first` to `last` in the order of processes; of a process that was
    started again, those of its last attempt at them."""
    completions: dict[int, list[RecordedCompletion]] = {}
    for file in journal_files(folder):
        own = [journalled(line) for line in log_lines(file) if first <= line["step"] <= last]
        if own:
            completions[process_of(file)[0]] = own
    return [answer for own in completions.values() for answer in own]


def journalled(line: Mapping[str, Any], **more: Any) -> RecordedCompletion:
    """An answer as `reward.py` noted it, with what the tool says of it."""
    return RecordedCompletion(
        text=line["text"],
        reward=line["value"],
        row=line["id"],
        tokens=tuple(line["tokens"]),
        parts=line["parts"],
        why=line["why"] or "",
        ended=line["ended"],
        **more,
    )


LOG, STATE = "logging.jsonl", "trainer_state.json"
OWN = "assay"
"""Column of TRL's tables that `reward.py` of an exported folder adds."""
ENDS = frozenset({"train_runtime", "train_loss"})
"""An entry with one of these sums up the whole training."""

_METRICS = tomllib.loads(files("assay.trainers").joinpath("metrics.toml").read_text("utf-8"))


def metrics_of(*tables: str) -> tuple[MetricLine, ...]:
    """The lines of several tables of metrics.toml."""
    return tuple(MetricLine(n, **told) for each in tables for n, told in _METRICS[each].items())


@dataclass(frozen=True)
class TrlOutput:
    """See `output`; `folder` is the trainer's `output_dir`."""

    folder: Path
    updates: int = 1
    """Optimizer steps of one round."""
    factors: Weights = None
    """Of the reward functions, by which their rewards are multiplied."""
    tool: ClassVar[str] = "trl"
    metrics: ClassVar[Sequence[MetricLine]] = metrics_of("hf", "trl")

    def steps(self, after: int = 0, ended: bool = False) -> Iterator[Step]:
        """See `output`. A step's completions are written behind its line in the log."""
        logged = (entry for entry in self.entries() if type(entry.get("step")) is int)
        rounds, tables = by_round([*logged], self.updates, ended), self.tables()
        for number, entries in rounds:
            if number <= after:
                continue
            last = entries[-1]["step"]
            if number == rounds[-1][0] and not self.has_written(tables, last, ended):
                return
            plain = [{k: v for k, v in e.items() if k not in BESIDE} for e in entries]
            # Completions of a step that measured held-out rows are those of these rows.
            measured = any(name.startswith("eval_reward") for e in entries for name in e)
            completions = () if measured else self.answers(tables, last)
            first = (number - 1) * self.updates + 1
            named = translated(self.tool, self.metrics, plain)
            yield Step(number, named, self.known(completions, first, last))

    def entries(self) -> Sequence[Mapping[str, Any]]:
        """The log's entries in the order of writing, but those that sum up the whole training.
        Raises InputError."""
        return logged_entries(self.folder)

    def tables(self) -> Any:
        """What holds the completions."""
        return self.folder / "completions"

    def has_written(self, tables: Any, update: int, ended: bool) -> bool:
        """Whether the completions of an update are there and whole, or will never be."""
        file = tables / TABLE.format(update)
        return not tables.is_dir() or (is_table(file) if file.is_file() else ended)

    def answers(self, tables: Any, update: int) -> tuple[RecordedCompletion, ...]:
        """The completions that an update was made of. Raises InputError."""
        file = tables / TABLE.format(update)
        return read_table(file, self.factors) if file.is_file() else ()

    def known(
        self, completions: tuple[RecordedCompletion, ...], first: int, last: int
    ) -> tuple[RecordedCompletion, ...]:
        """The answers of a round; those of an exported folder have all that Assay knows."""
        return completions

    def checkpoints(self) -> Sequence[Saved]:
        """See `output`. In the middle of a round no step of Assay's ends."""
        folders = checkpoint_folders(self.folder)
        whole = [each for each in folders if each[0] % self.updates == 0 or each[1] == self.folder]
        return [Saved(max(1, step // self.updates), path) for step, path in whole]

    def weights(self, saved: Saved, scratch: Path) -> Path:
        """See `output`."""
        return saved.folder


class SwiftOutput(TrlOutput):
    """See `output`; `folder` is ms-swift's `output_dir`, with its version."""

    tool: ClassVar[str] = "swift"
    metrics: ClassVar[Sequence[MetricLine]] = metrics_of("hf", "swift")

    def entries(self) -> Sequence[Mapping[str, Any]]:
        """See `TrlOutput`; their step is a text, and some of their entries are no numbers."""
        entries = list[Mapping[str, Any]]()
        for entry in logged_entries(self.folder):
            match = re.fullmatch(r"(\d+)/\d+", str(entry.get("global_step/max_steps", "")))
            step = {"step": int(match[1])} if match else {}
            numbers = {k: v for k, v in entry.items() if is_number(v) or v is None or k == "step"}
            entries.append(numbers | step)
        return entries

    def tables(self) -> Mapping[int, Mapping[str, Any]] | None:
        """The completions by update; None where they are not logged."""
        file = self.folder / "completions.jsonl"
        if not file.is_file():
            return None
        lines = (line for line in log_lines(file) if line.get("step"))
        return {int(line["step"][0]): line for line in lines}

    def has_written(self, tables: Any, update: int, ended: bool) -> bool:
        """See `TrlOutput`."""
        return tables is None or update in tables or ended

    def answers(self, tables: Any, update: int) -> tuple[RecordedCompletion, ...]:
        """See `TrlOutput`."""
        return answers((tables or {}).get(update, {}), self.factors)

    def known(
        self, completions: tuple[RecordedCompletion, ...], first: int, last: int
    ) -> tuple[RecordedCompletion, ...]:
        """The answers of a round as the journal of an exported folder knows them, with the
        advantages of ms-swift's table where that has the same rewards in the same order."""
        noted = in_order(self.folder, first, last)
        if not noted:
            return completions
        if [each.reward for each in noted] != [each.reward for each in completions]:
            return tuple(noted)
        pairs = zip(noted, completions, strict=True)
        return tuple(replace(own, advantage=theirs.advantage) for own, theirs in pairs)


TABLE = "completions_{:05d}.parquet"


def logged_entries(folder: Path) -> list[dict[str, Any]]:
    """The log's entries in the order of writing, but those that sum up the whole training. Raises
    InputError."""
    if (folder / LOG).is_file():
        entries = log_lines(folder / LOG)
    else:
        states = checkpoint_folders(folder)
        last = states[-1][1] if states else folder
        entries = read_state(last)["log_history"] if (last / STATE).is_file() else []
    return [entry for entry in entries if not ENDS & entry.keys()]


def is_table(file: Path) -> bool:
    """Whether a table is there and whole: its end is written last."""
    try:
        with pq.ParquetFile(file):
            return True
    except (pa.ArrowException, OSError):
        return False


def read_table(file: Path, weights: Weights = None) -> tuple[RecordedCompletion, ...]:
    """The completions of a table. Raises InputError."""
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        problem = f"cannot be read: {' '.join(str(error).split())}"
        raise InputError(problem, file=file, fix="restore it, or move it away") from error
    return tuple(answer(line, weights) for line in table.to_pylist())


def checkpoint_folders(folder: Path) -> list[tuple[int, Path]]:
    """The whole checkpoints by optimizer step; a checkpoint's state is its last file. A folder that
    has none may be one itself."""
    named = [
        (m, p) for p in folder.glob("checkpoint-*") if (m := re.fullmatch(r"\D+(\d+)", p.name))
    ]
    folders = sorted((int(match[1]), path) for match, path in named)
    return [(step, path) for step, path in folders if is_whole(path)] or lone_checkpoint(folder)


def lone_checkpoint(folder: Path) -> list[tuple[int, Path]]:
    """The folder where it is a checkpoint itself, or what was saved at the end. Its step is that of
    its state or its name, or 1 where nothing says it."""
    if not holds_weights(folder) or ((folder / STATE).exists() and not is_whole(folder)):
        return []
    state = read_state(folder) if (folder / STATE).is_file() else {}
    named = re.match(r"checkpoint-(\d+)", folder.resolve().name)
    return [(state.get("global_step") or (int(named[1]) if named else 1), folder)]


def is_whole(checkpoint: Path) -> bool:
    """Whether its state is there and no half of it."""
    try:
        return isinstance(json.loads((checkpoint / STATE).read_text(encoding="utf-8")), dict)
    except (OSError, ValueError, RecursionError):
        return False


def read_state(checkpoint: Path) -> dict[str, Any]:
    """What the trainer kept of its log. Raises InputError."""
    state = read_object(checkpoint / STATE)
    history = state.get("log_history")
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise InputError("is no list of entries", file=checkpoint / STATE, field="log_history")
    return state


def answer(line: Mapping[str, Any], weights: Weights = None) -> RecordedCompletion:
    """A line of a table. What `reward.py` added of it is Assay's own view."""
    known = {"step", "prompt", "completion", "advantage", "image", OWN}
    rewards = {name: value for name, value in line.items() if name not in known}
    common = {"prompt": text_of(line.get("prompt")), "advantage": line.get("advantage")}
    if isinstance(line.get(OWN), str):
        return journalled(json.loads(line[OWN]), **common)
    return RecordedCompletion(
        text_of(line.get("completion")), **weighted(rewards, weights), **common
    )


def text_of(value: Any) -> str:
    """A prompt or a completion as text; of messages, each with its role but for the only one."""
    if isinstance(value, str):
        return value
    messages = [m for m in value or () if isinstance(m, Mapping)]
    if len(messages) == 1:
        return str(messages[0].get("content") or "")
    return "\n".join(f"{m.get('role')}: {m.get('content') or ''}" for m in messages)


def answers(table: Mapping[str, Any], weights: Weights = None) -> tuple[RecordedCompletion, ...]:
    """A step's completions; columns of numbers that ms-swift does not have itself are rewards."""
    own = {
        "step",
        "prompt",
        "completion",
        "advantages",
        "entropy",
        "solution",
        "num_turns",
        "image",
    }
    rewards = [name for name in table if name not in own]
    completions = []
    for place, text in enumerate(table.get("completion", ())):
        values = {name: table[name][place] for name in rewards}
        more = {"prompt": str(table["prompt"][place]), "advantage": table["advantages"][place]}
        completions.append(RecordedCompletion(str(text), **weighted(values, weights), **more))
    return tuple(completions)
