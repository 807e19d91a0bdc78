"""Writes docs/benchmarks.md and its drawing from the results of the cells.

    python benchmarks/report.py

Measures nothing: what has no result is named as not run, and every target stands beside what was
found. The page's words are here; its tables are in `results`, `speed_results` and `targets`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import growth as growth_program
import lab_book as lab_book_program
import limit as limit_program
import results
import reward_results
import sft_shapes
import shapes
import speed_results
import time_to_reward as time_to_reward_program
from cells import RESULTS, load_results, measured_anywhere
from growth_plot import save_plot
from targets import targets

import rollout as rollout_program

DOCS = Path(__file__).parents[1] / "docs"
DRAWING = "growth.svg"
PAGE = DOCS / "benchmarks.md"
LISTED = 16
"""Cells without results that are named; the others are counted."""

INTRODUCTION = """\
# Benchmarks

How fast Assay is beside its peers, how near to what the machine can do, and how its cost grows.
`make bench` measures the core anew: GRPO steps of SmolLM2 at three shapes, in two threads.
`make bench-full` measures everything that is missing and goes on where it was interrupted, since
each cell's result is a file under `benchmarks/results`, in a folder for each processor. Delete a
file to measure its cell anew. Of AMD's processors, which the machines here give one name, family 25
with bf16 products is Zen 4 and family 26 is Zen 5. The peers are installed on first use, each at
its pinned versions in a virtual environment of its own (`benchmarks/environments.py`); llama.cpp is
compiled then. This page is written by `python benchmarks/report.py` from those files.

A CPU-second is processor time of all threads together; it changes less with what else the machine
does than wall time, but not nothing: memory and caches are shared. Sides take turns, round after
round, and medians are reported; where a round is long there is one, and the tables say so. Some
cells were given less time for their rounds than the programs give them, 60 seconds. A ratio above
1x means that Assay is faster. Other programs may have run on the second core: the last table has
the load that each benchmark began under.

## Targets

What was aimed at before anything was measured. GRPO steps stand for each processor; elsewhere the
worst counts. The results of the Intel Xeon are of 2026-11-21, before attention went block by block.
Those of AMD EPYC family 26 are of the morning of 2026-11-22, before training kept a third less
memory for each token, attention's masks were widened and bf16 decoding stopped copying its cache.
Those of family 25 in fp32 are of before its attention went to MKL, but for the roofline's update.
"""

MISSED = """\
### What was missed, and why

- **A step at 32/64 in fp32 on Zen 4.** Reading each prompt once gives at most 1.41x there; the rest
  must come from the products, which reach 107 GFLOP/s on this processor and 235 on Zen 5. The
  update stands at 76 % of the roofline.
- **A step at 1024/64 in fp32 on Zen 4.** In two threads it takes 75 CPU-seconds of Assay, 54 of
  them the update, which takes 35.8 in one thread (24 at the full rate; half of it is the layers'
  products and a quarter attention). Waiting for the other thread counts as CPU time, and
  attention's small products gain little from a second one in fp32. In bf16 both targets are
  reached.
- **The Xeon's steps** were not measured again after attention went block by block.
- **Half of TRL's memory.** Weights, gradients, moments and imports take 2.4 GiB of either side at
  1024/64; a group's activations take another GiB. Norms and activations are computed again instead
  of kept, and gradients lie in one block; what the allocator does not give back is the rest.
- **Twice TRL 1.12's padded SFT.** The layers need 0.64 GFLOP a token: on Zen 4 in fp32 6.0 ms at
  the full rate, where twice TRL 1.12 would be 6.2 for everything. In bf16 they need 2.9 ms, and
  what is not a product weighs twice as much. Twice TRL 1.16 is reached in bf16.
- **The roofline.** The layers' products take about half of the time of an update, those of the
  vocabulary up to a fifth; the rest is attention (a quarter at 1024/64, most of it small products
  and softmax), copies, norms and elementwise work, which the bound counts as nothing and which
  weighs the more the faster products are. Tried without gain: huge pages, other block sizes of
  attention, norms in blocks of rows. A rollout over two Python threads gains a tenth where there
  are two cores, and was left out.
- **`make demo` in 10 minutes, `QUICK=1` in 3.** README has the times. On two cores of Zen 4 the
  evaluated answers alone need 135 TFLOP by formula, 5 minutes at the full rate of both.
