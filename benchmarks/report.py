"""The tables of docs/benchmarks.md, from the result files.

    python -m benchmarks.report           write them into the page
    python -m benchmarks.report ratios    print one

The words around the tables are the page's own. Measures nothing: a cell without a result has no
row, a side that failed has no number.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from benchmarks import results
from benchmarks.driver import ROOT, parser_of
from benchmarks.shapes import MODELS, PEERS
from benchmarks.worker import Record

PAGE = ROOT / "docs" / "benchmarks.md"
MARKED = re.compile(
    r"<!-- python -m benchmarks\.report (\w+) -->\n.*?<!-- end -->", flags=re.DOTALL
)
NONE, FAILED = "–", "failed"
TITLES = {"trl-1.16": "TRL 1.16", "trl-1.12": "TRL 1.12"}
VLLM = ("vLLM", "vLLM without log-probs")
LLAMA = ("llama.cpp F16", "llama.cpp BF16", "llama.cpp F32")
ENGINES = {"generate": ("generate",), "vLLM": VLLM, "llama.cpp": LLAMA}
"""The columns of rollouts; of several, the fastest counts."""
MEMORY = "memory"
"""Assay's peak over TRL 1.16's."""
TRAINING, SAMPLING = (*TITLES.values(), MEMORY), tuple(ENGINES)


@cache
def load(subject: str) -> tuple[Record, ...]:
    """All results of a subject."""
    return tuple(results.load_results(subject))


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> str:
    """A Markdown table whose first `words` columns are text and the others numbers."""
    lines = [list(heads), ["---"] * words + ["---:"] * (len(heads) - words), *map(list, rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def processor_of(result: Record) -> str:
    """The processor that a result was measured on."""
    return result["machine"]["processor"]


def kind_of(cell: Record) -> str:
    """Number format, and what is unusual: threads, LoRA."""
    notes = [cell["dtype"], *([f"{cell['threads']} threads"] if cell["threads"] > 1 else [])]
    return ", ".join([*notes, *(["LoRA"] if cell.get("lora") else [])])


def named(what: str, model: str) -> str:
    """What was measured, with the model where it is not SmolLM2."""
    return what if model == "smollm2" else f"{what}, {MODELS[model]}"


def shape_of(cell: Record) -> str:
    """Tokens of prompt and completion."""
    return f"{cell['prompt']}/{cell['completion']}"


@dataclass(frozen=True)
class Row:
    """A cell in the table of its processor."""

    processor: str
    what: str
    size: str
    kind: str
    ours: str
    """What Assay takes, with its unit."""
    ratios: dict[str, str]


def speedup(result: Record, peer: str, key: str = "cpu") -> float | None:
    """The median over rounds of a peer's cost over Assay's; None where either failed."""
    steps = result["steps"]
    if not {"assay", peer} <= set(steps):
        return None
    if len(steps["assay"]) == len(steps[peer]):
        return results.ratio(steps["assay"], steps[peer], key)
    return result["medians"][peer][key] / result["medians"]["assay"][key]


def peak_share(result: Record, peer: str) -> float | None:
    """Assay's peak memory over a peer's; None where either failed."""
    peaks = [result["medians"].get(side, {}).get("peak_bytes") for side in ("assay", peer)]
    return peaks[0] / peaks[1] if all(peaks) else None


def times(value: float | None) -> str:
    """A ratio."""
    return FAILED if value is None else f"{value:.2f}x"


def share(value: float | None) -> str:
    """A percentage."""
    return FAILED if value is None else f"{value:.0%}"


def cost(result: Record, key: str, scale: float, unit: str) -> str:
    """Assay's median with its unit."""
    found = result["medians"].get("assay")
    return f"{scale * found[key]:.2f}{unit}" if found else FAILED


