"""One SFT update of Assay against TRL's SFTTrainer, without and with TRL's packing.

    python benchmarks/sft_vs_trl.py core    SmolLM2, fp32 and bf16, one thread
    python benchmarks/sft_vs_trl.py full    the small random Qwen3 and two threads too
    python benchmarks/sft_vs_trl.py cell --model qwen3 --dtype fp32

The documents are BFCL's live_simple rows (`sft_documents`), the same for all; each side shuffles
them in its own way, so what counts is CPU-seconds per token that is not padding. Workers take
turns step by step, Assay and one of TRL 1.16 and TRL 1.12, padded and packed. Weights, AdamW at
1e-5 without decay and clipping at 1 are the same; gradient checkpointing is off; the update holds
16 documents, with TRL's packing packed rows of about as many tokens.

TRL without packing gets its best micro-batch, TRL with packing its best row length, Assay its best
micro-batch budget, or a smaller one within 3 % of it, each tried once on 16 documents; a worker
above 75 % of memory does not fit.

Before any timing the loss and gradients of documents as TRL batches them, padded and packed, must
equal Assay's of the same documents: in fp32 the loss within 1e-5, each gradient within 1e-3 of its
norm. That packed gradients are equal says that TRL's packing keeps documents apart on SDPA.

A cell's result is a file under `benchmarks/results/sft`; a cell that has one is skipped.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cells import Step, interleaved, kept_choices, measure_missing, medians, say, smallest_good
from environments import environment
from grpo_equality import LOSS_TOLERANCE, NotEqual, gradient_errors
from sft_documents import documents
from sft_shapes import (
    DOCUMENTS,
    MICRO_BATCHES,
    MODES,
    PACKED_LENGTHS,
    Document,
    SftCell,
    cell_record,
    core_cells,
    full_cells,
)
from small_models import model_folder
from workers import Worker, WorkerDied, machine

from assay.models.precision import bf16_hardware

BENCHMARK = "sft"
PEERS = ("trl-1.16", "trl-1.12")
SIDES = tuple((peer, mode) for peer in PEERS for mode in MODES)
BUDGETS = (2048, 4096, 8192)
GRADIENT_TOLERANCE = 1e-3
"""Of a gradient's norm. Over documents of 400 tokens TRL 1.12's padded fp32 gradient was 2.6e-4
from Assay's on the weight of one norm layer, and no other was farther; the loss was 6e-6 apart."""
SECONDS = {"core": 240, "full": 900, "cell": 240}
"""Wall seconds that a cell's rounds should not exceed."""
UNCUT = 1024
"""TRL's max_length without packing: longer than any document."""


@dataclass(frozen=True)
class Setup:
    """What every worker of a cell is started with."""

    cell: SftCell
    folder: Path
    documents: Path
    mean_tokens: float
    """Of a document."""

    def settings(self) -> dict[str, Any]:
        """The settings that both kinds read."""
        shared = {"model": str(self.folder), "documents": str(self.documents)}
        return {"cell": cell_record(self.cell), **shared}

    def assay(self) -> Worker:
        """A worker of Assay's, in this environment."""
        return Worker(Path(sys.executable), "sft_worker.py", self.settings(), self.cell.threads)

    def trl(self, peer: str, mode: str, rows: int, length: int) -> Worker:
        """A worker of TRL's, in its own environment."""
        window = DOCUMENTS // rows
        if mode == "packed":
            window = max(1, round(DOCUMENTS * self.mean_tokens / length))
        own = {"mode": mode, "rows": rows, "length": length, "window": window}
        settings = {**self.settings(), **own}
        return Worker(environment(peer), "sft_trl_worker.py", settings, self.cell.threads)


def first_setup(cell: SftCell, folder: Path) -> Setup:
    """The setup, its documents written into `folder`."""
    model = model_folder(cell.model)
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    found = documents(vocabulary)
    file = folder / "documents.json"
    file.write_text(json.dumps(found))
    return Setup(cell, model, file, sum(map(document_tokens, found)) / len(found))


def document_tokens(document: Document) -> int:
    """Tokens of a document."""
    return sum(map(len, document))


def candidates(mode: str) -> list[dict[str, int]]:
    """What TRL tries in a mode."""
    if mode == "packed":
        return [{"rows": 1, "length": length} for length in PACKED_LENGTHS]
    return [{"rows": rows, "length": UNCUT} for rows in MICRO_BATCHES]


def try_all(worker: Worker, options: list[dict[str, int]]) -> dict[str, Any]:
    """The best option by CPU-seconds per token, and all that were tried up to one that fails."""
    tried: list[dict[str, Any]] = []
    try:
        with worker:
            worker.ask("trial", **options[0])
            for option in options:
                tried.append(dict(option))
                tried[-1].update(worker.ask("trial", **option))
    except WorkerDied as reason:
        if not tried:
            raise
        tried[-1]["does_not_fit"] = str(reason).splitlines()[0]
    best = smallest_good(tried, "cpu_per_token")
    return {**{key: best[key] for key in options[0]}, "tried": tried}