"""


@dataclass(frozen=True)
class Section:
    """One program's part of the page."""

    title: str
    text: str
    blocks: Sequence[tuple[str, Callable[[], str]]]
    """A heading (or none) with the table, list or image under it."""
    cells: Callable[[], Iterable[str]]
    """Names of all cells of the program."""
    benchmark: str
    """Name of the folder with its results."""


def named(*tables: tuple[str, str]) -> list[tuple[str, Callable[[], str]]]:
    """Blocks from headings and names of tables."""
    known = {**results.TABLES, **speed_results.TABLES, **reward_results.TABLES}
    return [(heading, known[name]) for heading, name in tables]


def sections() -> list[Section]:
    """The page's sections in order."""
    return [
        Section(
            "GRPO against TRL",
            "`benchmarks/grpo_vs_trl.py`: one GRPO step of 2 prompts with 8 completions each, on "
            "the same weights, prompts, sampling, lengths and optimizer, gradient checkpointing "
            "off. Before the timing both sides compute loss and gradients of the same rollouts, "
            f"cut to {shapes.CHECK_PROMPT}/{shapes.CHECK_COMPLETION} tokens (those in one thread, "
            "measured before, to 128/32); in fp32 they must agree, in bf16 the difference is "
            "reported. Generation includes laying the changed "
            "weights out for the sampler. "
            "TRL runs with a micro-batch that was the fastest in a trial, or within 3 % of it.",
            named(
                ("CPU-seconds of a step", "grpo"),
                ("Generation and update apart", "grpo_parts"),
                ("Wall seconds", "grpo_wall"),
                ("Peak memory in GiB", "grpo_memory"),
                ("TRL's settings", "grpo_choices"),
                ("Equality on the same rollouts", "grpo_equality"),
            ),
            lambda: (cell.name for cell in shapes.full_cells()),
            "grpo",
        ),
        Section(
            "Time to the same reward",
            "`benchmarks/time_to_reward.py`: GRPO on the demo's task from a checkpoint that has "
            "just begun to call functions, 4 prompts with 8 completions a step, the model's own "
            "endings, BFCL's checker as the reward, one thread. After every third step one and "
            "the same program has each side's weights answer held-out rows greedily; that is not "
            "counted. Both sides see the same rows and draw their own samples; one seed. Start and "
            "learning rate are those at which Assay alone, in trials, learned in so few steps.",
            named(
                ("", "time_to_reward"),
                ("", "time_stopped"),
                ("First at a level", "time_to_level"),
            ),
            lambda: [time_to_reward_program.NAME],
            time_to_reward_program.BENCHMARK,
        ),
        Section(
            "SFT against TRL",
            "`benchmarks/sft_vs_trl.py`: updates on the same documents, TRL's SFTTrainer with and "
            "without packing.",
            named(("", "sft")),
            lambda: (cell.name for cell in sft_shapes.full_cells()),
            "sft",
        ),
        Section(
            "Rollout",
            "`benchmarks/rollout.py`: tokens sampled from SmolLM2-135M per second, forced lengths, "
            "the whole softmax at temperature 1, new prompts in every round. Assay returns the "
            "log-prob of every token; `generate`, `generate_batch` and llama.cpp are not asked for "
            "it, vLLM is measured with and without. vLLM runs in one process with its prefix cache "
            "on. llama.cpp decodes all sequences in one batch that shares the prompt's cells "
            "within a group, draws with its own sampler, and uses the cache layout that was faster "
            "in a trial; its F32 file stands for fp32, its F16 and BF16 files beside bf16. "
            "Loading is not counted.",
            [
                *named(("Tokens per CPU-second", "rollout"), ("Tokens per second", "rollout_wall")),
                *named(
                    (
                        "Greedy tokens equal to those of `generate` in fp32",
                        "rollout_greedy",
                    )
                ),
                *named(("Failures", "rollout_failures")),
            ],
            lambda: (cell.name for cell in rollout_program.full_cells()),
            rollout_program.NAME,
        ),
        Section(
            "The bound",
            "`benchmarks/limit.py`: the least time that the needed operations and bytes can take "
            "at the rates measured on this machine in one thread, over the CPU-seconds measured. "
            "Products count at the best rate that any library reaches alone at the same number of "
            "rows; the last column counts them at the rate of a large square product instead. "
            "Elementwise work, norms and casts count as nothing. The rollout's time holds laying "
            "the changed weights out for the sampler. `benchmarks/roofline.py` has the formulas.",
            named(
                ("", "limit"),
                ("The least time by part", "limit_parts"),
                ("Where the time goes", "limit_profile"),
            ),
            lambda: (cell.name for cell in limit_program.CELLS),
            limit_program.NAME,
        ),
        Section(
            "Growth",
            "`benchmarks/growth.py`: CPU-seconds of the two halves of a step as one size grows, "
            "one prompt. In the conversations each turn samples 32 tokens and gets 64 more.",
            [
                ("", lambda: f"![cost of a step as its sizes grow]({DRAWING})"),
                *named(("", "growth"), ("Lines through the group sizes", "growth_lines")),
            ],
            lambda: (cell.name for cell in growth_program.cells(growth_program.usual_dtype())),
            growth_program.NAME,
        ),
        Section(
            "The lab book",
            "`benchmarks/lab_book.py`: comparing two runs and listing a lab, on records drawn at "
            "random. The work is the call in a process that has everything loaded; the command is "
            "a process of its own, from starting Python to writing the page.",
            [("", lab_book_program.table)],
            lambda: (cell.name for cell in lab_book_program.CELLS),
            lab_book_program.NAME,
        ),
    ]