def grpo_rows() -> Iterator[Row]:
    """GRPO steps of full length: SmolLM2 first, then by format, threads and length."""

    def order(result: Record) -> tuple[object, ...]:
        cell = result["cell"]
        kind = cell["dtype"] != "fp32", cell["threads"], cell["lora"]
        length = cell["prompt"] + cell["completion"]
        return list(MODELS).index(cell["model"]), *kind, length, cell["prompt"]

    for result in sorted(having("grpo", endings="forced"), key=order):
        cell = result["cell"]
        ratios = {TITLES[peer]: times(speedup(result, peer)) for peer in PEERS}
        ratios[MEMORY] = share(peak_share(result, PEERS[0]))
        yield Row(
            processor_of(result),
            named("GRPO", cell["model"]),
            shape_of(cell),
            kind_of(cell),
            cost(result, "cpu", 1, "s"),
            ratios,
        )


def sft_rows() -> Iterator[Row]:
    """SFT updates, TRL without and with packing apart."""
    for result in load("sft"):
        cell = result["cell"]
        for mode in ("padded", "packed"):
            sides = {peer: f"{peer} {mode}" for peer in PEERS}
            if not result["choices"].keys() & sides.values():
                continue
            ratios = {
                TITLES[p]: times(speedup(result, side, "cpu_per_token"))
                if side in result["choices"]
                else NONE
                for p, side in sides.items()
            }
            ratios[MEMORY] = share(peak_share(result, sides[PEERS[0]]))
            yield Row(
                processor_of(result),
                named("SFT", cell["model"]),
                f"TRL {mode}",
                kind_of(cell),
                cost(result, "cpu_per_token", 1000, "ms/token"),
                ratios,
            )


def rate(result: Record, names: Sequence[str]) -> float | None:
    """Tokens per CPU-second of the fastest of these engines; None where all failed."""
    found = [result["engines"].get(name, {}).get("tokens_per_cpu_second") for name in names]
    return max((value for value in found if value), default=None)


def rollout_ratio(result: Record, names: Sequence[str]) -> float | None:
    """Assay's rate over that of the fastest of these engines; None where either failed."""
    ours, theirs = rate(result, ["Assay"]), rate(result, names)
    return ours / theirs if ours and theirs else None


def rollout_rows() -> Iterator[Row]:
    """Sampling by threads, format and size."""

    def order(result: Record) -> tuple[object, ...]:
        cell = result["cell"]
        return cell["threads"], cell["dtype"], cell["prompt"], cell["prompts"] * cell["group"]

    for result in sorted(load("rollout"), key=order):
        cell, ours = result["cell"], rate(result, ["Assay"])
        yield Row(
            processor_of(result),
            named("rollout", result["model"]),
            f"{cell['prompts']}x{cell['group']}, {shape_of(cell)}",
            kind_of(cell),
            f"{ours:.0f}/s" if ours else FAILED,
            {title: times(rollout_ratio(result, names)) for title, names in ENGINES.items()},
        )


def ratios() -> str:
    """SmolLM2: for each processor a table of training and one of sampling."""
    return tables_of([row for row in all_rows() if ", " not in row.what])


