"""Scores answers for another trainer in a process of its own: `python -m ... FOLDER`.

FOLDER is one that `assay export --to` wrote. Reads a line of JSON for each batch of answers, and
writes one with their rewards. Works without torch, so that it runs beside any trainer.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pydantic import TypeAdapter

from assay.data.episode import Completion, Reward, row_of
from assay.data.json_files import read_jsonl
from assay.data.row import Row
from assay.experiment.reward_tables import Reward as RewardSpec
from assay.lab.session.reward_parts import reward_of
from assay.sandbox.isolation import choose_isolation
from assay.tasks.running import RewardRunner
from assay.tasks.task import task

SETTINGS, ROWS = "reward.json", "rows.jsonl"


def opened(folder: Path) -> tuple[RewardRunner, Mapping[str, Row], Mapping[str, Any]]:
    """The runner of a folder's reward, its rows by id, and its settings. Raises what the reward's
    task raises."""
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    choose_isolation(settings["sandbox"])
    rows = [row_of(record.value) for record in read_jsonl(folder / ROWS)]
    spec = TypeAdapter(RewardSpec).validate_python(settings["reward"])
    runner = RewardRunner(
        reward_of(task(settings["task"], folder), spec, folder),
        deadline=settings["deadline"],
        workers=settings["workers"],
        sandbox=settings["sandbox"],
        concurrency=settings["concurrency"],
    )
    return runner, {row.id: row for row in rows}, settings


def punished(reward: Reward, tokens: int, settings: Mapping[str, Any]) -> float | None:
    """The value of a reward after the soft punishment of long answers, where there is one (DAPO,
    arXiv 2503.14476, eq. 13)."""
    buffer, most = settings["overlong"], settings["max_tokens"]
    if reward.value is None or not buffer:
        return reward.value
    over = max(0, tokens - (most - buffer["buffer"]))
    return reward.value - min(over / buffer["buffer"], 1.0) * buffer["factor"]


def answer(folder: Path, batches: TextIO, told: TextIO) -> None:
    """Score batches until `batches` ends. An abstention has value null and says why."""
    runner, rows, settings = opened(folder)
    with runner:
        for line in batches:
            answers = json.loads(line)
            pairs = [
                (rows[a["id"]], Completion(a["text"], tuple(a["tokens"]), a["ended"]))
                for a in answers
            ]
            rewards = [
                {
                    "value": punished(reward, len(pair[1].tokens), settings),
                    "why": reward.why,
                    "parts": dict(reward.parts),
                }
                for pair, reward in zip(pairs, runner.score(pairs), strict=True)
            ]
            told.write(json.dumps(rewards) + "\n")
            told.flush()


if __name__ == "__main__":
    # What a user's reward prints must not end up among the answers.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as told:
        os.dup2(2, 1)
        answer(Path(sys.argv[1]), sys.stdin, told)
