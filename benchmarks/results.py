"""Markdown tables from the results of benchmark cells.

    python benchmarks/results.py          the names of the tables
    python benchmarks/results.py grpo     one table

`table(name)` is for a report that puts them together. Every number comes from a file under
`benchmarks/results`; a cell that was not measured has no row. Nothing here measures.
"""

import argparse
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cells import load_results
from shapes import GROUP, MODELS

Result = Mapping[str, Any]
GIB = 2**30
PEERS = ("trl-1.16", "trl-1.12")
TITLES = {"assay": "Assay", "trl-1.16": "TRL 1.16", "trl-1.12": "TRL 1.12"}


def table(name: str) -> str:
    """A table by name, without rows where nothing was measured; KeyError for an unknown name."""
    return TABLES[name]()


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A Markdown table whose first `words` columns are text and the others numbers."""
    lines = [list(heads), ["---"] * words + ["---:"] * (len(heads) - words), *map(list, rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def grpo_results(**wanted: Any) -> list[Result]:
    """GRPO cells with these parameters, by model, total length and the rest."""
    found = [
        result
        for result in load_results("grpo")
        if all(result["cell"][key] == value for key, value in wanted.items())
    ]
    return sorted(found, key=lambda result: order_of(result["cell"]))


def order_of(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    """SmolLM2 first, then by length."""
    models = list(MODELS)
    total = cell["prompt"] + cell["completion"]
    kind = cell["dtype"] != "fp32", cell["endings"], cell["threads"], cell["lora"]
    return models.index(cell["model"]), *kind, total, cell["prompt"]


def words_of(result: Result) -> list[str]:
    """A cell's parameters as columns."""
    cell = result["cell"]
    shape = f"{cell['prompt']}/{cell['completion']}"
    notes = [cell["dtype"], cell["endings"], threads_of(result)]
    notes += [*(["LoRA"] if cell["lora"] else []), processor_of(result)]
    return [MODELS[cell["model"]], shape, ", ".join(notes)]


def processor_of(result: Result) -> str:
    """The processor that a result was measured on."""
    return result["machine"]["processor"]


def threads_of(result: Result) -> str:
    """How many threads each side had."""
    count = result["cell"]["threads"]
    return "1 thread" if count == 1 else f"{count} threads"


def ratio(result: Result, peer: str, key: str) -> str:
    """The median over rounds of a peer's number over Assay's of the same round."""
    ours, theirs = result["steps"]["assay"], result["steps"][peer]
    pairs = zip(ours, theirs, strict=True)
    return f"{statistics.median(b[key] / a[key] for a, b in pairs):.2f}x"


def bound(result: Result) -> str:
    """What reading each prompt once instead of G times gives at most, in tokens."""
    prompt, completion = result["cell"]["prompt"], result["cell"]["completion"]
    return f"{GROUP * (prompt + completion) / (prompt + GROUP * completion):.2f}x"


def grpo() -> str:
    """CPU-seconds of a step and what the peers' are of Assay's."""
    heads = ["model", "prompt/completion", "kind", "rounds", "Assay", *(TITLES[p] for p in PEERS)]
    rows = [
        [
            *words_of(result),
            str(len(result["steps"]["assay"])),
            *(f"{result['medians'][name]['cpu']:.2f}" for name in TITLES),
            *(ratio(result, peer, "cpu") for peer in PEERS),
            bound(result),
        ]
        for result in grpo_results()
    ]
    ratios = [f"{TITLES[peer]} / Assay" for peer in PEERS]
    return markdown([*heads, *ratios, "sharing alone, at most"], rows, words=3)


def grpo_parts() -> str:
    """Generation and update apart: CPU-seconds and ratios."""
    parts = ("generation_cpu", "update_cpu")
    heads = ["model", "prompt/completion", "kind"]
    heads += [f"{TITLES[name]} {part[:-4]}" for part in parts for name in TITLES]
    heads += [f"{TITLES[peer]} / Assay, {part[:-4]}" for part in parts for peer in PEERS]
    rows = [
        [
            *words_of(result),
            *(f"{result['medians'][name][part]:.2f}" for part in parts for name in TITLES),
            *(ratio(result, peer, part) for part in parts for peer in PEERS),
        ]
        for result in grpo_results()
    ]
    return markdown(heads, rows, words=3)


def grpo_wall() -> str:
    """Wall seconds of a step and what the peers' are of Assay's."""
    heads = ["model", "prompt/completion", "kind", *TITLES.values()]
    rows = [
        [
            *words_of(result),
            *(f"{result['medians'][name]['wall']:.2f}" for name in TITLES),
            *(ratio(result, peer, "wall") for peer in PEERS),
        ]
        for result in grpo_results()
    ]
    return markdown([*heads, *(f"{TITLES[peer]} / Assay" for peer in PEERS)], rows, words=3)