def ranges() -> str:
    """SmolLM2: the least and the largest ratio of each size over all processors and formats."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in all_rows():
        if ", " not in row.what:
            groups.setdefault((row.what, row.size), []).append(row)
    tables = []
    for columns in (TRAINING, SAMPLING):
        lines = [
            [*words, str(len(rows)), *(spread([row.ratios[c] for row in rows]) for c in columns)]
            for words, rows in groups.items()
            if {*columns} <= {*rows[0].ratios}
        ]
        tables.append(markdown(["what", "size", "cells", *columns], lines, words=2))
    return "\n\n".join(tables)


def spread(ratios: Sequence[str]) -> str:
    """The least to the largest of written ratios."""
    known = sorted(
        (r for r in ratios if r not in (FAILED, NONE)), key=lambda r: float(r.rstrip("x%"))
    )
    return " to ".join(dict.fromkeys((known[0], known[-1]))) if known else FAILED


def other_models() -> str:
    """The same of other models."""
    return tables_of([row for row in all_rows() if ", " in row.what])


def all_rows() -> list[Row]:
    """Training, then sampling."""
    return [*grpo_rows(), *sft_rows(), *rollout_rows()]


def tables_of(rows: Sequence[Row]) -> str:
    """For each processor a table of training and one of sampling."""
    training, sampling = (
        [r for r in rows if bool(r.ratios.keys() & ENGINES) is s] for s in (False, True)
    )
    parts: list[str] = []
    for processor in dict.fromkeys(row.processor for row in (*training, *sampling)):
        parts.append(f"### {processor}")
        for kind, columns in ((training, TRAINING), (sampling, SAMPLING)):
            own = [row for row in kind if row.processor == processor]
            lines = [[r.what, r.size, r.kind, r.ours, *(r.ratios[c] for c in columns)] for r in own]
            heads = ["what", "size", "format", "Assay", *columns]
            parts += [markdown(heads, lines, words=3)] if own else []
    return "\n\n".join(parts)


def bound() -> str:
    """The least CPU-seconds over those measured, in a column for each processor."""

    def order(result: Record) -> tuple[object, ...]:
        cell = result["cell"]
        return cell["what"] != "update", cell["dtype"] != "fp32", cell["prompt"]

    processors = sorted({processor_of(result) for result in load("limit")})
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for result in sorted(load("limit"), key=order):
        cell = result["cell"]
        size = f"{cell['what']}, {cell['prompts']}x{cell['group']}, {shape_of(cell)}"
        shown = share(result.get("share"))
        rows.setdefault((size, cell["dtype"]), {})[processor_of(result)] = shown
    lines = [[*words, *(own.get(p, NONE) for p in processors)] for words, own in rows.items()]
    return markdown(["what", "format", *processors], lines, words=2)


def engines() -> str:
    """What a GRPO step costs by sampler, tokens per CPU-second of sampling, and hand-overs."""
    heads = ["machine", "size", "format", "side", "step", "wall", "tokens", "hand-over", "proof"]
    lines = []
    for result in load("engines"):
        cell = result["cell"]
        if "completion" not in cell:
            continue
        size = f"{cell['prompts']}x{cell['group']}, {shape_of(cell)}"
        known = [short(processor_of(result)), size, kind_of(cell)]
        for side, found in result["medians"].items():
            rate = found["completion_tokens"] / found["generation_cpu"]
            costs = [f"{found['cpu']:.1f}s", f"{found['wall']:.1f}s", f"{rate:.0f}/s"]
            over = (f"{found[k]:.2f}s" if k in found else NONE for k in HAND_OVER)
            lines.append([*known, side, *costs, *over])
        lines += [[*known, side, *[FAILED] * 3, NONE, NONE] for side in result["failures"]]
    return markdown(heads, lines, words=4)


HAND_OVER = ("load_seconds", "proof_seconds")


def short(processor: str) -> str:
    """A processor without its maker."""
    return processor.removeprefix("AMD EPYC ")


def adapters() -> str:
    """What vLLM takes with an adapter apart, and with the same merged."""
    found = [result for result in load("engines") if "completion" not in result["cell"]]
    lines = [
        [short(processor_of(result)), side, f"{costs['cpu']:.1f}s", f"{costs['wall']:.1f}s"]
        for result in found
        for side, costs in result["medians"].items()
    ]
    return markdown(["machine", "vLLM", "CPU", "wall"], lines, words=2)


@dataclass(frozen=True)
class Target:
    """A number that was to be at least (or at most) so large, as it was set before measuring."""

    what: str
    wanted: float
    found: float | None
    """None where its cell has no result."""
    unit: str = "x"
    """`x` for a ratio, `%` for a share."""
    at_most: bool = False

    @property
    def missed(self) -> bool:
        """Whether the number is on the wrong side."""
        if self.found is None:
            return False
        return self.found > self.wanted if self.at_most else self.found < self.wanted

    def words(self) -> tuple[str, str]:
        """What was to be how large."""
        return self.what, f"{'≤' if self.at_most else '≥'}{self.written(self.wanted)}"

    def written(self, value: float) -> str:
        """A number with its unit."""
        return f"{value:.0%}" if self.unit == "%" else f"{value:.2f}x"


def having(subject: str, **wanted: object) -> list[Record]:
    """Results whose cell has these values."""
    return [r for r in load(subject) if wanted.items() <= r["cell"].items()]


def least(values: Iterable[float | None]) -> float | None:
    """The smallest number; None where there is none."""
    return min((value for value in values if value is not None), default=None)


def grpo_targets() -> Iterator[Target]:
    """How much less CPU time a GRPO step was to take than a peer's, on each processor measured."""
    wanted = {(256, 32): (5.0, 3.0), (1024, 64): (8.0, 6.0), (32, 64): (2.2, 1.8)}
    usual = {"model": "smollm2", "dtype": "fp32", "endings": "forced", "lora": False}
    for (prompt, completion), factors in wanted.items():
        for peer, factor in zip(PEERS, factors, strict=True):
            for result in having("grpo", prompt=prompt, completion=completion, **usual):
                what = f"GRPO {prompt}/{completion} against {TITLES[peer]}, fp32"
                yield Target(what, factor, speedup(result, peer))
    slowest = least(speedup(result, peer) for result in load("grpo") for peer in PEERS)
    yield Target("GRPO, the slowest cell, any peer", 1.0, slowest)
    for peer in PEERS:
        long = having("grpo", prompt=1024, completion=64, **usual)
        worst = max((found for r in long if (found := peak_share(r, peer))), default=None)
        what = f"peak memory of GRPO 1024/64, fp32, over {TITLES[peer]}'s"
        yield Target(what, 0.5, worst, "%", at_most=True)


