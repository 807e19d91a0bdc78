"""One GRPO step of Assay against TRL 1.16 and TRL 1.12, on the same weights and prompts.

    python benchmarks/grpo_vs_trl.py core    SmolLM2 at 32/64, 256/32 and 1024/64, two threads
    python benchmarks/grpo_vs_trl.py full    the whole grid of `shapes`
    python benchmarks/grpo_vs_trl.py cell --model qwen3 --prompt 32 --completion 8

Three workers, one process each in its own environment, take turns step by step (Assay, TRL 1.16,
TRL 1.12, and again). All three have the same weights, token ids of prompts, temperature 1, AdamW
at 1e-6 without decay, clipping at 1, 2 prompts x 8 completions, one update per rollout, no
gradient checkpointing and no KL. Every group must carry signal, or the cell fails. A step's
CPU-seconds count all threads of the process. What lies inside a step is said in `trl_worker` and
`grpo_worker`; before any timing `grpo_equality` compares loss and gradients.

TRL gets the smallest micro-batch whose CPU-seconds per row are within 3 % of the least, among
those that fit the machine (a worker above 75 % of memory does not fit), and the faster of two
caches, each tried once. The search goes up from the smallest and ends where a larger one is dearer;
with long rows the largest is tried as well, except in the core. All of that stands in the result.
Assay runs with its default micro-batch budget. Cells in bf16 are left out on a processor without
bf16 products.

A cell's result is a file under `benchmarks/results/grpo`; a cell that has one is skipped, except
by `core`, which measures its cells again.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cells import (
    MOST_ROUNDS,
    WORSE,
    Step,
    interleaved,
    kept_choices,
    measure_missing,
    medians,
    say,
    smallest_good,
)
from environments import environment
from grpo_equality import check_equality
from shapes import (
    CACHES,
    MAX_STEPS,
    MICRO_BATCHES,
    MODELS,
    PROMPTS,
    ROWS,
    WARM_UP_PROMPT,
    Cell,
    cell_record,
    core_cells,
    full_cells,
)
from small_models import model_folder
from workers import Worker, WorkerDied, machine

from assay.models.precision import bf16_hardware

BENCHMARK = "grpo"
PEERS = ("trl-1.16", "trl-1.12")
TRIAL_TOKENS = 512
"""A micro-batch is tried on about as many tokens, and on one micro-batch at least."""
SECONDS = {"core": 60, "full": 900, "cell": 240}
"""Wall seconds that a cell's rounds should not exceed."""
LONG_ROW = 1024
"""From so many tokens a row on, the largest micro-batch is tried in any case: memory decides."""


@dataclass(frozen=True)
class Setup:
    """What every worker of a cell is started with."""

    cell: Cell
    folder: Path
    end: int | None = None
    """The token that ends a completion; None for forced lengths."""
    largest: bool = True
    """Whether the largest micro-batch is tried with long rows, which shows what fits."""

    def assay(self) -> Worker:
        """A worker of Assay's, in this environment."""
        return Worker(Path(sys.executable), "grpo_worker.py", self.settings(), self.cell.threads)

    def trl(self, peer: str, rows: int, cache: str) -> Worker:
        """A worker of TRL's, in its own environment."""
        settings = {**self.settings(), "rows": rows, "cache": cache}
        return Worker(environment(peer), "trl_worker.py", settings, self.cell.threads)

    def settings(self) -> dict[str, Any]:
        """The settings that both kinds read."""
        return {"cell": cell_record(self.cell), "model": str(self.folder), "end": self.end}


def choose_end(setup: Setup) -> int | None:
    """For natural endings, the token that comes nearest to twice per full completion."""
    if setup.cell.endings == "forced":
        return None
    with setup.assay() as worker:
        sampled = [t for tokens in worker.ask("sample")["completions"] for t in tokens]
    wanted = 2 * len(sampled) / setup.cell.completion
    counts = Counter(sampled)
    return min(counts, key=lambda token: (abs(counts[token] - wanted), token))


def choose(setup: Setup) -> dict[str, Any]:
    """The settings of each TRL."""
    return {peer: choose_micro_batch(setup, peer) for peer in PEERS}