def section_text(section: Section) -> str:
    """A section; blocks without rows are left out, cells without results are named."""
    parts = [f"## {section.title}", section.text]
    if load_results(section.benchmark):
        for heading, block in section.blocks:
            found = block()
            without_rows = found.startswith("| ") and found.count("\n") == 1
            if found and not without_rows:
                parts += [f"### {heading}", found] if heading else [found]
    return "\n\n".join(part for part in [*parts, missing(section)] if part)


def missing(section: Section) -> str:
    """The cells that have no result."""
    names = list(section.cells())
    absent = [name for name in names if not measured_anywhere(section.benchmark, name)]
    if not absent:
        return ""
    listed = ", ".join(f"`{name}`" for name in absent[:LISTED])
    listed += f" and {len(absent) - LISTED} more" if len(absent) > LISTED else ""
    return f"Not run, {len(absent)} of {len(names)} cells: {listed}."


def machine_text() -> str:
    """The machines and versions behind all results."""
    found: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for folder in sorted(path.name for path in RESULTS.glob("*/")):
        for result in load_results(folder):
            machine = result["machine"]
            size = f"{machine['cores']} cores, {machine['memory_gib']} GiB"
            words = f"{machine['processor']}, {size}, {', '.join(machine['bf16']) or 'no bf16'}"
            found.setdefault((words, folder), []).append((machine["time"], machine["load_average"]))
    rows = []
    for key, taken in found.items():
        times, loads = zip(*taken, strict=True)
        load = f"{min(loads):.1f} to {max(loads):.1f}"
        rows.append([*key, str(len(taken)), min(times), max(times), load])
    heads = ["machine", "results", "files", "first", "last", "load when they began"]
    versions = [f"- {side}: {words}" for side, words in sorted(all_versions().items())]
    return "\n\n".join(
        ["## Machines and versions", results.markdown(heads, rows, words=2), "\n".join(versions)]
    )


def all_versions() -> dict[str, str]:
    """The versions that each side named, by side."""
    found: dict[str, set[str]] = {}
    for result in [r for name in ("grpo", "sft", "time_to_reward") for r in load_results(name)]:
        for side, versions in result["versions"].items():
            found.setdefault(side, set()).update(f"{p} {v}" for p, v in versions.items())
    for result in load_results(rollout_program.NAME):
        for side, entry in result["engines"].items():
            versions = entry.get("versions", {})
            found.setdefault(side, set()).update(f"{p} {v}" for p, v in versions.items())
    return {side: ", ".join(sorted(versions)) for side, versions in found.items()}


def page() -> str:
    """The whole page."""
    return "\n\n".join(
        [
            INTRODUCTION.rstrip(),
            targets(),
            MISSED.rstrip(),
            *(section_text(section) for section in sections()),
            machine_text(),
        ]
    )


def main() -> None:
    """Write the page, and its drawing where there is something to draw."""
    if load_results(growth_program.NAME):
        save_plot(DOCS / DRAWING)
    PAGE.write_text(page() + "\n", encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
