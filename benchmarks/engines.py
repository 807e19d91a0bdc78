"""What a GRPO step costs with Assay's engine, with vLLM and with the plain path, and a hand-over.

    python -m benchmarks.engines core       all cells, about four minutes each on two quiet cores
    python -m benchmarks.engines cell model=qwen3 prompt=64 completion=32    one cell
    python -m benchmarks.engines adapter    1024 tokens of vLLM with an adapter apart, and merged

The sides are Assay with the same weights, prompts and settings; only the sampler differs (on the
plain path the scoring too). Each is loaded once, then they take turns, a step each. CPU-seconds
are of the trainer and of vLLM's process together, and a step's sampling holds what comes with it:
laying out the weights, or handing them over and proving it. vLLM's environment is needed
(`assay engines add vllm`); without it, its side failed.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from assay.engines.environments import environment_for, installed
from assay.models.load import load_model
from assay.models.lora import LoraOptions
from assay.models.precision import bf16_hardware, choose_precision
from benchmarks.driver import Limits, Side, SideFailed, chosen_cells, measure_in_turn, running, say
from benchmarks.grpo import Setup, one_step
from benchmarks.models import model_folder
from benchmarks.results import machine, save_result
from benchmarks.shapes import LORA_ALPHA, LORA_RANK, GrpoCell
from benchmarks.worker import Record

SUBJECT = "engines"
LIMITS = Limits(seconds=45, least=2, most=5)
OWN, VLLM, PLAIN = "own", "vLLM", "plain"
SAMPLERS = {OWN: "", VLLM: "vllm", PLAIN: "plain"}
"""Each side, and what `assay_worker` calls its sampler."""
THREADS = 2


def cells() -> list[GrpoCell]:
    """Short prompts, a long one, and an adapter."""
    dtype = "bf16" if bf16_hardware("cpu") else "fp32"
    usual = GrpoCell("smollm2", 64, 32, dtype, threads=THREADS, prompts=8)
    long = replace(usual, prompt=512, prompts=2)
    return [usual, long, replace(usual, dtype="fp32"), replace(usual, dtype="fp32", lora=True)]


def side_of(name: str, setup: Setup) -> Side:
    """Assay with a sampler."""
    return replace(
        setup.assay(), name=name, settings={**setup.settings(), "sampler": SAMPLERS[name]}
    )


def sides_of(setup: Setup) -> Iterator[Side]:
    """Those that can be started: vLLM is not installed by a benchmark."""
    for name in SAMPLERS:
        if name != VLLM or installed(environment_for("vllm")) is not None:
            yield side_of(name, setup)


def measure(cell: GrpoCell) -> Record:
    """The result of a cell."""
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(cell, Path(folder))
        with running(list(sides_of(setup))) as (workers, failures):
            if VLLM not in workers:
                failures.setdefault(VLLM, "needs `assay engines add vllm`")
            measured = measure_in_turn(
                workers, failures, LIMITS, lambda side, n: one_step(cell, workers, side, n)
            )
    return {"cell": asdict(cell), "machine": before, **measured.record()}


def name_of(cell: GrpoCell) -> str:
    """Names the result file."""
    return f"{cell.name}-{cell.prompts}x{cell.group}"


def summary(result: Record) -> str:
    """A line for each side."""
    lines = []
    for name, found in result["medians"].items():
        sampled = found["completion_tokens"]
        words = f"step {found['cpu']:.2f} CPU-s, {found['wall']:.2f} s"
        words += f", {sampled / found['generation_cpu']:.0f} tokens per CPU-s"
        if "load_seconds" in found:
            words += f", hand-over {found['load_seconds']:.2f} s"
            words += f", proof {found['proof_seconds']:.2f} s"
        lines.append(f"  {name:6} {words}")
    return "\n".join([*lines, *(f"  {name:6} failed" for name in result["failures"])])


@dataclass(frozen=True)
class AdapterCell:
    """vLLM alone: the same sampling with the adapter apart, and with a whole model."""

    prompts: int = 4
    group: int = 8
    prompt: int = 64
    tokens: int = 32
    dtype: str = "fp32"


def measure_adapter() -> Record:
    """CPU-seconds of vLLM for 1024 tokens of SmolLM2 with an adapter apart, and without one."""
    import torch

    from assay.models.adapt import train_lora
    from assay.models.weight_files import save_weights
    from benchmarks.rollout import Cell

    cell, before = AdapterCell(), machine()
    request = Cell(cell.prompts, cell.group, cell.prompt, cell.tokens, cell.dtype)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_model(model_folder("smollm2"), choose_precision("fp32", "cpu"))
        torch.manual_seed(0)
        module, _ = train_lora(loaded.model, LoraOptions(LORA_RANK, LORA_ALPHA))
        save_weights(module, Path(folder))
        shared = {"engine": "vllm", "model": str(model_folder("smollm2")), "dtype": cell.dtype}
        shared |= {"threads": THREADS}
        python = str(installed(environment_for("vllm")) or "")
        if not python:
            raise SideFailed(VLLM, "needs `assay engines add vllm`")
        sides = [
            Side("merged", "benchmarks.engine_worker", shared, THREADS, python=python),
            Side(
                "adapter apart",
                "benchmarks.engine_worker",
                {**shared, "adapter": folder},
                THREADS,
                python=python,
            ),
        ]
        with running(sides) as (workers, failures):
            measured = measure_in_turn(
                workers,
                failures,
                LIMITS,
                lambda side, n: without_tokens(
                    workers[side].ask("sample", **request.request(n), logps=True)
                ),
            )
    return {"cell": asdict(cell), "machine": before, **measured.record()}


def without_tokens(answer: Record) -> Record:
    """Seconds alone."""
    return {name: answer[name] for name in ("cpu", "wall")}


def main() -> None:
    """Measure anew what is asked for."""
    what, chosen = chosen_cells(__doc__, GrpoCell, {"core": cells, "adapter": list})
    if what == "adapter":
        result = measure_adapter()
        save_result(SUBJECT, "adapter", result)
        say(json.dumps(result["medians"]) + json.dumps(result["failures"]))
    for cell in chosen:
        say(name_of(cell))
        result = measure(cell)
        save_result(SUBJECT, name_of(cell), result)
        say(summary(result))


if __name__ == "__main__":
    main()