def choose(setup: Setup) -> dict[str, dict[str, Any]]:
    """The best micro-batch of every side."""
    budgets = [{"tokens": budget} for budget in BUDGETS]
    choices = {"assay": try_all(setup.assay(), budgets)}
    for peer, mode in SIDES:
        worker = setup.trl(peer, mode, MICRO_BATCHES[0], UNCUT)
        choices[f"{peer} {mode}"] = try_all(worker, candidates(mode))
    return choices


def check_equality(setup: Setup, workers: Mapping[str, Worker], side: str) -> dict[str, Any]:
    """Differences of loss and gradients; raises NotEqual in fp32 above a tolerance."""
    folder = setup.documents.parent
    theirs = workers[side].ask("check", gradients=str(folder / "trl.pt"))
    ours = workers["assay"].ask(
        "check", documents=theirs["documents"], gradients=str(folder / "assay.pt")
    )
    errors = gradient_errors(folder / "trl.pt", folder / "assay.pt")
    worst = max(errors, key=errors.__getitem__)
    found = {
        "documents": len(theirs["documents"]),
        "loss": theirs["loss"],
        "loss_difference": abs(theirs["loss"] - ours["loss"]),
        "gradient_error": errors[worst],
        "worst_parameter": worst,
    }
    far = found["loss_difference"] > LOSS_TOLERANCE
    if side.endswith("packed") and len(theirs["documents"]) < 2:
        raise NotEqual(f"{side}: one document says nothing about packing")
    if setup.cell.dtype == "fp32" and (far or errors[worst] > GRADIENT_TOLERANCE):
        raise NotEqual(f"{side}: {found}")
    return found


def measure(cell: SftCell, seconds: float) -> dict[str, Any]:
    """The result of a cell."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        setup = first_setup(cell, folder)
        before = machine()
        choices = kept_choices(BENCHMARK, cell.name, lambda: choose(setup))
        for side, choice in choices.items():
            say(f"  {side}: " + ", ".join(f"{v} {k}" for k, v in choice.items() if k != "tried"))
        pairs = {
            f"{peer} {mode}": measure_pair(setup, choices, peer, mode, seconds / len(SIDES))
            for peer, mode in SIDES
        }
    steps = {"assay": [step for pair in pairs.values() for step in pair["steps"]["assay"]]}
    steps |= {side: pair["steps"][side] for side, pair in pairs.items()}
    return {
        "cell": cell_record(cell),
        "machine": before,
        "versions": {k: v for pair in pairs.values() for k, v in pair["versions"].items()},
        "mean_document_tokens": setup.mean_tokens,
        "choices": choices,
        "equality": {side: pair["equality"] for side, pair in pairs.items()},
        "steps": steps,
        "medians": {side: medians(rounds) for side, rounds in steps.items()},
    }


def measure_pair(
    setup: Setup, choices: Mapping[str, Any], peer: str, mode: str, seconds: float
) -> dict[str, Any]:
    """Equality and rounds of Assay and one other side: five trainers at once fill 24 GiB."""
    side = f"{peer} {mode}"
    choice = choices[side]
    with ExitStack() as stack:
        workers = {
            "assay": stack.enter_context(setup.assay()),
            side: stack.enter_context(setup.trl(peer, mode, choice["rows"], choice["length"])),
        }
        workers["assay"].ask("use", tokens=choices["assay"]["tokens"])
        return {
            "equality": check_equality(setup, workers, side),
            "steps": interleaved(workers, seconds, finish),
            "versions": {name: worker.ready["versions"] for name, worker in workers.items()},
        }


def finish(name: str, step: Step) -> str:
    """Seconds per token, added to the step."""
    for clock in ("cpu", "wall"):
        step[f"{clock}_per_token"] = step[clock] / step["tokens"]
    return milli(step)


def milli(step: Mapping[str, float]) -> str:
    """Thousandths of a CPU-second per token."""
    return f"{1000 * step['cpu_per_token']:.3f}"


def summary(result: Mapping[str, Any]) -> str:
    """Medians of a cell and what they are of Assay's."""
    ours = result["medians"]["assay"]["cpu_per_token"]
    return "\n".join(
        f"  {name:16} {milli(values)} CPU-ms per token ({values['cpu_per_token'] / ours:.2f}x)  "
        f"{values['peak_bytes'] / 2**30:.2f} GiB"
        for name, values in result["medians"].items()
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["core", "full", "cell"])
    parser.add_argument("--model", choices=["smollm2", "qwen3"], default="qwen3")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    given = vars(parser.parse_args())
    what = given.pop("what")
    cells = {"core": core_cells, "full": full_cells}.get(what, lambda: [SftCell(**given)])()
    runnable = [cell for cell in cells if cell.dtype == "fp32" or bf16_hardware("cpu")]
    measure_missing(BENCHMARK, runnable, lambda cell: measure(cell, SECONDS[what]), summary)


if __name__ == "__main__":
    main()
