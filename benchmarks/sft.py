"""One SFT update of Assay against TRL's SFTTrainer, without and with TRL's packing.

    python -m benchmarks.sft core    SmolLM2, fp32 and bf16, one thread
    python -m benchmarks.sft full    the small random Qwen3 and two threads too
    python -m benchmarks.sft cell model=qwen3 dtype=fp32
    python -m benchmarks.sft cell model=smollm2 side="trl-1.16 packed"     that side of TRL's alone

The documents (`models.documents`) are the same for all; each side shuffles them in its own way, so
the cost is per token that is not padding. Assay is measured in turn with one TRL at a time, since
five trainers do not fit the memory. Weights, AdamW at 1e-5 without decay and clipping at 1 are the
same; an update holds 16 documents, with TRL's packing packed rows of about as many tokens.

TRL without packing gets its best micro-batch, TRL with packing its best row length, or a smaller
one within 3 % of it, Assay likewise its best micro-batch budget of those that take no more memory
than each TRL's best; all are tried once on 16 documents.

Before any timing loss and gradients of the same documents must be equal: in fp32 the loss within
1e-5, each gradient within 1e-3 of its norm. Equal packed gradients show that TRL keeps documents
apart.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import shapes
from benchmarks.driver import (
    Limits,
    Measured,
    Side,
    Worker,
    chosen_cells,
    kept_choices,
    measure_in_turn,
    measure_missing,
    recorded,
    running,
    smallest_good,
    summary_lines,
    try_options,
)
from benchmarks.grpo import LOSS_TOLERANCE, NotEqual
from benchmarks.models import documents, id_tokenizer, model_folder, vocabulary_of
from benchmarks.results import machine
from benchmarks.shapes import SftCell
from benchmarks.worker import Record

SUBJECT = "sft"
BUDGETS = [{"tokens": tokens} for tokens in (512, 1024, 2048, 4096, 8192)]
OPTIONS: Mapping[str, list[Record]] = {
    "padded": [{"rows": rows, "length": shapes.UNCUT} for rows in shapes.MICRO_BATCHES],
    "packed": [{"rows": 1, "length": length} for length in shapes.PACKED_LENGTHS],
}
"""What TRL tries in each mode."""
COST = "cpu_per_token"
GRADIENT_TOLERANCE = 1e-3
"""Of a gradient's norm. Over documents of 400 tokens TRL 1.12's padded fp32 gradient was 2.6e-4
from Assay's on the weight of one norm layer, and no other was farther; the loss was 6e-6 apart."""
SECONDS = {"core": 240, "full": 900, "cell": 240}
"""Wall seconds that a cell's rounds should not exceed."""


@dataclass(frozen=True)
class Setup:
    """What every worker of a cell is started with."""

    cell: SftCell
    folder: Path
    """For the files that workers exchange, the documents among them."""
    mean_tokens: float
    """Of a document."""

    def settings(self) -> Record:
        """The settings that both workers read."""
        return {
            "method": SUBJECT,
            "cell": asdict(self.cell),
            "model": str(model_folder(self.cell.model)),
            "documents": str(self.folder / "documents.json"),
            "batch": shapes.DOCUMENTS,
        }

    def assay(self) -> Side:
        """Assay's side."""
        return Side("assay", "benchmarks.assay_worker", self.settings(), self.cell.threads)

    def trl(self, side: str, rows: int, length: int) -> Side:
        """A side of TRL's, named by its version and mode."""
        peer, _, mode = side.partition(" ")
        window = shapes.DOCUMENTS // rows
        if mode == "packed":
            window = max(1, round(shapes.DOCUMENTS * self.mean_tokens / length))
        own = {"mode": mode, "rows": rows, "length": length, "window": window}
        settings = {**self.settings(), **own, "tokenizer": str(self.folder / "tokenizer")}
        return Side(side, "benchmarks.trl_worker", settings, self.cell.threads, peer)


def prepared(cell: SftCell, folder: Path) -> Setup:
    """The setup, its documents and tokenizer written into `folder`."""
    vocabulary = vocabulary_of(cell.model)
    id_tokenizer(vocabulary, vocabulary).save_pretrained(folder / "tokenizer")
    found = documents(vocabulary)
    (folder / "documents.json").write_text(json.dumps(found))
    tokens = sum(len(prompt) + len(answer) for prompt, answer in found)
    return Setup(cell, folder, tokens / len(found))


