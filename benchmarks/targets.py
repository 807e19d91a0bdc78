"""What the benchmarks are meant to show, beside what they show.

A target stands here as it was set, whatever came of it: it is reached, missed, or not run.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import lab_book
from cells import load_results
from results import markdown, processor_of, threads_of

Result = Mapping[str, Any]
PEERS = {"trl-1.16": "TRL 1.16", "trl-1.12": "TRL 1.12"}


@dataclass(frozen=True)
class Target:
    """A number that should be at least (or at most) so large."""

    what: str
    wanted: float
    found: Callable[[], float | None]
    """The number; None where its cell was not run."""
    unit: str = "x"
    """`x` for a ratio, `%` for a share, `s` for seconds."""
    at_most: bool = False

    def row(self) -> list[str]:
        """The target, the result and the verdict."""
        value = self.found()
        wanted = f"at {'most' if self.at_most else 'least'} {self.written(self.wanted, 0)}"
        if value is None:
            return [self.what, wanted, "–", "not run"]
        reached = value <= self.wanted if self.at_most else value >= self.wanted
        return [self.what, wanted, self.written(value, 1), "reached" if reached else "**missed**"]

    def written(self, value: float, more: int) -> str:
        """The number with its unit; ratios and seconds with `more` more digits."""
        return f"{value:.0%}" if self.unit == "%" else f"{value:.{1 + more}f}{self.unit}"


def speedups(result: Result, peer: str, key: str = "cpu") -> float:
    """The median over rounds of a peer's number over Assay's of the same round."""
    pairs = zip(result["steps"]["assay"], result["steps"][peer], strict=True)
    return statistics.median(theirs[key] / ours[key] for ours, theirs in pairs)


def grpo_cells(prompt: int, completion: int) -> list[Result]:
    """SmolLM2 in fp32 with forced lengths, at this shape, on any machine."""
    wanted = {"model": "smollm2", "prompt": prompt, "completion": completion, "dtype": "fp32"}
    wanted |= {"endings": "forced", "lora": False}
    return [r for r in load_results("grpo") if wanted.items() <= r["cell"].items()]


def grpo_targets(prompt: int, completion: int, peer: str, wanted: float) -> Iterator[Target]:
    """How much less CPU time a GRPO step is to take than a peer's, on each processor measured."""
    what = f"GRPO step against {PEERS[peer]}, {prompt}/{completion}, fp32, CPU-seconds"
    measured = grpo_cells(prompt, completion)
    for result in measured:
        where = f"{processor_of(result)}, {threads_of(result)}"
        yield Target(f"{what}, {where}", wanted, partial(speedups, result, peer))
    if not measured:
        yield Target(what, wanted, lambda: None)


def slowest_cell() -> float | None:
    """The smallest speedup over any peer in any measured cell."""
    ratios = [speedups(r, peer) for r in load_results("grpo") for peer in PEERS]
    return min(ratios, default=None)


def memory_share(peer: str) -> Callable[[], float | None]:
    """Assay's peak memory over a peer's at 1024/64."""

    def found() -> float | None:
        peaks = [result["medians"] for result in grpo_cells(1024, 64)]
        shares = [m["assay"]["peak_bytes"] / m[peer]["peak_bytes"] for m in peaks]
        return max(shares, default=None)

    return found


def rollout_speedup(prompts: int, dtype: str, *peers: str) -> Callable[[], float | None]:
    """Assay's tokens per CPU-second over the fastest of the peers', groups of 8, 64/32."""

    def found() -> float | None:
        wanted = {"prompts": prompts, "group": 8, "prompt": 64, "dtype": dtype, "threads": 1}
        factors = []
        for result in load_results("rollout"):
            if wanted.items() <= result["cell"].items():
                rates = {n: e.get("tokens_per_cpu_second") for n, e in result["engines"].items()}
                theirs = max((rates.get(peer) or 0.0 for peer in peers), default=0.0)
                factors += [rates["Assay"] / theirs] if theirs and rates["Assay"] else []
        return min(factors, default=None)

    return found


def sft_speedup(mode: str, dtype: str) -> Callable[[], float | None]:
    """The least ratio of a peer's CPU time per token over Assay's, SmolLM2."""

    def found() -> float | None:
        wanted = {"model": "smollm2", "dtype": dtype, "threads": 1}
        factors = []
        for result in load_results("sft"):
            if wanted.items() <= result["cell"].items():
                costs = {side: m["cpu_per_token"] for side, m in result["medians"].items()}
                theirs = [cost for side, cost in costs.items() if side.endswith(mode)]
                factors += [min(theirs) / costs["assay"]] if theirs else []
        return min(factors, default=None)

    return found


def limit_share(what: str, dtype: str) -> Callable[[], float | None]:
    """The smallest share of the roofline over the measured shapes."""

    def found() -> float | None:
        kind = {"what": what, "dtype": dtype}
        shares = [r["share"] for r in load_results("limit") if kind.items() <= r["cell"].items()]
        return min(shares, default=None)

    return found


def all_targets() -> Iterator[Target]:
    """Every target, in the order of the report."""
    wanted = {(256, 32): (5.0, 3.0), (1024, 64): (8.0, 6.0), (32, 64): (2.2, 1.8)}
    for (prompt, completion), factors in wanted.items():
        for peer, factor in zip(PEERS, factors, strict=True):
            yield from grpo_targets(prompt, completion, peer, factor)
    yield Target("GRPO step, the slowest cell measured, any peer", 1.0, slowest_cell)
    for peer, title in PEERS.items():
        what = f"peak memory of a GRPO step over {title}'s, 1024/64, fp32"
        yield Target(what, 0.5, memory_share(peer), unit="%", at_most=True)
    for dtype in ("fp32", "bf16"):
        for mode, how, least in (("padded", "without", 2.0), ("packed", "with", 1.0)):
            what = f"packed SFT against the faster TRL {how} packing, {dtype}"
            yield Target(what, least, sft_speedup(mode, dtype))
    for dtype in ("bf16", "fp32"):
        generate = rollout_speedup(8, dtype, "generate")
        yield Target(f"rollout against generate, 64 sequences, {dtype}", 3.0, generate)
    vllm = ("vLLM", "vLLM without log-probs")
    for dtype in ("bf16", "fp32"):
        for prompts in (8, 32):
            what = f"rollout against the faster vLLM, {8 * prompts} sequences, {dtype}"
            yield Target(what, 1.3, rollout_speedup(prompts, dtype, *vllm))
    for what, share in (("update", 0.8), ("rollout", 0.55)):
        for dtype in ("fp32", "bf16"):
            words = f"share of the roofline in the {what}, {dtype}, the lowest shape"
            yield Target(words, share, limit_share(what, dtype), unit="%")

    for cell in lab_book.CELLS:
        what = f"`assay {cell.what}`, {cell.runs:,} runs of {cell.items:,} items x {cell.repeats}"
        found = partial(lab_book.seconds, cell.what, "work")
        yield Target(f"{what}, wall seconds", cell.limit, found, unit="s", at_most=True)
    whole = partial(lab_book.seconds, "compare", "command", "cpu")
    yield Target(
        "the same comparison as a command, with its page, CPU-seconds", 1.0, whole, "s", True
    )


def targets() -> str:
    """All targets as a Markdown table."""
    rows = [target.row() for target in all_targets()]
    return markdown(["what", "target", "measured", ""], rows, words=2)
