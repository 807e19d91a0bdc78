"""Reads what ms-swift 4.6 wrote: logging.jsonl, completions.jsonl, checkpoints.

Its checkpoints are Transformers' and their state holds the log too, so that `trl_output` reads
both. Read from the package's trainers, and held by tests that train with it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.trainers.outputs.journal import in_order
from assay.trainers.outputs.output import (
    BESIDE,
    Answer,
    Metric,
    Saved,
    Step,
    Weights,
    by_round,
    is_number,
    log_lines,
    translated,
    weighted,
)
from assay.trainers.outputs.trl_output import logged_entries, rounds_saved

TOOL = "swift"
PLACE = "global_step/max_steps"
"""Says the step of an entry: "3/40"."""
TABLES = "completions.jsonl"

METRICS: tuple[Metric, ...] = (
    Metric("loss", "loss"),
    Metric("grad_norm", "grad_norm"),
    Metric("learning_rate", "learning_rate"),
    Metric("eval_loss", "validation_loss"),
    Metric("step_time", "seconds"),
    Metric("reward", "reward_mean"),
    Metric("reward_std", unlike="the mean of the groups' deviations"),
    Metric("frac_reward_zero_std", "signal_share", "1 - share", lambda share: 1 - share),
    Metric("completions/mean_length", "length_mean"),
    Metric("completions/clipped_ratio", "truncated_share"),
    Metric(
        "entropy/mean", "entropy", unlike="exact, of the policy in training; Assay estimates it"
    ),
    Metric("kl", "kl"),
    Metric("clip_ratio/low_mean", "clip_low_share"),
    Metric("clip_ratio/high_mean", "clip_high_share"),
    Metric("token_acc"),
    Metric("train_speed(s/it)", unlike="the mean since the start"),
)


@dataclass(frozen=True)
class SwiftOutput:
    """See `output.Output`; `folder` is ms-swift's `output_dir`, with its version."""

    folder: Path
    updates: int = 1
    """Optimizer steps of one round."""
    factors: Weights = None
    """Of the reward functions, by which their rewards are multiplied."""

    def entries(self) -> list[Mapping[str, Any]]:
        """The log's entries of steps, in the order of writing. Raises InputError."""
        return [placed(entry) for entry in logged_entries(self.folder)]

    def steps(self, after: int = 0, ended: bool = False) -> Iterator[Step]:
        """See `Output`. A step's completions are written behind its line in the log."""
        rounds = by_round([e for e in self.entries() if "step" in e], self.updates, ended)
        tables = self.tables()
        for number, entries in rounds:
            if number <= after:
                continue
            last = entries[-1]["step"]
            newest = number == rounds[-1][0]
            if newest and tables is not None and last not in tables and not ended:
                return
            measured = any(name.startswith("eval_reward") for e in entries for name in e)
            # Completions of a step that measured held-out rows are those of these rows.
            found = (
                () if measured or tables is None else answers(tables.get(last, {}), self.factors)
            )
            first = (number - 1) * self.updates + 1
            plain = [{k: v for k, v in e.items() if k not in BESIDE} for e in entries]
            yield Step(number, translated(TOOL, METRICS, plain), self.known(found, first, last))

    def tables(self) -> Mapping[int, Mapping[str, Any]] | None:
        """The completions by update; None where they are not logged."""
        file = self.folder / TABLES
        if not file.is_file():
            return None
        lines = (line for line in log_lines(file) if line.get("step"))
        return {int(line["step"][0]): line for line in lines}

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

    def checkpoints(self) -> Sequence[Saved]:
        """See `Output`."""
        return rounds_saved(self.folder, self.updates)

    def weights(self, saved: Saved, scratch: Path) -> Path:
        """See `Output`."""
        return saved.folder


def placed(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """An entry with its step, and without what is no number of one."""
    match = re.fullmatch(r"(\d+)/\d+", str(entry.get(PLACE, "")))
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
