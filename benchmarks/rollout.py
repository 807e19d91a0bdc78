"""How many tokens a CPU-second and a wall second sample: Assay beside generate, vLLM and llama.cpp.

    python -m benchmarks.rollout core    32 tokens behind 64, bf16 and once fp32
    python -m benchmarks.rollout full    all batch sizes and shapes, one and two threads

In a cell every engine serves the same request in turn, round after round; each round has prompts of
its own, so that no prefix cache remembers them. Completions have a forced length and are drawn from
the whole softmax at temperature 1. Assay returns the log-prob of every token; generate and
llama.cpp are not asked for it, vLLM is measured with and without. Loading is not counted.
"""

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.models.precision import bf16_hardware
from benchmarks.driver import (
    Limits,
    Measured,
    Side,
    SideFailed,
    Worker,
    chosen_cells,
    measure_in_turn,
    measure_missing,
    running,
)
from benchmarks.models import gguf_file, model_folder, vocabulary_of
from benchmarks.results import machine
from benchmarks.worker import Record

SUBJECT, MODEL = "rollout", "smollm2"
ROUNDS = Limits(seconds=60, least=3, most=7)
WITHOUT_LOGPS = "vLLM without log-probs"
ENVIRONMENTS = {"assay": None, "generate": "generate", "vllm": "vllm", "llama": "llama"}


@dataclass(frozen=True)
class Cell:
    """One comparison."""

    prompts: int
    group: int
    prompt: int
    """Tokens of each prompt."""
    completion: int
    """Tokens of each completion."""
    dtype: str
    threads: int = 1

    @property
    def name(self) -> str:
        """Names the cell's result."""
        rows = f"{self.prompts}x{self.group}"
        return f"{MODEL}-{self.prompt}x{self.completion}-{rows}-{self.dtype}-{self.threads}t"

    @property
    def tokens(self) -> int:
        """Tokens that a request samples."""
        return self.prompts * self.group * self.completion

    def request(self, seed: int) -> Record:
        """A request with prompts of arbitrary ordinary tokens that no other round has."""
        generator, vocabulary = random.Random(f"rollout {seed}"), vocabulary_of(MODEL)
        prompts = [
            [generator.randrange(vocabulary // 8, vocabulary) for _ in range(self.prompt)]
            for _ in range(self.prompts)
        ]
        shape = {"group": self.group, "tokens": self.completion}
        return {"prompts": prompts, **shape, "seed": seed}


BATCHES = ((1, 1), (1, 8), (8, 8), (32, 8))
SHAPES = ((64, 32), (256, 64))


def core_cells() -> list[Cell]:
    """The cells that come first: in bf16 where the processor has it, and once in fp32."""
    dtype = "bf16" if bf16_hardware("cpu") else "fp32"
    batches = [((8, 8), dtype), ((8, 8), "fp32"), ((1, 8), dtype), ((1, 1), dtype)]
    return list(dict.fromkeys(Cell(*batch, *SHAPES[0], dtype) for batch, dtype in batches))


def full_cells() -> list[Cell]:
    """All cells, the core first."""
    cells = [
        Cell(*batch, *shape, dtype, threads)
        for threads in (1, 2)
        for dtype in ("bf16", "fp32")
        for shape in SHAPES
        for batch in BATCHES
    ]
    return list(dict.fromkeys([*core_cells(), *cells]))


def engine_side(name: str, engine: str, model: Path, dtype: str, threads: int) -> Side:
    """A process that samples with an engine of `engines`."""
    settings = {"engine": engine, "model": str(model), "dtype": dtype, "threads": threads}
    return Side(name, "benchmarks.engine_worker", settings, threads, ENVIRONMENTS[engine])


def sides_of(dtype: str, threads: int) -> list[Side]:
    """The engines that run in a number format; llama.cpp has F16 beside bf16."""
    folder = model_folder(MODEL)
    types = ("F32",) if dtype == "fp32" else ("F16", "BF16")
    named = (("Assay", "assay"), ("generate", "generate"), ("vLLM", "vllm"))
    sides = [engine_side(name, engine, folder, dtype, threads) for name, engine in named]
    return sides + [
        engine_side(f"llama.cpp {kind}", "llama", gguf_file(kind), dtype, threads) for kind in types
    ]


def sample(workers: Mapping[str, Worker], cell: Cell, name: str, number: int) -> Record:
    """One request to one engine; raises SideFailed where the answer is not what was asked for."""
    worker = workers["vLLM" if name == WITHOUT_LOGPS else name]
    logps = name != WITHOUT_LOGPS
    answer = worker.ask("sample", **cell.request(number), logps=logps)
    completions = answer.pop("completions")
    if [len(c) for c in completions] != [cell.completion] * cell.prompts * cell.group:
        raise SideFailed(name, "completions of other lengths than asked for")
    if cell.group > 1 and len(set(map(tuple, completions))) < len(completions) / 2:
        raise SideFailed(name, "completions that repeat each other")
    return answer


def measure(cell: Cell) -> Record:
    """The cell's result: tokens per second of every engine, or why it has none."""
    before = machine()
    with running(sides_of(cell.dtype, cell.threads)) as (workers, failures):
        asked = dict(workers)
        if "vLLM" in workers:
            asked[WITHOUT_LOGPS] = workers["vLLM"]
        measured = measure_in_turn(
            asked, failures, ROUNDS, lambda name, number: sample(workers, cell, name, number)
        )
    engines: Record = {name: engine_record(cell, measured, name) for name in measured.steps}
    engines |= {name: {"error": why} for name, why in measured.failures.items()}
    return {"cell": asdict(cell), "model": MODEL, "engines": engines, "machine": before}


def engine_record(cell: Cell, measured: Measured, name: str) -> Record:
    """Rounds, median seconds and tokens per second of an engine."""
    found = measured.record()["medians"][name]
    cpu, wall = found["cpu"], found["wall"]
    return {
        "versions": measured.versions[name],
        "rounds": measured.steps[name],
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "tokens_per_cpu_second": cell.tokens / cpu,
        "tokens_per_wall_second": cell.tokens / wall,
    }


def summary(result: Record) -> str:
    """Tokens per CPU-second of every engine."""
    rates = {name: e.get("tokens_per_cpu_second") for name, e in result["engines"].items()}
    words = (f"{name} {rate:.0f}" if rate else f"{name} failed" for name, rate in rates.items())
    return "  tokens per CPU-second: " + "   ".join(words)


if __name__ == "__main__":
    _, cells = chosen_cells(__doc__, Cell, {"core": core_cells, "full": full_cells})
    measure_missing(SUBJECT, cells, measure, summary)
