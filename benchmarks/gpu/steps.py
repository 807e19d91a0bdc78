"""Sections about cost: seconds, tokens and memory of GRPO and SFT steps, beside TRL's.

Weights, prompts, lengths, sampling, optimizer and clipping are the same, as in `benchmarks.grpo`.
Sides take turns, a step each after one that is not counted, where their weights fit together.
"""

import importlib.util
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from transformers import AutoConfig

from assay.engines.environments import environment_for, installed
from assay.models.memory import HEADROOM, StepLoad, estimate_memory, model_shape
from benchmarks.driver import Limits, Measured, Side, Worker, measure_in_turn, running
from benchmarks.gpu.rows import Rows, Setup
from benchmarks.gpu.subjects import SHAPES, TINY, whole_folder
from benchmarks.memory import random_documents
from benchmarks.models import id_tokenizer
from benchmarks.results import medians
from benchmarks.shapes import GrpoCell, SftCell
from benchmarks.worker import Record

GIB = 2**30
MICRO_ROWS, MICRO_TOKENS = 16, 8192
"""TRL's rows of a micro-batch of GRPO, and Assay's tokens of one."""
DOCUMENTS, PROMPT, ANSWER = 32, 96, 160
"""Of an SFT step."""
TOGETHER = 16 * 1.2e9
"""Bytes of weights, gradients and moments up to which both sides are held at once."""


@dataclass(frozen=True)
class Load:
    """What a step holds."""

    grpo: GrpoCell
    sft: SftCell
    documents: int

    @property
    def rows(self) -> int:
        """Of TRL's micro-batch in SFT."""
        return min(8, self.documents)


def load_of(setup: Setup, name: str) -> Load:
    """The usual one, or a small one."""
    if setup.small:
        cell = GrpoCell(name, 16, 8, "fp32", prompts=2, group=4)
        return Load(cell, SftCell(name, "fp32"), 4)
    return Load(
        GrpoCell(name, 256, 128, "bf16", prompts=8, group=8), SftCell(name, "bf16"), DOCUMENTS
    )


def names_of(setup: Setup) -> Sequence[str]:
    """The models."""
    return (TINY,) if setup.small else SHAPES


@dataclass(frozen=True)
class Bench:
    """The files that the sides of a model share."""

    setup: Setup
    name: str
    folder: Path
    place: Path

    @property
    def load(self) -> Load:
        """What a step holds."""
        return load_of(self.setup, self.name)

    def settings(self, method: str) -> Record:
        """What all sides are told."""
        cell = self.load.grpo if method == "grpo" else self.load.sft
        shared = {"method": method, "cell": asdict(cell), "model": str(self.folder), "end": None}
        # Both sides' micro-batches hold as many tokens, on which the peak depends more than on all
        # else.
        tokens = MICRO_TOKENS if method == "grpo" else self.load.rows * (PROMPT + ANSWER)
        return {**shared, "device": self.setup.device, "micro_tokens": tokens}

    def documents(self) -> str:
        """A file of random documents, enough for all steps."""
        file = self.place / f"{self.name}-documents.json"
        words = AutoConfig.from_pretrained(self.folder).vocab_size
        made = random_documents(8 * self.load.documents, PROMPT, ANSWER)
        cut = [([t % words for t in p], [t % words for t in a]) for p, a in made]
        file.write_text(json.dumps(cut))
        return str(file)

    def assay(self, method: str, **more: str) -> Side:
        """Assay's side."""
        name = "Assay with vLLM" if more else "Assay"
        told = {**self.settings(method), **more}
        told |= {"documents": self.documents(), "batch": self.load.documents}
        return Side(name, "benchmarks.assay_worker", told)

    def trl(self, method: str, vllm: bool = False) -> Side:
        """TRL's side."""
        words = AutoConfig.from_pretrained(self.folder).vocab_size
        tokenizer = self.place / f"{self.name}-words"
        if not tokenizer.exists():
            id_tokenizer(words, words).save_pretrained(tokenizer)
        cell = self.load.grpo
        rows = min(MICRO_ROWS, cell.rows) if method == "grpo" else self.load.rows
        told = {**self.settings(method), "tokenizer": str(tokenizer), "rows": rows}
        told |= {"cache": "dynamic", "vllm": vllm, "documents": self.documents()}
        window = self.load.documents // self.load.rows
        told |= {"window": window, "length": PROMPT + ANSWER, "mode": "padded"}
        name = "TRL with vLLM" if vllm else "TRL"
        return Side(name, "benchmarks.trl_worker", told, python=self.setup.trl)


