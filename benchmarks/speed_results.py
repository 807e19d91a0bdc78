"""Markdown tables of `rollout`, `limit` and `growth`, as `results` has those of the comparisons.

Every number comes from a file under `benchmarks/results`. Nothing here measures.
"""

from collections.abc import Callable, Mapping
from typing import Any

from cells import load_results
from growth_plot import COSTS, fit, series
from results import markdown, processor_of

Result = Mapping[str, Any]
NOT_RUN = "not run"
PEERS = ("generate", "generate_batch", "vLLM", "vLLM without log-probs")
LLAMA = ("llama.cpp F16", "llama.cpp BF16", "llama.cpp F32")


def rollout_results() -> list[Result]:
    """Cells of the sampling comparison by threads, format, shape and rows."""

    def order(result: Result) -> tuple[Any, ...]:
        cell = result["cell"]
        return cell["threads"], cell["dtype"], cell["prompt"], cell["prompts"] * cell["group"]

    return sorted(load_results("rollout"), key=order)


def rollout_rates(key: str) -> str:
    """Tokens per second of each engine; the last columns say what Assay's rate is of theirs."""
    names = ("Assay", *PEERS, *LLAMA)
    rows = []
    for result in rollout_results():
        cell, found = result["cell"], result["engines"]
        shape = f"{cell['prompt']}/{cell['completion']}"
        batch = f"{cell['prompts']} x {cell['group']}"
        words = [batch, shape, f"{cell['dtype']}, {processor_of(result)}", f"{cell['threads']}"]
        rates = [rate_of(found.get(name), key) for name in names]
        rows.append([*words, *rates, rate_ratio(found, "generate", key), best_vllm(found, key)])
    heads = ["prompts x group", "prompt/completion", "format", "threads", *names]
    return markdown([*heads, "Assay / generate", "Assay / vLLM, the faster"], rows, words=3)


def rate_of(entry: Result | None, key: str) -> str:
    """An engine's rate; a dash where it has no such format, "failed" where it raised."""
    if entry is None:
        return "–"
    return f"{entry[key]:.0f}" if key in entry else "failed"


def rate_ratio(found: Mapping[str, Result], peer: str, key: str) -> str:
    """Assay's rate over a peer's."""
    ours, theirs = found["Assay"].get(key), found.get(peer, {}).get(key)
    return f"{ours / theirs:.2f}x" if ours and theirs else "–"


def best_vllm(found: Mapping[str, Result], key: str) -> str:
    """Assay's rate over vLLM's, with or without log-probs, whichever is faster."""
    return rate_ratio(found, max(PEERS[2:], key=lambda n: found.get(n, {}).get(key, 0.0)), key)


def rollout_failures() -> str:
    """What the engines that failed said, by cell; empty where none did."""
    lines = []
    for result in rollout_results():
        cell = result["cell"]
        for name, entry in result["engines"].items():
            if "error" in entry:
                why = entry["error"].strip().splitlines()
                rows = f"{cell['prompts']} x {cell['group']}, {cell['dtype']}"
                lines.append(f"- {name} at {rows}: `{why[0]}` … `{why[-1][:200]}`")
    return "\n".join(lines)


def rollout_greedy() -> str:
    """Share of greedy tokens, up to the first other one, that are those of `generate` in fp32."""
    rows = [
        [words, name, share if isinstance(share, str) else f"{share:.1%}"]
        for result in load_results("rollout_greedy")
        for words in [f"{result['dtype']}, {processor_of(result)}"]
        for name, share in result["equal_share"].items()
        if name != "vLLM without log-probs"
    ]
    return markdown(["format", "engine", "equal tokens"], rows, words=2)


def limit_results() -> list[Result]:
    """Cells of the bound: updates first, by format and size."""

    def order(result: Result) -> tuple[Any, ...]:
        cell = result["cell"]
        return cell["what"] != "update", cell["dtype"] != "fp32", cell["prompt"]

    return sorted(load_results("limit"), key=order)


def limit_words(result: Result) -> list[str]:
    """What a cell of the bound measures, as columns."""
    cell = result["cell"]
    shape = f"{cell['prompts']} x {cell['group']}, {cell['prompt']}/{cell['completion']}"
    return [cell["what"], shape, f"{cell['dtype']}, {processor_of(result)}"]


def limit() -> str:
    """The least CPU-seconds, those measured, and the share; with the machine's rates."""
    rows = [
        [
            *limit_words(result),
            f"{result['best_rate'] / 1e9:.0f}",
            f"{result['bandwidth'] / 1e9:.1f}",
            f"{result['least_seconds']:.2f}",
            f"{result['cpu_seconds']:.2f}",
            f"{result['share']:.0%}",
            f"{result['share_of_best_rate']:.0%}",
        ]
        for result in limit_results()
    ]
    heads = ["what", "size", "format", "best GFLOP/s", "GB/s", "least s", "measured s", "share"]
    return markdown([*heads, "share, all products at the best rate"], rows, words=3)


def limit_parts() -> str:
    """The least time part by part: operations, bytes, the rate at that shape."""
    rows = [
        [
            *limit_words(result),
            part["name"],
            f"{part['flops'] / 1e9:.1f}",
            f"{part['bytes'] / 1e9:.2f}",
            f"{part['rate'] / 1e9:.0f}" if part["flops"] else "–",
            f"{part['seconds']:.3f}",
        ]
        for result in limit_results()
        for part in result["parts"]
    ]
    heads = ["what", "size", "format", "part", "GFLOP", "GB", "GFLOP/s at this shape", "least s"]
    return markdown(heads, rows, words=4)


def limit_profile() -> str:
    """Where the measured time goes, largest part first."""
    rows = [
        [*limit_words(result), ", ".join(f"{k} {v:.0%}" for k, v in result["profile"].items())]
        for result in limit_results()
    ]
    return markdown(["what", "size", "format", "share of the time by part"], rows, words=4)


def growth() -> str:
    """CPU-seconds of rollout and update over group size and prompt length."""
    rows = [
        [
            {"group": "completions", "prompt": "prompt tokens", "turns": "turns"}[name],
            str(size),
            result["cell"]["dtype"],
            *(f"{result[key]:.2f}" for key in COSTS),
            *(f"{result[key]:.0f}" for key in ("prefilled_tokens", "distinct_tokens")),
            f"{result['context_tokens']:.0f}",
        ]
        for name in ("group", "prompt", "turns")
        for size, result in series(name)
    ]
    tokens = ["prompt tokens computed", "distinct", "in all contexts"]
    return markdown(["what grows", "to", "format", *COSTS.values(), *tokens], rows, words=3)


def growth_lines() -> str:
    """The straight lines through the costs by group size, in words."""
    found = series("group")
    if len(found) < 3:
        return f"The lines through group sizes: {NOT_RUN}."
    lines = []
    for key, label in COSTS.items():
        slope, start, explained = fit([s for s, _ in found], [r[key] for _, r in found])
        lines.append(
            f"- {label}: {start:.2f} + {slope:.3f} G CPU-seconds "
            f"({explained:.1%} of the variance): {slope / (start + slope):.1%} of the first "
            "completion's cost for each further one"
        )
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "rollout": lambda: rollout_rates("tokens_per_cpu_second"),
    "rollout_wall": lambda: rollout_rates("tokens_per_wall_second"),
    "rollout_failures": rollout_failures,
    "rollout_greedy": rollout_greedy,
    "limit": limit,
    "limit_parts": limit_parts,
    "limit_profile": limit_profile,
    "growth": growth,
    "growth_lines": growth_lines,
}