def other_targets() -> Iterator[Target]:
    """SFT, rollouts and the bound: the worst of the processors measured."""
    for dtype in ("fp32", "bf16"):
        for mode, wanted in (("padded", 2.0), ("packed", 1.0)):
            cells = having("sft", model="smollm2", dtype=dtype, threads=1)
            found = (speedup(r, f"{p} {mode}", "cpu_per_token") for r in cells for p in PEERS)
            yield Target(f"SFT against the faster TRL {mode}, {dtype}", wanted, least(found))
        for prompts, title, wanted in ((8, "generate", 3.0), (8, "vLLM", 1.3), (32, "vLLM", 1.3)):
            shape = {"prompts": prompts, "group": 8, "prompt": 64, "dtype": dtype, "threads": 1}
            found = (rollout_ratio(r, ENGINES[title]) for r in having("rollout", **shape))
            what = f"rollout of {8 * prompts} sequences against {title}, {dtype}"
            yield Target(what, wanted, least(found))
        for part, wanted in (("update", 0.8), ("rollout", 0.55)):
            found = (r.get("share") for r in having("limit", what=part, dtype=dtype))
            what = f"share of the bound in the {part}, {dtype}, the lowest cell"
            yield Target(what, wanted, least(found), "%")


def missed() -> str:
    """How many targets were reached, and those that were missed."""
    measured = [t for t in (*grpo_targets(), *other_targets()) if t.found is not None]
    short = [target for target in measured if target.missed]
    rows: dict[tuple[str, str], list[str]] = {}
    for target in short:
        rows.setdefault(target.words(), []).append(target.written(target.found or 0.0))
    count = f"{len(measured) - len(short)} of {len(measured)} targets are reached. Missed:"
    lines = [[*words, ", ".join(found)] for words, found in rows.items()]
    return f"{count}\n\n{markdown(['what', 'target', 'measured'], lines, words=2)}"


def ranks() -> str:
    """Seconds of a step by processes, on each processor and in each format."""
    rows = []
    for result in load("ranks"):
        cell = result["cell"]
        size = f"{cell['prompts']}x{cell['group']}, {shape_of(cell)}"
        for side, found in result["medians"].items():
            seconds = [f"{found[key]:.2f}" for key in SECONDS]
            rows.append([processor_of(result), size, cell["dtype"], side, *seconds])
    heads = ["processor", "size", "format", "side", "wall", "sampling", "the rest", "CPU"]
    return markdown(heads, rows, words=4)


SECONDS = ("wall", "generation_wall", "update_wall", "cpu")


TRAINERS = {"assay": "Assay", "trl": "TRL 1.16", "verl": "verl 0.9", "swift": "ms-swift 4.6"}


