"""Reads what TRL 1.16 and Transformers' Trainer wrote: the log, completions, checkpoints.

The log is `logging.jsonl`, where a folder was exported, else the newest checkpoint's
`trainer_state.json`. Completions are tables that TRL writes with `log_completions`, one an update.
Read from the package's trainers, and held by tests that train with it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    is_number,
    log_lines,
    translated,
    weighted,
)

TOOL = "trl"
LOG, STATE = "logging.jsonl", "trainer_state.json"
OWN = "assay"
"""Column of the tables that `reward.py` of an exported folder adds."""
ENDS = frozenset({"train_runtime", "train_loss"})
"""An entry with one of these sums up the whole training."""

METRICS: tuple[Metric, ...] = (
    Metric("loss", "loss"),
    Metric("grad_norm", "grad_norm"),
    Metric("learning_rate", "learning_rate"),
    Metric("eval_loss", "validation_loss"),
    Metric("step_time", "seconds"),
    Metric("reward", "reward_mean"),
    Metric(
        "reward_std",
        unlike="the unbiased deviation over all completions, where Assay divides by their number",
    ),
    Metric("frac_reward_zero_std", "signal_share", "1 - share", lambda share: 1 - share),
    Metric("completions/mean_length", "length_mean"),
    Metric("completions/clipped_ratio", "truncated_share"),
    Metric("entropy", "entropy", unlike="exact, of the policy in training; Assay estimates it"),
    Metric("kl", "kl"),
    Metric("clip_ratio/low_mean", "clip_low_share"),
    Metric("clip_ratio/high_mean", "clip_high_share"),
    Metric("mean_token_accuracy"),
)


@dataclass(frozen=True)
class TrlOutput:
    """See `output.Output`; `folder` is the trainer's `output_dir`."""

    folder: Path
    updates: int = 1
    """Optimizer steps of one round."""
    factors: Weights = None
    """Of the reward functions, by which their rewards are multiplied."""

    def steps(self, after: int = 0, ended: bool = False) -> Iterator[Step]:
        """See `Output`. A step's table is written behind its line in the log."""
        rounds = by_round(entries_of_steps(self.folder), self.updates, ended)
        for number, entries in rounds:
            if number <= after:
                continue
            file = self.table(entries[-1]["step"])
            newest = number == rounds[-1][0]
            written = is_table(file) if file.is_file() else ended
            if newest and file.parent.is_dir() and not written:
                return
            measured = any(name.startswith("eval_reward") for e in entries for name in e)
            # A table of a step that measured held-out rows holds their completions.
            answers = () if measured or not file.is_file() else read_table(file, self.factors)
            plain = [{k: v for k, v in e.items() if k not in BESIDE} for e in entries]
            yield Step(number, translated(TOOL, METRICS, plain), answers)

    def table(self, update: int) -> Path:
        """The completions that an update was made of."""
        return self.folder / "completions" / f"completions_{update:05d}.parquet"

    def checkpoints(self) -> Sequence[Saved]:
        """See `Output`."""
        return rounds_saved(self.folder, self.updates)

    def weights(self, saved: Saved, scratch: Path) -> Path:
        """See `Output`."""
        return saved.folder


def rounds_saved(folder: Path, updates: int) -> list[Saved]:
    """The whole checkpoints that end a round; in the middle of one no step of Assay's ends."""
    found = checkpoint_folders(folder)
    whole = [each for each in found if each[0] % updates == 0 or each[1] == folder]
    return [Saved(max(1, step // updates), path) for step, path in whole]


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


def entries_of_steps(folder: Path) -> list[dict[str, Any]]:
    """The entries that name their step."""
    return [entry for entry in logged_entries(folder) if type(entry.get("step")) is int]


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
    common = {"prompt": said(line.get("prompt")), "advantage": line.get("advantage")}
    if isinstance(line.get(OWN), str):
        own = json.loads(line[OWN])
        return Answer(
            text=own["text"],
            reward=own["value"],
            row=own["id"],
            tokens=tuple(own["tokens"]),
            parts=own["parts"],
            why=own["why"] or "",
            ended=own["ended"],
            **common,
        )
    reward = weighted(numbers, [*rewards], weights)
    why = "" if numbers else "no reward function scored it"
    return Answer(said(line.get("completion")), reward, parts=numbers, why=why, **common)


def said(value: Any) -> str:
    """A prompt or a completion as text; of messages, each with its role but for the only one."""
    if isinstance(value, str):
        return value
    messages = [m for m in value or () if isinstance(m, Mapping)]
    if len(messages) == 1:
        return str(messages[0].get("content") or "")
    return "\n".join(f"{m.get('role')}: {m.get('content') or ''}" for m in messages)