def steps(setup: Setup, rows: Rows) -> None:
    """Seconds, tokens and memory of each side."""
    with tempfile.TemporaryDirectory() as place:
        for name in names_of(setup):
            bench = Bench(setup, name, whole_folder(name, Path(place), setup), Path(place))
            for method in ("grpo", "sft"):
                with rows.guarded(f"{name}, {method}"):
                    compare(bench, method, rows)


def sides_of(bench: Bench, method: str, rows: Rows) -> Iterator[Side]:
    """The sides that can be started here; a row says of each other what it needs."""
    what = f"{bench.name}, {method.upper()}"
    yield bench.assay(method)
    if method == "grpo" and installed(environment_for("vllm")) is not None:
        yield bench.assay(method, sampler="vllm")
    elif method == "grpo":
        rows.left_out(f"{what}, Assay with vLLM", "needs `assay engines add vllm`")
    if not has(bench.setup.trl, "trl"):
        rows.left_out(f"{what}, TRL", "needs trl==1.16.0, here or in the Python of --trl")
        return
    yield bench.trl(method)
    if method == "grpo" and bench.setup.device == "cuda":
        if has(bench.setup.trl, "vllm"):
            yield bench.trl(method, vllm=True)
        else:
            rows.left_out(f"{what}, TRL with vLLM", "needs vllm beside trl")


def has(python: str | None, package: str) -> bool:
    """Whether a Python has a package; another than this one is asked by its folder."""
    if python is None:
        return importlib.util.find_spec(package) is not None
    return any(Path(python).parents[1].glob(f"lib/python*/site-packages/{package}/__init__.py"))


def compare(bench: Bench, method: str, rows: Rows) -> None:
    """One row for each side."""
    sides = list(sides_of(bench, method, rows))
    config = AutoConfig.from_pretrained(bench.folder)
    together = 16 * model_shape(config).parameters * len(sides) <= len(sides) * TOGETHER
    limits = Limits(seconds=40, least=3, most=5)
    for part in [sides] if together else [[side] for side in sides]:
        with running(part) as (workers, failures):
            measured = measure_in_turn(
                workers, failures, limits, lambda name, _, w=workers: w[name].ask("step")
            )
        report(bench, method, measured, rows)


def report(bench: Bench, method: str, measured: Measured, rows: Rows) -> None:
    """Rows of what was measured, and of what failed."""
    for name, done in measured.steps.items():
        found = medians(done)
        tokens = found["completion_tokens"] if method == "grpo" else found["tokens"]
        words = [f"{found['wall']:.2f} s", f"{tokens / found['wall']:,.0f} tokens/s"]
        if method == "grpo":
            words.append(f"sampling {found['generation_wall']:.2f} s")
        words.append(f"peak {found['peak_bytes'] / GIB:.2f} GiB")
        rows.measured(f"{bench.name}, {method.upper()}, {name}", ", ".join(words))
    for name, why in measured.failures.items():
        lines = why.strip().splitlines()
        rows.failed(f"{bench.name}, {method.upper()}, {name}", f"{lines[0]}: {lines[-1]}")


def memory(setup: Setup, rows: Rows) -> None:
    """Peak of an SFT and a GRPO step over the formula, which is to hold with its headroom."""
    with tempfile.TemporaryDirectory() as place:
        for name in names_of(setup):
            bench = Bench(setup, name, whole_folder(name, Path(place), setup), Path(place))
            for method in ("sft", "grpo"):
                with rows.guarded(f"{name}, {method}"), bench.assay(method).start() as worker:
                    check_memory(bench, method, worker, rows)


def check_memory(bench: Bench, method: str, worker: Worker, rows: Rows) -> None:
    """The second step counts: the first makes the optimizer's moments."""
    shape = model_shape(AutoConfig.from_pretrained(bench.folder))
    worker.ask("step")
    imports = worker.ready["import_bytes"] if bench.setup.device == "cpu" else 0
    peak = worker.ask("step")["peak_bytes"] - imports
    bf16 = bench.load.grpo.dtype == "bf16"
    micros: Sequence[tuple[int, int]] = worker.ask("batch_tokens")["micro_batches"]
    loads = [StepLoad(tokens, logit_rows=scored, bf16=bf16) for tokens, scored in micros]
    formula = max(estimate_memory(shape, load).total for load in loads)
    what = f"{bench.name}, {method.upper()}: {peak / GIB:.2f} GiB over the formula's"
    if bench.setup.small:
        rows.measured(f"{what} {formula / GIB:.3f}", f"{peak / formula:.2f}")
    else:
        rows.check(f"{what} {formula / GIB:.2f}", peak / formula, HEADROOM)
