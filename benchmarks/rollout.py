"""How many tokens a CPU-second and a wall second sample: Assay beside four peers.

    python benchmarks/rollout.py core    32 tokens behind 64, bf16 and once fp32
    python benchmarks/rollout.py full    all batch sizes and shapes, one and two threads

The peers are Transformers' `generate` and `generate_batch`, vLLM and llama.cpp, each in a process
of its own that lives through all cells of a number format. In a cell every engine serves the same
request in turn, round after round; each round has prompts of its own, so that no prefix cache
remembers them. Completions have a forced length and are drawn from the whole softmax at
temperature 1. Before that, greedy tokens are compared with Transformers'. A cell that has a result
is not measured again. Needs Linux.
"""

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cells import result_file, save_result
from environments import environment
from gguf_weights import write_gguf
from small_models import model_folder
from workers import Worker, WorkerDied, machine

from assay.data.files import cache_root
from assay.models.precision import bf16_hardware

NAME, GREEDY = "rollout", "rollout_greedy"
MODEL, VOCABULARY = "smollm2", 49152
LEAST_ROUNDS, MOST_ROUNDS, CELL_SECONDS = 3, 7, 60.0
"""Rounds of a cell: at least so many, and more only while it has taken less than so long."""
GREEDY_PROMPTS, GREEDY_LENGTH, GREEDY_TOKENS = 8, 48, 24
TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Engine:
    """A column of the comparison."""

    name: str
    worker: str
    """The engine's name in `rollout_workers`."""
    environment: str | None = None
    """Where it runs; None is this program's own Python."""
    logps: bool = True
    """Whether log-probs are asked for where the engine leaves the choice."""
    weights: str = ""
    """GGUF type of the weights, for llama.cpp."""


def engines(dtype: str) -> tuple[Engine, ...]:
    """The engines that run in a number format; llama.cpp has F16 beside bf16."""
    types = ("F32",) if dtype == "fp32" else ("F16", "BF16")
    return (
        Engine("Assay", "assay"),
        Engine("generate", "generate", "generate"),
        Engine("generate_batch", "generate_batch", "generate"),
        Engine("vLLM", "vllm", "vllm"),
        Engine("vLLM without log-probs", "vllm", "vllm", logps=False),
        *(Engine(f"llama.cpp {kind}", "llama", "llama", weights=kind) for kind in types),
    )


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
        if dtype == "fp32" or bf16_hardware("cpu")
    ]
    return list(dict.fromkeys([*core_cells(), *cells]))


class Workers:
    """The engines' processes for one number format and number of threads, started when needed."""

    def __init__(self, dtype: str, threads: int):
        self.dtype, self.threads = dtype, threads
        self.running: dict[tuple[str, str], Worker] = {}

    def ask(self, engine: Engine, request: dict[str, Any]) -> dict[str, Any]:
        """The engine's answer; raises WorkerDied, and CalledProcessError where pip fails."""
        key = (engine.worker, engine.weights)
        if key not in self.running:
            self.running[key] = self.start(engine)
        try:
            return self.running[key].ask("sample", **request, logps=engine.logps)
        except WorkerDied:
            del self.running[key]
            raise

    def start(self, engine: Engine) -> Worker:
        """A process that samples with the engine."""
        settings = {
            "engine": engine.worker,
            "model": str(weights_for(engine)),
            "dtype": TORCH_NAMES[self.dtype],
            "threads": self.threads,
        }
        python = environment(engine.environment) if engine.environment else Path(sys.executable)
        return Worker(python, "rollout_workers.py", settings, self.threads)

    def versions(self, engine: Engine) -> dict[str, str]:
        """What the engine's process said it runs."""
        return self.running[engine.worker, engine.weights].ready

    def close(self) -> None:
        """Let all processes end."""
        for worker in self.running.values():
            worker.close()


def weights_for(engine: Engine) -> Path:
    """The folder or file that the engine loads, made first if need be."""
    folder = model_folder(MODEL)
    if not engine.weights:
        return folder
    file = cache_root() / "benchmarks" / "models" / f"{folder.name}-{engine.weights}.gguf"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file if file.exists() else write_gguf(folder, file, engine.weights)


@contextmanager
def workers_for(dtype: str, threads: int) -> Iterator[Workers]:
    """Processes that end with the block."""
    workers = Workers(dtype, threads)
    try:
        yield workers
    finally:
        workers.close()