def trainers() -> str:
    """One GRPO experiment by each trainer and seed: rewards in its first and last third, what a
    step took behind the first, and the judge's verdicts."""
    parts: dict[str, Record] = {}
    for result in load("trainers"):
        parts |= {name: result[name] for name in ("curves", "verdicts") if name in result}
    judged, made = parts["verdicts"], parts["curves"]["trained"]
    lines = []
    for name, rewards in judged["rewards"].items():
        side, _, seed = name.partition("-")
        third, steps = len(rewards) // 3, made[name]["steps"]
        spent = (steps[-1]["cpu"] - steps[0]["cpu"]) / (steps[-1]["step"] - steps[0]["step"])
        costs = [f"{spent:.1f}s", f"{made[name]['peak_bytes'] / 2**30:.1f} GiB"]
        means = [f"{fmean(part):.2f}" for part in (rewards[:third], rewards[-third:])]
        load_then = f"{made[name]['machine']['load_average']:.0f}"
        lines.append([TRAINERS[side], seed, *means, *costs, load_then])
    heads = ["trainer", "seed", "first rewards", "last", "CPU a step", "peak", "load"]
    told = []
    pairs = {(v["side"], v["control"], len(v["seeds"])): v for v in judged["verdicts"].values()}
    for found in judged["verdicts"].values():
        if len(found["seeds"]) == 1 and (found["side"], found["control"], 2) in pairs:
            continue  # the verdict over both seeds stands for it
        if found["control"] not in ("assay", found["side"]):
            continue
        control = "the start" if found["control"] == found["side"] else TRAINERS[found["control"]]
        scores = [f"{found[key]:.1%}" for key in ("control_score", "score")]
        low, high = (f"{100 * found['interval'][end]:+.1f}" for end in ("low", "high"))
        seeds = " and ".join(map(str, found["seeds"]))
        words = [TRAINERS[found["side"]], control, seeds, found["verdict"]]
        told.append([*words, *scores, f"{100 * found['difference']:+.1f} ({low} to {high})"])
    judges = ["trainer", "against", "seeds", "verdict", "that", "trainer's score", "points (95 %)"]
    return f"{markdown(heads, lines, words=2)}\n\n{markdown(judges, told, words=4)}"


def machines() -> str:
    """Where and when the results were measured, and by which versions."""
    found: dict[str, list[Record]] = {}
    packages: dict[str, set[str]] = {}
    for subject in sorted(path.name for path in results.RESULTS.glob("*/")):
        for result in load(subject):
            machine = result["machine"]
            size = f"{machine['cores']} cores, {machine['memory_gib']} GiB"
            words = f"{machine['processor']}, {size}, {', '.join(machine['bf16']) or 'no bf16'}"
            found.setdefault(words, []).append(machine)
            for package, version in versions_of(result):
                packages.setdefault(package, set()).add(version)
    rows = []
    for words, measured in found.items():
        moments, loads = (
            [machine[key] for machine in measured] for key in ("time", "load_average")
        )
        load_range = f"{min(loads):.1f} to {max(loads):.1f}"
        rows.append([words, str(len(measured)), min(moments), max(moments), load_range])
    heads = ["machine", "cells", "first", "last", "load when they began"]
    listed = ", ".join(f"{name} {' and '.join(sorted(v))}" for name, v in sorted(packages.items()))
    return f"{markdown(heads, rows, words=1)}\n\nVersions: {listed}."


def versions_of(result: Record) -> Iterator[tuple[str, str]]:
    """Packages and versions that the sides named."""
    engines = [engine.get("versions", {}) for engine in result.get("engines", {}).values()]
    for side in [*result.get("versions", {}).values(), *engines]:
        yield from side.items()


TABLES: Mapping[str, Callable[[], str]] = {
    "ranges": ranges,
    "ratios": ratios,
    "other_models": other_models,
    "bound": bound,
    "engines": engines,
    "adapters": adapters,
    "missed": missed,
    "ranks": ranks,
    "trainers": trainers,
    "machines": machines,
}


def filled(page: str) -> str:
    """The page with its tables made anew; KeyError for a table of no such name."""
    return MARKED.sub(lambda found: marked(found[1]), page)


def marked(name: str) -> str:
    """A table between its comments."""
    start, end = f"<!-- python -m benchmarks.report {name} -->", "<!-- end -->"
    return f"{start}\n\n{TABLES[name]()}\n\n{end}"


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("table", nargs="?", choices=sorted(TABLES))
    if table := parser.parse_args().table:
        print(TABLES[table]())
    else:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        print(PAGE)
