"""Reads what verl 0.9.1 wrote: the file logger's lines, rollouts, checkpoints.

The log is that of `trainer.logger = ["file"]`, which verl begins anew where it is resumed. Read
from the package's trainer (V1), and held by tests that train with it. A checkpoint is shards that
`merged` makes one file of, inside verl.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from assay.engines.environments import installed
from assay.errors import InputError
from assay.trainers.outputs.output import (
    MetricLine,
    RecordedCompletion,
    Saved,
    Step,
    by_key,
    holds_weights,
    log_lines,
    metrics_of,
    translated,
)

LATEST = "latest_checkpointed_iteration.txt"

STARTS = "training/global_step"
"""Every line of a training step has it."""


@dataclass(frozen=True)
class VerlOutput:
    """See `output`; `folder` is verl's `trainer.default_local_dir`."""

    folder: Path
    updates: int = 1
    """No matter here: verl counts rounds."""
    logs: tuple[Path, ...] = ()
    """The file logger's, oldest first; omitted: metrics*.jsonl in the folder."""
    rollouts: Path | None = None
    """verl's `trainer.rollout_data_dir`; omitted: `rollouts` in the folder."""
    lone: Saved | None = None
    """The only checkpoint, where the folder is one itself."""
    metrics: ClassVar[Sequence[MetricLine]] = metrics_of("verl")

    def steps(self, after: int = 0, ended: bool = False) -> Iterator[Step]:
        """See `output`. A step's rollouts are written before its line in the log, or beside it."""
        lines: dict[int, Mapping[str, Any]] = {}
        for file in self.logs or sorted(self.folder.glob("metrics*.jsonl")):
            for number, line in enumerate(log_lines(file), 1):
                step, data = line.get("step"), line.get("data")
                if type(step) is not int or not isinstance(data, dict):
                    problem = "is no step of verl's file logger"
                    raise InputError(problem, file=file, line=number)
                lines = {known: each for known, each in lines.items() if known <= step}
                # Validation before the first step, or behind the last, has a line of its own.
                lines[step] = data if STARTS in data else {**lines.get(step, {}), **data}
        for number in sorted(lines):
            if number <= after or STARTS not in lines[number]:
                continue
            file = (self.rollouts or self.folder / "rollouts") / f"{number}.jsonl"
            there, newest = file.is_file(), number == max(lines)
            if newest and file.parent.is_dir() and not (whole(file) if there else ended):
                return
            yield Step(
                number,
                translated("verl", self.metrics, [lines[number]]),
                self.answers(file) if there else (),
            )

    def answers(self, file: Path) -> tuple[RecordedCompletion, ...]:
        """The completions of a step, as the journal of an exported folder knows them. Raises
        InputError for a file that was cut short."""
        if not whole(file):
            raise InputError("ends in the middle of a line", file=file, fix="restore it")
        known = by_key(self.folder) if self.journalled else {}
        return tuple(
            known.get(str(line.get("uid", "")).rpartition("_")[0]) or answer(line)
            for line in log_lines(file)
        )

    @cached_property
    def journalled(self) -> bool:
        """Whether the folder was exported."""
        return (self.folder / "answers").is_dir()

    def checkpoints(self) -> Sequence[Saved]:
        """See `output`; verl names the last whole one in a file."""
        if self.lone:
            return [self.lone]
        try:
            last = int((self.folder / LATEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        folders = [(int(m[1]), p) for p in self.folder.glob("global_step_*") if (m := STEP(p.name))]
        actors = sorted((step, path / "actor") for step, path in folders if step <= last)
        return [Saved(step, path) for step, path in actors if path.is_dir()]

    def weights(self, saved: Saved, scratch: Path) -> Path:
        """See `output`. Raises InputError where verl is not installed, or cannot merge."""
        if holds_weights(saved.folder):
            return saved.folder
        return merged(saved.folder, scratch / saved.folder.parent.name)


SHARDS = "model_world_size_*.pt"
META = "lora_train_meta.json"
"""What verl notes of an adapter beside its shards."""


def lone_actor(folder: Path) -> Saved | None:
    """The checkpoint that a folder is itself: global_step_N, its actor, or what was merged."""
    if not holds_weights(folder) and not any(folder.glob(SHARDS)):
        folder = folder / "actor"
        if not any(folder.glob(SHARDS)):
            return None
    parts = [STEP(name) for name in folder.resolve().parts]
    return Saved(next((int(part[1]) for part in reversed(parts) if part), 1), folder)


STEP = re.compile(r"global_step_(\d+)").fullmatch


def whole(file: Path) -> bool:
    """Whether a file ends with the end of a line."""
    return file.read_bytes().endswith(b"\n")


def answer(line: Mapping[str, Any]) -> RecordedCompletion:
    """A line of verl's rollouts."""
    score = line.get("score")
    return RecordedCompletion(
        text=str(line.get("output", "")),
        reward=float(score) if isinstance(score, int | float) else None,
        prompt=str(line.get("input", "")),
        why="" if isinstance(score, int | float) else "verl wrote no score",
    )


MERGE = """
import pickle, torch, torch.distributed.tensor
# verl unpickles whatever a shard holds, which would run the code of whoever wrote the folder.
load_any = torch.load
def load_tensors(file, **options):
    try:
        return load_any(file, **{**options, "weights_only": True})
    except pickle.UnpicklingError:
        raise SystemExit(f"{file} holds other things than tensors")
torch.load = load_tensors
# verl rounds what it merges to bfloat16, which would lose most of a small change.
torch.Tensor.bfloat16 = lambda tensor: tensor
from verl.model_merger.__main__ import main
main()
"""


def merged(actor: Path, target: Path) -> Path:
    """The folder of a checkpoint's weights, or of its adapter, in verl's own precision.

    Raises InputError where verl is not installed, or cannot merge the shards.
    """
    python = installed("verl")
    if python is None:
        problem = "verl's shards are merged by verl, which is not installed"
        raise InputError(problem, file=actor, fix="assay engines add verl")
    if not (actor / "fsdp_config.json").is_file():
        problem = "holds no shards of FSDP"
        fix = "merge it with verl.model_merger, and name the folder that it wrote as the model"
        raise InputError(problem, file=actor, fix=fix)
    arguments = ("merge", "--backend", "fsdp", "--local_dir", actor, "--target_dir", target)
    command = [str(python), "-c", MERGE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"verl merges no model of it: {last}", file=actor, fix="restore its files")
    adapter = target / "lora_adapter"
    if not adapter.is_dir():
        return target
    if not (actor / META).is_file():
        problem = "is missing, and nothing else says the rank and the alpha of the adapter"
        raise InputError(problem, file=actor / META, fix="restore it beside the shards")
    return adapter
