"""Sections about rates: tokens a second of the trainer alone, and of sampling beside vLLM."""

import json
import random
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from transformers import AutoConfig

from assay.engines.environments import environment_for, installed
from benchmarks.driver import Limits, Side, SideFailed, Worker, measure_in_turn, running
from benchmarks.gpu.rows import Rows, Setup
from benchmarks.gpu.steps import GIB
from benchmarks.gpu.subjects import TINY, whole_folder
from benchmarks.results import medians
from benchmarks.shapes import GrpoCell, SftCell
from benchmarks.worker import Record

SEQUENCES, LENGTH, PROMPT = 8, 2048, 64
"""Of a training step: 16,384 tokens. The prompt is part of the length."""
LIMITS = Limits(seconds=40, least=2, most=5)


@dataclass(frozen=True)
class Trained:
    """What a row trains, and prime-rl's record of it on one H100."""

    model: str
    kind: str
    """`full` and `lora` take GRPO's loss, `sft` its own."""
    peer: str


TRAINED = (
    Trained("Qwen3-0.6B", "full", "11.9k tokens/s, 12.5 GiB"),
    Trained("Qwen3-0.6B", "lora", "13.3k tokens/s, 5.1 GiB"),
    Trained("Qwen3-0.6B", "sft", "25.5k tokens/s"),
    Trained("Qwen3-4B", "lora", "6.2k tokens/s, 23.3 GiB"),
)
BUDGETS = (2048, 16384)
"""Tokens of a micro-batch: one sequence, or all of them."""
BATCHES = ((8, 8), (64, 8))
"""Prompts and completions of each: 64 and 512 sequences."""


def trainer(setup: Setup, rows: Rows) -> None:
    """Tokens a second and peak memory of an update of 16,384 tokens, by micro-batch."""
    small = tuple(replace(each, model=TINY) for each in TRAINED[:3])
    with tempfile.TemporaryDirectory() as place:
        for each in small if setup.small else TRAINED:
            folder = whole_folder(each.model, Path(place), setup)
            for budget in BUDGETS:
                what = f"{each.model}, {each.kind}, {budget} tokens at once"
                with rows.guarded(what):
                    rows.measured(what, trained(setup, each, folder, budget))


def trained(setup: Setup, each: Trained, folder: Path, budget: int) -> str:
    """The rate and the peak of one setting, beside the record."""
    sequences, length, prompt = (2, 64, 16) if setup.small else (SEQUENCES, LENGTH, PROMPT)
    dtype = "fp32" if setup.small else "bf16"
    cell: GrpoCell | SftCell = SftCell(each.model, dtype)
    told: Record = {"model": str(folder), "end": None, "device": setup.device}
    told |= {"micro_tokens": budget, "method": "sft" if each.kind == "sft" else "trainer"}
    if each.kind == "sft":
        # As many tokens as the other rows have, in documents of the same length.
        document = [[5] * prompt, [6] * (length - prompt)]
        file = folder.with_name(f"{folder.name}-rows.json")
        file.write_text(json.dumps([document] * 4 * sequences))
        told |= {"documents": str(file), "batch": sequences}
    else:
        lora = each.kind == "lora"
        cell = GrpoCell(each.model, prompt, length - prompt, dtype, prompts=sequences, group=1)
        cell = replace(cell, lora=lora)
    side = Side("Assay", "benchmarks.assay_worker", {**told, "cell": asdict(cell)})
    with running([side]) as (workers, failures):
        measured = measure_in_turn(
            workers, failures, LIMITS, lambda name, _: workers[name].ask("step")
        )
    if measured.failures:
        raise RuntimeError(measured.failures["Assay"])
    made = medians(measured.steps["Assay"])
    rate, peak = made["tokens"] / made["wall"], made["peak_bytes"] / GIB
    beside = "" if setup.small else f" (prime-rl on an H100: {each.peer})"
    return f"{rate:,.0f} tokens/s, peak {peak:.2f} GiB{beside}"


def rates(setup: Setup, rows: Rows) -> None:
    """Sampled tokens a second at 64 and 512 sequences, log-probs included, both in turn."""
    name = TINY if setup.small else "Qwen3-0.6B"
    dtype = "fp32" if setup.small else "bf16"
    with tempfile.TemporaryDirectory() as place:
        folder = whole_folder(name, Path(place), setup)
        told = {"model": str(folder), "dtype": dtype, "threads": 1}
        own = {**told, "engine": "assay", "device": setup.device}
        sides = [Side("Assay", "benchmarks.engine_worker", own)]
        vllm = installed(environment_for("vllm"))
        if vllm is None:
            rows.left_out("vLLM", "needs `assay engines add vllm`")
        else:
            settings = {**told, "engine": "vllm"}
            sides.append(Side("vLLM", "benchmarks.engine_worker", settings, python=str(vllm)))
        words = AutoConfig.from_pretrained(folder).vocab_size
        for prompts, group in ((2, 2),) if setup.small else BATCHES:
            shape = {"group": group, "tokens": 8 if setup.small else 256}
            compare(prompts, {**shape, "prompt": 16 if setup.small else 256}, words, sides, rows)


def compare(prompts: int, shape: Record, words: int, sides: list[Side], rows: Rows) -> None:
    """A row for each side, which serve a request in turn; each round's prompts are new."""

    def request(number: int) -> Record:
        draw = random.Random(number)
        made = [[draw.randrange(2, words) for _ in range(shape["prompt"])] for _ in range(prompts)]
        told = {"group": shape["group"], "tokens": shape["tokens"], "logps": True}
        return {"prompts": made, "seed": number, **told}

    with running(sides) as (workers, failures):
        measured = measure_in_turn(
            workers, failures, LIMITS, lambda name, n: answered(workers[name], request(n))
        )
    count = prompts * shape["group"]
    for name, done in measured.steps.items():
        rate = count * shape["tokens"] / medians(done)["wall"]
        rows.measured(f"{count} sequences, {name}", f"{rate:,.0f} tokens/s")
    for name, why in measured.failures.items():
        rows.failed(f"{count} sequences, {name}", why)


def answered(worker: Worker, request: Record) -> Record:
    """The seconds of a request; raises SideFailed for an answer of another length."""
    answer = worker.ask("sample", **request)
    if {len(each) for each in answer.pop("completions")} != {request["tokens"]}:
        raise SideFailed(worker.name, "completions of other lengths than asked for")
    return answer
