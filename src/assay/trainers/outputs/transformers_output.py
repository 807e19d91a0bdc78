"""Reads what TRL 1.16 and ms-swift 4.6 wrote, whose trainers are Transformers': the log,
completions, checkpoints.

The log is `logging.jsonl`, which ms-swift and exported folders have, else the newest checkpoint's
`trainer_state.json`. TRL's completions are tables, one an update, ms-swift's lines of one file.
Read from the packages' trainers, and held by tests that train with them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from assay.errors import InputError
from assay.trainers.outputs.output import (
    BESIDE,
    Answer,
    Metric,
    Saved,
    Step,
    Weights,
    by_round,
    holds_weights,
    in_order,
    is_number,
    journalled,
    log_lines,
    translated,
    weighted,
)

LOG, STATE = "logging.jsonl", "trainer_state.json"
OWN = "assay"
"""Column of TRL's tables that `reward.py` of an exported folder adds."""
ENDS = frozenset({"train_runtime", "train_loss"})
"""An entry with one of these sums up the whole training."""
EXACT = "exact, of the policy in training; Assay estimates it"

METRICS: tuple[Metric, ...] = (
    Metric("loss", "loss"),
    Metric("grad_norm", "grad_norm"),
    Metric("learning_rate", "learning_rate"),
    Metric("eval_loss", "validation_loss"),
    Metric("step_time", "seconds"),
    Metric("reward", "reward_mean"),
    Metric("frac_reward_zero_std", "signal_share", rest=True),
    Metric("completions/mean_length", "length_mean"),
    Metric("completions/clipped_ratio", "truncated_share"),
    Metric("kl", "kl"),
    Metric("clip_ratio/low_mean", "clip_low_share"),
    Metric("clip_ratio/high_mean", "clip_high_share"),
)