def grpo_memory() -> str:
    """Peak resident memory in GiB, and the share of each peer's that Assay takes."""
    heads = ["model", "prompt/completion", "kind", *TITLES.values()]
    rows = []
    for result in grpo_results():
        peaks = {name: result["medians"][name]["peak_bytes"] for name in TITLES}
        shares = [f"{peaks['assay'] / peaks[peer]:.0%}" for peer in PEERS]
        sizes = [f"{peaks[name] / GIB:.2f}" for name in TITLES]
        rows.append([*words_of(result), *sizes, *shares])
    return markdown([*heads, *(f"Assay / {TITLES[peer]}" for peer in PEERS)], rows, words=3)


def grpo_choices() -> str:
    """The micro-batch, accumulation and cache that each TRL got, and what did not fit."""
    heads = ["model", "prompt/completion", "kind", "side", "chosen", "tried", "did not fit"]
    rows = [
        [*words_of(result), TITLES[peer], *choice_words(result["choices"][peer])]
        for result in grpo_results()
        for peer in PEERS
    ]
    return markdown(heads, rows, words=7)


def choice_words(choice: Mapping[str, Any]) -> list[str]:
    """A choice of TRL's in words: chosen, CPU-seconds per row of each tried, what did not fit."""
    chosen = f"{choice['rows']} x {choice['accumulation']}, {choice['cache']} cache"
    tried = [t for t in choice["tried"] if "cpu_per_row" in t]
    costs = ", ".join(f"{t['rows']}: {t['cpu_per_row']:.2f}" for t in tried)
    return [chosen, costs, ", ".join(str(t["rows"]) for t in choice["tried"] if t not in tried)]


def grpo_equality() -> str:
    """How far loss and gradients of the two sides lie apart on the same rollouts."""
    heads = ["model", "prompt/completion", "kind", "side", "loss", "worst gradient, relative"]
    rows = [
        [
            *words_of(result),
            TITLES[peer],
            f"{result['equality'][peer]['loss_difference']:.1e}",
            f"{result['equality'][peer]['gradient_error']:.1e}",
        ]
        for result in grpo_results()
        for peer in PEERS
    ]
    return markdown(heads, rows, words=4)


def sft() -> str:
    """CPU-milliseconds per token that is not padding, and what they are of Assay's."""
    heads = ["model", "kind", "side", "steps", "CPU-ms per token", "side / Assay", "peak GiB"]
    rows = []
    for result in load_results("sft"):
        cell, values = result["cell"], result["medians"]
        kind = f"{cell['dtype']}, {threads_of(result)}, {processor_of(result)}"
        for side, found in values.items():
            peer, _, mode = side.partition(" ")
            title = " ".join([TITLES[peer], *([mode] if mode else [])])
            cost = found["cpu_per_token"]
            numbers = [f"{1000 * cost:.3f}", f"{cost / values['assay']['cpu_per_token']:.2f}x"]
            memory = f"{found['peak_bytes'] / GIB:.2f}"
            steps = str(len(result["steps"][side]))
            rows.append([MODELS[cell["model"]], kind, title, steps, *numbers, memory])
    return markdown(heads, rows, words=3)


def machines() -> str:
    """The machines and versions that the results were taken with."""
    results = [*load_results("grpo"), *load_results("sft")]
    found = {}
    for result in results:
        machine = result["machine"]
        versions = {f"{p} {v}" for side in result["versions"].values() for p, v in side.items()}
        bf16 = ", ".join(machine["bf16"]) or "no bf16"
        size = f"{machine['cores']} cores, {machine['memory_gib']} GiB"
        key = f"{machine['processor']}, {size}, {bf16}", ", ".join(sorted(versions))
        found.setdefault(key, []).append(machine["time"])
    rows = [[*key, min(times), max(times)] for key, times in found.items()]
    return markdown(["machine", "versions", "first cell", "last cell"], rows, words=4)


TABLES: Mapping[str, Callable[[], str]] = {
    "grpo": grpo,
    "grpo_parts": grpo_parts,
    "grpo_wall": grpo_wall,
    "grpo_memory": grpo_memory,
    "grpo_choices": grpo_choices,
    "grpo_equality": grpo_equality,
    "sft": sft,
    "machines": machines,
}


def main() -> None:
    """Print a table, or the names of all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", choices=sorted(TABLES))
    name = parser.parse_args().name
    print(table(name) if name else "\n".join(sorted(TABLES)))


if __name__ == "__main__":
    main()