def choose(setup: Setup) -> Record:
    """The best micro-batch of every side; of one that fails, why."""
    failures: dict[str, str] = {}
    found: Record = {}
    every = [f"{peer} {mode}" for peer in shapes.PEERS for mode in shapes.MODES]
    most = float("inf")
    for side in [setup.cell.side] if setup.cell.side else every:
        options = OPTIONS[side.partition(" ")[2]]
        first = setup.trl(side, shapes.MICRO_BATCHES[0], shapes.UNCUT)
        with recorded(failures), first.start() as worker:
            tried = try_options(worker, "trial", options, COST)
            best = smallest_good(tried, COST)
            found[side] = {"rows": best["rows"], "length": best["length"], "tried": tried}
            most = min(most, best["peak_bytes"])
    with recorded(failures), setup.assay().start() as worker:
        found["assay"] = own_choice(try_options(worker, "trial", BUDGETS, COST), most)
    return found | {side: {"failed": why} for side, why in failures.items()}


def own_choice(tried: list[Record], most: float) -> Record:
    """Assay's budget: the best that takes no more than `most` bytes, else the smallest."""
    fitting = [one for one in tried if one.get("peak_bytes", most + 1) <= most]
    return {"tokens": smallest_good(fitting or tried[:1], COST)["tokens"], "tried": tried}


def check_equality(setup: Setup, workers: Mapping[str, Worker], side: str) -> Record:
    """Differences of loss and gradients; raises NotEqual in fp32 above a tolerance."""
    gradients = str(setup.folder / "gradients.pt")
    theirs = workers[side].ask("check", gradients=gradients)
    ours = workers["assay"].ask("check", documents=theirs["documents"], gradients=gradients)
    found = {
        "documents": len(theirs["documents"]),
        "loss": theirs["loss"],
        "loss_difference": abs(theirs["loss"] - ours["loss"]),
        **{key: ours[key] for key in ("gradient_error", "worst_parameter")},
    }
    if side.endswith("packed") and found["documents"] < 2:
        raise NotEqual(f"{side}: one document shows nothing about packing")
    within = found["loss_difference"] <= LOSS_TOLERANCE
    within = within and found["gradient_error"] <= GRADIENT_TOLERANCE
    if setup.cell.dtype == "fp32" and not within:
        raise NotEqual(f"{side}: {found}")
    return found


def one_step(workers: Mapping[str, Worker], name: str) -> Record:
    """A side's step with its seconds per token."""
    step = workers[name].ask("step")
    return step | {f"{clock}_per_token": step[clock] / step["tokens"] for clock in ("cpu", "wall")}


def measure_pair(
    setup: Setup, choices: Record, side: str, seconds: float
) -> tuple[Measured, Record]:
    """Rounds of Assay and one other side, and their equality."""
    equality: Record = {}
    chosen = choices[side]
    sides = [setup.assay(), setup.trl(side, chosen["rows"], chosen["length"])]
    with running(sides) as (workers, failures):
        with recorded(failures):
            workers["assay"].ask("use", tokens=choices["assay"]["tokens"])
        if len(workers) == len(sides) and not failures:
            with recorded(failures):
                equality[side] = check_equality(setup, workers, side)
        measured = measure_in_turn(
            workers, failures, Limits(seconds), lambda name, _: one_step(workers, name)
        )
    return measured, equality


def measure(cell: SftCell, seconds: float) -> Record:
    """The result of a cell."""
    with tempfile.TemporaryDirectory() as name:
        setup = prepared(cell, Path(name))
        before = machine()
        choices = kept_choices(SUBJECT, cell.name, lambda: choose(setup))
        failures = {side: c["failed"] for side, c in choices.items() if "failed" in c}
        usable = [side for side in choices if side not in {"assay", *failures}]
        pairs = [
            measure_pair(setup, choices, side, seconds / len(usable))
            for side in usable
            if "assay" not in failures
        ]
    steps: dict[str, list[Record]] = {}
    versions: dict[str, dict[str, str]] = {}
    equality: Record = {}
    for measured, equal in pairs:
        for side, taken in measured.steps.items():
            steps.setdefault(side, []).extend(taken)
        failures |= measured.failures
        versions |= measured.versions
        equality |= equal
    whole = {side: taken for side, taken in steps.items() if side not in failures}
    return {
        "cell": asdict(cell),
        "machine": before,
        "mean_document_tokens": setup.mean_tokens,
        "choices": choices,
        "equality": equality,
        **Measured(whole, failures, versions).record(),
    }


if __name__ == "__main__":
    grids = {"core": shapes.sft_core, "full": shapes.sft_full}
    what, cells = chosen_cells(__doc__, SftCell, grids)
    measure_missing(
        SUBJECT,
        cells,
        lambda cell: measure(cell, SECONDS[what]),
        lambda result: summary_lines(result, COST),
    )