@dataclass(frozen=True)
class TrlOutput:
    """See `output`; `folder` is the trainer's `output_dir`."""

    folder: Path
    updates: int = 1
    """Optimizer steps of one round."""
    factors: Weights = None
    """Of the reward functions, by which their rewards are multiplied."""
    tool: ClassVar[str] = "trl"
    metrics: ClassVar[Sequence[Metric]] = (
        *METRICS,
        Metric(
            "reward_std",
            unlike="the unbiased deviation over all completions; Assay divides by their number",
        ),
        Metric("entropy", "entropy", unlike=EXACT),
        Metric("mean_token_accuracy"),
    )

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
            found = () if measured else self.answers(tables, last)
            first = (number - 1) * self.updates + 1
            named = translated(self.tool, self.metrics, plain)
            yield Step(number, named, self.known(found, first, last))

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

    def answers(self, tables: Any, update: int) -> tuple[Answer, ...]:
        """The completions that an update was made of. Raises InputError."""
        file = tables / TABLE.format(update)
        return read_table(file, self.factors) if file.is_file() else ()

    def known(self, found: tuple[Answer, ...], first: int, last: int) -> tuple[Answer, ...]:
        """The answers of a round; those of an exported folder have all that Assay knows."""
        return found

    def checkpoints(self) -> Sequence[Saved]:
        """See `output`. In the middle of a round no step of Assay's ends."""
        found = checkpoint_folders(self.folder)
        whole = [each for each in found if each[0] % self.updates == 0 or each[1] == self.folder]
        return [Saved(max(1, step // self.updates), path) for step, path in whole]

    def weights(self, saved: Saved, scratch: Path) -> Path:
        """See `output`."""
        return saved.folder


class SwiftOutput(TrlOutput):
    """See `output`; `folder` is ms-swift's `output_dir`, with its version."""

    tool: ClassVar[str] = "swift"
    metrics: ClassVar[Sequence[Metric]] = (
        *METRICS,
        Metric("reward_std", unlike="the mean of the groups' deviations"),
        Metric("entropy/mean", "entropy", unlike=EXACT),
        Metric("token_acc"),
        Metric("train_speed(s/it)", unlike="the mean since the start"),
    )

    def entries(self) -> Sequence[Mapping[str, Any]]:
        """See `TrlOutput`; their step is a text, and some of their entries are no numbers."""
        return [placed(entry) for entry in logged_entries(self.folder)]

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

    def answers(self, tables: Any, update: int) -> tuple[Answer, ...]:
        """See `TrlOutput`."""
        return answers((tables or {}).get(update, {}), self.factors)

    def known(self, found: tuple[Answer, ...], first: int, last: int) -> tuple[Answer, ...]:
        """The answers of a round as the journal of an exported folder knows them, with the
        advantages of ms-swift's table where that has the same rewards in the same order."""
        noted = in_order(self.folder, first, last)
        if not noted:
            return found
        if [each.reward for each in noted] != [each.reward for each in found]:
            return tuple(noted)
        pairs = zip(noted, found, strict=True)
        return tuple(replace(own, advantage=theirs.advantage) for own, theirs in pairs)


TABLE = "completions_{:05d}.parquet"


def logged_entries(folder: Path) -> list[dict[str, Any]]:
    """The log's entries in the order of writing, but those that sum up the whole training. Raises
    InputError."""
    if (folder / LOG).is_file():
        found = log_lines(folder / LOG)
    else:
        states = checkpoint_folders(folder)
        last = states[-1][1] if states else folder
        found = read_state(last)["log_history"] if (last / STATE).is_file() else []
    return [entry for entry in found if not ENDS & entry.keys()]


def is_table(file: Path) -> bool:
    """Whether a table is there and whole: its end is written last."""
    try:
        with pq.ParquetFile(file):
            return True
    except (pa.ArrowException, OSError):
        return False


def read_table(file: Path, weights: Weights = None) -> tuple[Answer, ...]:
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
    found = sorted((int(match[1]), path) for match, path in named)
    return [(step, path) for step, path in found if is_whole(path)] or lone_checkpoint(folder)


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
    file = checkpoint / STATE
    state = json.loads(file.read_text(encoding="utf-8"))
    history = state.get("log_history")
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise InputError("is no list of entries", file=file, field="log_history")
    return state


def answer(line: Mapping[str, Any], weights: Weights = None) -> Answer:
    """A line of a table. What `reward.py` added of it is Assay's own view."""
    known = {"step", "prompt", "completion", "advantage", "image", OWN}
    rewards = {name: value for name, value in line.items() if name not in known}
    numbers = {n: float(v) for n, v in rewards.items() if is_number(v) and v == v}
    common = {"prompt": text_of(line.get("prompt")), "advantage": line.get("advantage")}
    if isinstance(line.get(OWN), str):
        return journalled(json.loads(line[OWN]), **common)
    reward = weighted(numbers, [*rewards], weights)
    why = "" if numbers else "no reward function scored it"
    return Answer(text_of(line.get("completion")), reward, parts=numbers, why=why, **common)


def text_of(value: Any) -> str:
    """A prompt or a completion as text; of messages, each with its role but for the only one."""
    if isinstance(value, str):
        return value
    messages = [m for m in value or () if isinstance(m, Mapping)]
    if len(messages) == 1:
        return str(messages[0].get("content") or "")
    return "\n".join(f"{m.get('role')}: {m.get('content') or ''}" for m in messages)


def placed(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """An entry with its step, and without what is no number of one."""
    match = re.fullmatch(r"(\d+)/\d+", str(entry.get("global_step/max_steps", "")))
    step = {"step": int(match[1])} if match else {}
    return {k: v for k, v in entry.items() if k == "step" or is_number(v) or v is None} | step


def answers(table: Mapping[str, Any], weights: Weights = None) -> tuple[Answer, ...]:
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
    found = []
    for place, text in enumerate(table.get("completion", ())):
        values = {name: table[name][place] for name in rewards}
        parts = {name: float(v) for name, v in values.items() if is_number(v) and v == v}
        found.append(
            Answer(
                text=str(text),
                reward=weighted(parts, rewards, weights),
                prompt=str(table["prompt"][place]),
                parts=parts,
                why="" if parts else "no reward function scored it",
                advantage=table["advantages"][place],
            )
        )
    return tuple(found)