def request_of(cell: Cell, seed: int) -> dict[str, Any]:
    """A request with prompts of arbitrary ordinary tokens that no other round has."""
    generator = random.Random(f"rollout {seed}")
    prompts = [
        [generator.randrange(VOCABULARY // 8, VOCABULARY) for _ in range(cell.prompt)]
        for _ in range(cell.prompts)
    ]
    shape = {"group": cell.group, "tokens": cell.completion}
    return {"prompts": prompts, **shape, "seed": seed, "greedy": False}


def check_answer(cell: Cell, answer: dict[str, Any]) -> None:
    """Raise ValueError unless every completion has its length and the engine really draws."""
    completions = answer["completions"]
    if [len(c) for c in completions] != [cell.completion] * cell.prompts * cell.group:
        raise ValueError(f"{cell.name}: completions of other lengths than asked for")
    if cell.group > 1 and len(set(map(tuple, completions))) < len(completions) / 2:
        raise ValueError(f"{cell.name}: completions that repeat each other")


def measure(workers: Workers, cell: Cell) -> dict[str, Any]:
    """The cell's result: all engines in turn, round after round; round 0 is not counted."""
    found: dict[str, dict[str, Any]] = {engine.name: {} for engine in engines(cell.dtype)}
    start = time.perf_counter()
    for count in range(1 + MOST_ROUNDS):
        if count > LEAST_ROUNDS and time.perf_counter() - start > CELL_SECONDS:
            break
        for engine in engines(cell.dtype):
            if "error" not in found[engine.name]:
                one_round(workers, engine, cell, count, found[engine.name])
    for entry in found.values():
        if "rounds" in entry:
            entry.update(summary(cell, entry["rounds"]))
    return {"cell": asdict(cell), "model": MODEL, "engines": found, "machine": machine()}


def one_round(
    workers: Workers, engine: Engine, cell: Cell, count: int, entry: dict[str, Any]
) -> None:
    """One request to one engine; a failure becomes the engine's result."""
    try:
        answer = workers.ask(engine, request_of(cell, count))
        check_answer(cell, answer)
    except (WorkerDied, ValueError, subprocess.CalledProcessError) as error:
        entry.clear()
        entry["error"] = f"{type(error).__name__}: {error}"
        return
    entry["versions"] = workers.versions(engine)
    if "layout" in answer:
        entry["layout"] = answer["layout"]
    if count:
        times = {name: answer[name] for name in ("cpu_seconds", "wall_seconds")}
        entry.setdefault("rounds", []).append(times)


def summary(cell: Cell, rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Median seconds and the tokens per second that follow."""
    cpu = statistics.median(one["cpu_seconds"] for one in rounds)
    wall = statistics.median(one["wall_seconds"] for one in rounds)
    rates = {
        "tokens_per_cpu_second": cell.tokens / cpu,
        "tokens_per_wall_second": cell.tokens / wall,
    }
    return {"cpu_seconds": cpu, "wall_seconds": wall, **rates}


def compare_greedy(workers: Workers) -> dict[str, Any]:
    """The share of greedy tokens, up to the first other one, that equal `generate`'s in fp32."""
    request = greedy_request()
    with workers_for("fp32", 1) as plain:
        expected = plain.ask(Engine("generate", "generate", "generate"), request)["completions"]
    shares: dict[str, float | str] = {}
    for engine in engines(workers.dtype):
        try:
            found = workers.ask(engine, request)["completions"]
            shares[engine.name] = equal_share(found, expected)
        except (WorkerDied, subprocess.CalledProcessError) as error:
            shares[engine.name] = f"{type(error).__name__}: {error}"
    return {"dtype": workers.dtype, "equal_share": shares, "machine": machine()}


def greedy_request() -> dict[str, Any]:
    """Prompts out of a text: with arbitrary tokens the best two are often a near-tie."""
    from transformers import AutoTokenizer

    text = Path(__file__).parents[1].joinpath("LICENSE").read_text()
    ids = AutoTokenizer.from_pretrained(model_folder(MODEL))(text)["input_ids"]
    starts = range(0, GREEDY_PROMPTS * GREEDY_LENGTH, GREEDY_LENGTH)
    prompts = [list(ids[start : start + GREEDY_LENGTH]) for start in starts]
    return {"prompts": prompts, "group": 1, "tokens": GREEDY_TOKENS, "seed": 0, "greedy": True}


def equal_share(found: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> float:
    """Tokens before the first difference in each completion, as a share of all."""
    same = 0
    for one, other in zip(found, expected, strict=True):
        differing = (n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        same += next(differing, len(other))
    return same / sum(map(len, expected))


def run(cells: Sequence[Cell]) -> None:
    """Measure the cells that have no result, those of the same processes together."""
    waiting = [cell for cell in cells if not result_file(NAME, cell.name).exists()]
    for dtype, threads in dict.fromkeys((cell.dtype, cell.threads) for cell in waiting):
        with workers_for(dtype, threads) as workers:
            if not result_file(GREEDY, dtype).exists():
                print(save_result(GREEDY, dtype, compare_greedy(workers)), flush=True)
            for cell in waiting:
                if (cell.dtype, cell.threads) == (dtype, threads):
                    print(save_result(NAME, cell.name, measure(workers, cell)), flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["core", "full"])
    parser.add_argument("--only", default="", help="cells whose name contains this")
    arguments = parser.parse_args()
    cells = {"core": core_cells, "full": full_cells}[arguments.what]()
    run([cell for cell in cells if arguments.only in cell.name])


if __name__ == "__main__":
    main()