def choose_micro_batch(setup: Setup, peer: str) -> dict[str, Any]:
    """TRL's micro-batch and cache: what was tried, and the ones that are used."""
    tried: list[dict[str, Any]] = []
    caches: dict[str, dict[str, Any]] = {}
    try:
        with setup.trl(peer, ROWS, CACHES[0]) as worker:
            # The first of each kind makes what later ones reuse: it is not counted.
            worker.ask("cache", kind=CACHES[0], longest=WARM_UP_PROMPT)
            caches = {kind: worker.ask("cache", kind=kind) for kind in CACHES}
            worker.ask("micro", rows=MICRO_BATCHES[0], count=1, longest=WARM_UP_PROMPT)
            for rows in MICRO_BATCHES:
                if worth_trying(setup, rows, tried):
                    tried.append({"rows": rows})
                    count = trials(setup.cell, rows)
                    tried[-1].update(worker.ask("micro", rows=rows, count=count))
    except WorkerDied as reason:
        if not tried:
            raise
        tried[-1]["does_not_fit"] = str(reason).splitlines()[0]
    best = smallest_good(tried, "cpu_per_row")
    return {
        "rows": best["rows"],
        "accumulation": ROWS // best["rows"],
        "cache": min(caches, key=lambda kind: caches[kind].get("cpu", float("inf"))),
        "tried": tried,
        "caches": caches,
    }


def worth_trying(setup: Setup, rows: int, tried: Sequence[Mapping[str, Any]]) -> bool:
    """Larger micro-batches only got dearer once one did; the largest also shows what fits."""
    costs = [one["cpu_per_row"] for one in tried]
    long = setup.cell.prompt + setup.cell.completion >= LONG_ROW
    largest = setup.largest and long and rows == MICRO_BATCHES[-1]
    return largest or not costs or costs[-1] <= WORSE * min(costs)


def trials(cell: Cell, rows: int) -> int:
    """How many micro-batches to try: about TRIAL_TOKENS, a step's worth at most."""
    tokens = rows * (cell.prompt + cell.completion)
    return min(ROWS // rows, -(-TRIAL_TOKENS // tokens))


def measure(cell: Cell, what: str) -> dict[str, Any]:
    """The result of a cell, as one of `core` or `full` or as a `cell` alone."""
    setup = Setup(cell, model_folder(cell.model), largest=what != "core")
    setup = replace(setup, end=choose_end(setup))
    before = machine()
    choices = kept_choices(BENCHMARK, cell.name, lambda: choose(setup))
    say(f"  {chosen(choices)}")
    with ExitStack() as stack:
        workers = {"assay": stack.enter_context(setup.assay())}
        for peer in PEERS:
            choice = choices[peer]
            worker = setup.trl(peer, choice["rows"], choice["cache"])
            workers[peer] = stack.enter_context(worker)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        equality = {
            peer: check_equality(cell, workers["assay"], workers[peer], folder) for peer in PEERS
        }
        steps = interleaved(workers, SECONDS[what], finish, min(MOST_ROUNDS, MAX_STEPS - 1))
        versions = {name: worker.ready["versions"] for name, worker in workers.items()}
    return {
        "cell": cell_record(cell),
        "machine": before,
        "versions": versions,
        "end": setup.end,
        "choices": choices,
        "equality": equality,
        "steps": steps,
        "medians": {name: medians(rounds) for name, rounds in steps.items()},
    }


def finish(name: str, step: Step) -> str:
    """A step's CPU-seconds; RuntimeError where a group had no signal."""
    if step["groups_with_signal"] != PROMPTS:
        raise RuntimeError(f"{name}: {step['groups_with_signal']} groups with signal")
    return f"{step['cpu']:.2f}"


def chosen(choices: Mapping[str, Any]) -> str:
    """The choices in a line."""
    return "; ".join(f"{p}: {choices[p]['rows']} rows, {choices[p]['cache']} cache" for p in PEERS)


def summary(result: Mapping[str, Any]) -> str:
    """Medians of a cell and what they are of Assay's."""
    ours = result["medians"]["assay"]
    lines = []
    for name, values in result["medians"].items():
        ratio = values["cpu"] / ours["cpu"]
        lines.append(
            f"  {name:9} {values['cpu']:8.2f} CPU-s ({ratio:.2f}x; generation "
            f"{values['generation_cpu']:.2f}, update {values['update_cpu']:.2f})  "
            f"{values['wall']:.2f} s wall  {values['peak_bytes'] / 2**30:.2f} GiB"
        )
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["core", "full", "cell"])
    parser.add_argument("--model", choices=sorted(MODELS), default="qwen3")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--completion", type=int, default=8)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--endings", choices=["forced", "natural"], default="forced")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lora", action="store_true")
    given = vars(parser.parse_args())
    what = given.pop("what")
    cells = {"core": core_cells, "full": full_cells}.get(what, lambda: [Cell(**given)])()
    runnable = [cell for cell in cells if cell.dtype == "fp32" or bf16_hardware("cpu")]
    anew = what == "core"
    measure_missing(BENCHMARK, runnable, lambda cell: measure(cell, what), summary, anew=anew)


if __name__ == "__main__":
    main()
