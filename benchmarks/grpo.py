"""One GRPO step of Assay against TRL 1.16 and TRL 1.12, on the same weights and prompts.

    python -m benchmarks.grpo core    SmolLM2 at 32/64, 256/32 and 1024/64, two threads
    python -m benchmarks.grpo full    the whole grid of `shapes`
    python -m benchmarks.grpo cell model=qwen3 prompt=32 completion=8

All sides have the same weights, token ids of prompts, temperature 1, AdamW at 1e-6 without decay,
clipping at 1, 2 prompts x 8 completions, one update per rollout, no gradient checkpointing, no KL.

Before the timing TRL computes loss and gradients of a short rollout, and Assay those of the same
tokens: in fp32 loss and advantages must agree within 1e-5 and every gradient within 1e-4 of its
norm; in bf16, where both round, the differences are reported.

TRL gets the smallest micro-batch whose CPU-seconds per row are within 3 % of the least among those
that fit the memory, and the faster of two caches, each tried once; Assay has its default budget.
`core` measures its cells again, the others skip cells that have a result.
"""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import shapes
from benchmarks.driver import (
    MOST_ROUNDS,
    WORSE,
    Limits,
    Side,
    SideFailed,
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
from benchmarks.models import id_tokenizer, model_folder, vocabulary_of
from benchmarks.results import machine
from benchmarks.shapes import GrpoCell
from benchmarks.worker import Record

SUBJECT = "grpo"
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
TRIAL_TOKENS = 512
"""A micro-batch is tried on about as many tokens, and on one micro-batch at least."""
SECONDS = {"core": 60, "full": 900, "cell": 240}
"""Wall seconds that a cell's rounds should not exceed."""
LONG_ROW = 1024
"""From so many tokens a row on, the largest micro-batch is tried in any case: memory decides."""


class NotEqual(Exception):
    """Two sides do not compute the same thing; a comparison would mean nothing."""


@dataclass(frozen=True)
class Setup:
    """What every worker of a cell is started with."""

    cell: GrpoCell
    folder: Path
    """For the files that workers exchange."""
    end: int | None = None
    """The token that ends a completion; None for forced lengths."""
    largest: bool = True
    """Whether the largest micro-batch is tried with long rows, which shows what fits."""

    def settings(self) -> Record:
        """The settings that both workers read."""
        model = str(model_folder(self.cell.model))
        return {"method": SUBJECT, "cell": asdict(self.cell), "model": model, "end": self.end}

    def assay(self) -> Side:
        """Assay's side."""
        return Side("assay", "benchmarks.assay_worker", self.settings(), self.cell.threads)

    def trl(self, peer: str, rows: int, cache: str) -> Side:
        """TRL's side, with a tokenizer that ends completions where Assay does."""
        vocabulary = vocabulary_of(self.cell.model)
        tokenizer = self.folder / "tokenizer"
        end = vocabulary if self.end is None else self.end
        id_tokenizer(vocabulary, end).save_pretrained(tokenizer)
        settings = {"tokenizer": str(tokenizer), "rows": rows, "cache": cache, **self.settings()}
        return Side(peer, "benchmarks.trl_worker", settings, self.cell.threads, peer)


def end_token(setup: Setup) -> int | None:
    """For natural endings, the token that comes nearest to twice per full completion.

    A model's own end token nearly never comes within 64 tokens of an arbitrary prompt.
    """
    if setup.cell.endings == "forced":
        return None
    with setup.assay().start() as worker:
        sampled = [t for tokens in worker.ask("sample")["completions"] for t in tokens]
    wanted = 2 * len(sampled) / setup.cell.completion
    counts = Counter(sampled)
    return min(counts, key=lambda token: (abs(counts[token] - wanted), token))


def choose(setup: Setup) -> Record:
    """The settings of each TRL; of one that fails, why."""
    failures: dict[str, str] = {}
    found: Record = {}
    for peer in shapes.PEERS:
        with recorded(failures):
            found[peer] = choose_micro_batch(setup, peer)
    return found | {peer: {"failed": why} for peer, why in failures.items()}


def choose_micro_batch(setup: Setup, peer: str) -> Record:
    """TRL's micro-batch and cache: what was tried, and the ones that are used."""
    with setup.trl(peer, setup.cell.rows, shapes.CACHES[0]).start() as worker:
        # The first call makes what later ones reuse: it is not counted.
        worker.ask("cache", kind=shapes.CACHES[0], longest=shapes.WARM_UP_PROMPT)
        caches = {kind: worker.ask("cache", kind=kind) for kind in shapes.CACHES}
        options: list[Record] = [
            {"rows": rows, "count": trials(setup.cell, rows)} for rows in shapes.MICRO_BATCHES
        ]
        worth = partial(worth_trying, setup)
        tried = try_options(worker, "micro", options, "cpu_per_row", worth)
    best = smallest_good(tried, "cpu_per_row")
    return {
        "rows": best["rows"],
        "accumulation": setup.cell.rows // best["rows"],
        "cache": min(caches, key=lambda kind: caches[kind].get("cpu", float("inf"))),
        "tried": tried,
        "caches": caches,
    }


def worth_trying(setup: Setup, option: Record, tried: Sequence[Record]) -> bool:
    """Larger micro-batches only got dearer once one did; the largest also shows what fits."""
    costs = [one["cpu_per_row"] for one in tried]
    long = setup.cell.prompt + setup.cell.completion >= LONG_ROW
    largest = setup.largest and long and option["rows"] == shapes.MICRO_BATCHES[-1]
    return largest or not costs or costs[-1] <= WORSE * min(costs)


def trials(cell: GrpoCell, rows: int) -> int:
    """How many micro-batches to try: about TRIAL_TOKENS, a step's worth at most."""
    tokens = rows * (cell.prompt + cell.completion)
    return min(cell.rows // rows, -(-TRIAL_TOKENS // tokens))


def check_equality(setup: Setup, assay: Worker, trl: Worker) -> Record:
    """Differences of loss, advantages and gradients; NotEqual in fp32 above a tolerance."""
    adapter, gradients = "", str(setup.folder / "gradients.pt")
    if setup.cell.lora:
        adapter = str(setup.folder / "adapter.pt")
        assay.ask("adapter", file=adapter)
    theirs = trl.ask("check", gradients=gradients, adapter=adapter)
    ours = assay.ask("check", completions=theirs["completions"], gradients=gradients)
    pairs = zip(theirs["advantages"], ours["advantages"], strict=True)
    found = {
        "loss": theirs["loss"],
        "loss_difference": abs(theirs["loss"] - ours["loss"]),
        "advantage_difference": max(abs(a - b) for a, b in pairs),
        **{key: ours[key] for key in ("gradient_error", "worst_parameter", "parameters")},
    }
    far = max(found["loss_difference"], found["advantage_difference"])
    within = far <= LOSS_TOLERANCE and found["gradient_error"] <= GRADIENT_TOLERANCE
    if setup.cell.dtype == "fp32" and not within:
        raise NotEqual(str(found))
    return found


def one_step(cell: GrpoCell, workers: Mapping[str, Worker], name: str, number: int) -> Record:
    """A side's step; SideFailed where a group of a counted one has no reward variance."""
    step = workers[name].ask("step")
    if number and step["groups_with_signal"] != cell.prompts:
        raise SideFailed(name, f"{step['groups_with_signal']} groups with reward variance")
    return step


def measure(cell: GrpoCell, what: str) -> Record:
    """The result of a cell, measured as one of `core` or `full` or as a `cell` alone."""
    with tempfile.TemporaryDirectory() as name:
        setup = Setup(cell, Path(name), largest=what != "core")
        setup = replace(setup, end=end_token(setup))
        before = machine()
        choices = kept_choices(SUBJECT, cell.name, lambda: choose(setup))
        usable = {peer: chosen for peer, chosen in choices.items() if "failed" not in chosen}
        peers = [setup.trl(peer, c["rows"], c["cache"]) for peer, c in usable.items()]
        with running([setup.assay(), *peers]) as (workers, failures):
            failures |= {p: c["failed"] for p, c in choices.items() if p not in usable}
            equality: Record = {}
            for peer in usable:
                with recorded(failures):
                    if {peer, "assay"} <= set(workers):
                        equality[peer] = check_equality(setup, workers["assay"], workers[peer])
            limits = Limits(SECONDS[what], most=min(MOST_ROUNDS, shapes.GRPO_STEPS - 1))
            measured = measure_in_turn(
                workers, failures, limits, lambda side, n: one_step(cell, workers, side, n)
            )
    kept = {"end": setup.end, "choices": choices, "equality": equality}
    return {"cell": asdict(cell), "machine": before, **kept, **measured.record()}


if __name__ == "__main__":
    grids = {"core": shapes.grpo_core, "full": shapes.grpo_full}
    what, cells = chosen_cells(__doc__, GrpoCell, grids)
    measure_missing(
        SUBJECT, cells, lambda cell: measure(cell, what), summary_lines, anew=what == "core"
    )
