"""Tables of what `assay check` measured: rows, tokens, cost and the rest.

Makes blocks of the numbers that the checks return by name. Judges none of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.compare.compare_names import Pilot
from assay.data.reported.read_reported import ReportFile, results
from assay.errors import Finding, time_range
from assay.judge.sample_size import MOST_ITEMS, Design, DesignPower, Plan
from assay.lab.monitor.run_costs import CostLine, RunCosts
from assay.pages.page import Block, Column, Heading, Line, Mark, Row, Table, Text
from assay.pages.words import Words, flat, visible, worded, words

if TYPE_CHECKING:
    from assay.lab.check.cards import StageFit

Numbers = Mapping[str, Mapping[str, float]]
"""Table of the experiment -> what was measured, with its unit -> value."""
TOKENS = "conversation_tokens_"
LENGTHS = {"mean": "mean", "sd": "sd", "50": "median", "95": "95 %", "largest": "longest"}
KEPT = {"train_rows": "train", "dev_rows": "dev", "test_rows": "test"}
KEPT |= {"rows_in_source": "in the source"}
GIGABYTE = 1000


def check_tables(numbers: Numbers) -> list[Block]:
    """Every number that was measured, by the table of the experiment that it belongs to."""
    rows: list[Row] = []
    for place, values in numbers.items():
        for name, value in values.items():
            what, colon, about = name.partition(": ")
            rows.append([place, what.replace("_", " ") + colon + about, _cell(value)])
    columns = ["", "what", Column("value", right=True)]
    return [Table(columns, rows, "Checks")] if rows else []


MOST_TABLES = 6
"""Tables of an experiment that the short form has a line for."""


def check_lines(numbers: Numbers) -> list[str]:
    """The same in a line for each data set, stage and evaluation: rows, time and memory."""
    lines = [
        f"{place}: {figures}" for place, values in numbers.items() if (figures := _figures(values))
    ]
    if len(lines) <= MOST_TABLES:
        return lines
    return [*lines[:MOST_TABLES], f"and {len(lines) - MOST_TABLES} more"]


def _figures(values: Mapping[str, float]) -> str:
    """Rows, token lengths, time and memory among the numbers of one table; "" if it has none."""
    kept = [f"{_cell(values[name])} {word}" for name, word in KEPT.items() if values.get(name)]
    parts = [f"rows: {', '.join(kept)}"] if kept else []
    if values.get(f"{TOKENS}largest"):
        sizes = (f"{word} {values[f'{TOKENS}{name}']:,.0f}" for name, word in LENGTHS.items())
        parts.append(f"tokens: {', '.join(sizes)}")
    if "seconds_low" in values and "seconds_high" in values:
        parts.append(time_range(values["seconds_low"], values["seconds_high"]))
    if "memory_mb" in values:
        parts.append(f"{values['memory_mb'] / GIGABYTE:.1f} GB of memory")
    if "checkpoints_mb" in values:
        parts.append(f"{values['checkpoints_mb'] / GIGABYTE:.1f} GB on the disk")
    return "; ".join(parts)


def fit_lines(stages: "Sequence[StageFit]", gib: float, gpus: int) -> list[Block | str]:
    """Ways to train each stage on a card, with memory and time, and the first that fits."""
    rows: list[Row] = []
    notes = list[str]()
    for stage in stages:
        for way in stage.settings:
            low, high = (f"{hours:.2g}" for hours in way.hours)
            fit = "yes" if way.fits else "no"
            rows.append([stage.stage, way.name, f"{way.gib:.1f}", fit, f"{low} to {high}"])
        about = f"{stage.stage}: {stage.steps:,} steps, longest row {stage.longest:,} tokens; "
        if (choice := stage.choice) is None:
            about += "nothing fits: shorten rows (max_tokens), or lower micro_tokens"
        else:
            about += f"fits {choice.name}" + (f": write {choice.key}" if choice.key else "")
        notes.append(about)
    columns = ["stage", "way", Column("GiB", right=True), "fits", Column("hours", right=True)]
    of = f"{gpus} x {gib:g} GiB" if gpus > 1 else f"{gib:g} GiB"
    estimate = (
        "estimated by formula: a quarter of headroom in memory, hours between 45 % and 10 % of "
    )
    return [
        Table(columns, rows, of),
        *notes,
        f"{estimate}the card's peak, evaluations not included",
    ]


MOST_NOTES = 4


def note_lines(notes: Sequence[str]) -> list[Block]:
    """The first notes, each cut at the terminal's edge, and how many there are beside."""
    shown = list(notes) if len(notes) <= MOST_NOTES else list(notes[: MOST_NOTES - 1])
    lines: list[Line] = [(Mark("note"), f": {flat(each)}") for each in shown]
    rest = len(notes) - len(shown)
    lines += [Mark(f"and {rest} more notes", "soft")] if rest else []
    return [Text(line, fit="cut") for line in lines]


def _cell(value: float | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:,.4g}" if value % 1 else f"{value:,.0f}"


MOST_ROWS = 20
"""Of one table."""
HEADS = ("calls", "remembered", "failed", "read", "wrote", "cost", "besides", "mean", "seconds")


def costs_page(costs: RunCosts, words: Words) -> list[Block]:
    """The tables, then what a call, a problem and a step cost, and what is uncertain."""
    blocks: list[Block] = [Text(words("costs.lost", lost=costs.lost))] if costs.lost else []
    if (total := costs.total) is None:
        return blocks or [Text(words("costs.nothing", run=str(costs.run)))]
    columns = ["", *(Column(words(f"costs.{head}"), right=True) for head in HEADS)]
    parts = {"models": costs.models, "stages": costs.stages, "operators": costs.operators}
    for name, lines in {**parts, "problems": costs.problems[:MOST_ROWS]}.items():
        rows: list[Row] = [(Mark(flat(line.name), ""), *_costs(line)) for line in lines]
        if name == "models" and len(lines) > 1:
            rows.append(tuple(map(Mark, (words("costs.total"), *_costs(total)))))
        blocks += [Table(columns, rows, words(f"costs.{name}"))] if rows else []
    if (whole := len(costs.problems)) > MOST_ROWS:
        blocks.append(Text(words("costs.shown", shown=MOST_ROWS, whole=whole), "soft"))
    means = {"call": costs.per_call, "problem": costs.per_problem, "step": costs.per_step}
    blocks.append(Text(words("costs.means", **{of: money(cost) for of, cost in means.items()})))
    if total.uncertain:
        blocks.append(Text(words("costs.uncertain", most=money(total.uncertain))))
    if total.cost is None:
        blocks.append(Text(words("costs.not_known")))
    return blocks


def money(amount: float | None) -> str:
    """An amount with six decimals, without those that are 0 at its end; N/A where not known."""
    if amount is None:
        return "N/A"
    whole, _, rest = f"{amount:.6f}".partition(".")
    return f"{whole}.{rest.rstrip('0').ljust(2, '0')}"


def _costs(line: CostLine) -> list[str]:
    """The cells of a line, as HEADS."""
    counts = (line.calls, line.remembered, line.failed, line.prompt_tokens, line.completion_tokens)
    besides = money(line.uncertain) if line.uncertain else ""
    return [*map(str, counts), money(line.cost), besides, money(line.mean), f"{line.seconds:.2f}"]


def plan_blocks(pilot: Pilot, plan: Plan, lang: str = "en") -> list[Block]:
    """The table of designs, then the known and the unknown variances."""
    w, design = words(lang), plan.designs[0].design
    heads = ("items", "repeats", "seeds", "smallest", "resolution", "answers")
    power = 100 * plan.power
    view = Table([w(f"plan.{h}", power=power) for h in heads], [_cells(p, w) for p in plan.designs])
    figures = {"difference": 100 * plan.difference, "power": power}
    title = w("plan.title", **figures, arms=design.arms, level=100 * design.alpha)
    return [Heading(title), view, *map(Text, _notes(pilot, design, w))]


def _cells(planned: DesignPower, w: Words) -> list[str]:
    d = planned.design
    if not d.items:
        return [w("plan.too_many", most=MOST_ITEMS), str(d.repeats), str(d.seeds), *"–––"]
    smallest = planned.smallest
    seen = w("plan.nothing") if smallest is None else f"{100 * smallest:.1f}"
    ratio = "–" if planned.resolution is None else f"{planned.resolution:.2f}"
    return [f"{d.items:,}", str(d.repeats), str(d.seeds), seen, ratio, f"{d.answers:,}"]


def _notes(pilot: Pilot, design: Design, w: Words) -> Iterator[str]:
    """The source of the variances, and those that are unknown."""
    v = pilot.variances
    if pilot.items:
        counts = {"items": pilot.items, "repeats": pilot.repeats, "seeds": pilot.seeds}
        yield w("plan.pilot", evaluation=pilot.evaluation, **counts)
    yield w("plan.by_items", value=v.items)
    for name in ("sampling", "luck", "seeds"):
        value = getattr(v, name)
        if value is not None:
            yield w(f"plan.by_{name}", value=value)
    if v.sampling is None and design.repeats > 1:
        yield w("plan.unknown_sampling")
    if v.seeds is None:
        yield w("plan.unknown_seeds")


def plan_result(pilot: Pilot, plan: Plan) -> dict[str, Any]:
    """The same for programs; scores and differences from 0 to 1, null where nothing is known."""
    return {
        "difference": plan.difference,
        "power": plan.power,
        "level": plan.designs[0].design.alpha,
        "evaluation": pilot.evaluation or None,
        "variances": asdict(pilot.variances),
        "designs": [_row(each) for each in plan.designs],
    }


def _row(planned: DesignPower) -> dict[str, Any]:
    d = planned.design
    design = {"repeats": d.repeats, "seeds": d.seeds, "arms": d.arms, "enough": planned.enough}
    counts = {"items": d.items or None, "answers": d.answers or None}
    seen = {"smallest_difference": planned.smallest, "resolution": planned.resolution}
    return {**counts, **design, **seen}


CHOSEN = {"says": "audit_word", "reads": "audit_word", "means": "audit_means"}
"""Values that are words of the catalogue, with their sections."""
CLAUSES = {
    "family": ("of_family", "corrected"),
    "needed": ("takes", "takes_unpaired", "takes_trials"),
}
"""Parts of sentences that are omitted if their figure carries no information."""
NOTHING = {"family": 1, "needed": 0}
"""One comparison is no family, and no number of items shows a difference of 0."""


def audit_findings(flaws: Sequence[Finding], lang: str = "en") -> list[Finding]:
    """Each flaw as a finding: the problem, the evidence with its line, the fix.

    Raises InputError.
    """
    return [_finding(flaw, words(lang)) for flaw in flaws]


def summary(
    file: Path, reading: ReportFile, flaws: Sequence[Finding], lang: str = "en"
) -> list[str]:
    """How much was read and how much was found; before it the tables that were not read."""
    w, severities = words(lang), [flaw.severity for flaw in flaws]
    skipped = ", ".join(map(str, reading.skipped))
    lines = [w("audit.skipped", lines=skipped)] if skipped else []
    counts = {f"{kind}s": severities.count(kind) for kind in ("error", "warning", "note")}
    counts["results"] = sum(map(results, reading.records))
    return [*lines, w("audit.summary", file=visible(str(file)), **counts)]


def _finding(flaw: Finding, w: Words) -> Finding:
    values: dict[str, Any] = {
        name: flat(value) if isinstance(value, str) else value
        for name, value in flaw.values.items()
    }
    values["about"] = values["about"] or w("audit.whole")
    for name in ("place", "other"):
        values[name] = values.get(name) or w("audit.own_place")
    for name, section in CHOSEN.items():
        if isinstance(values.get(name), str):
            values[name] = w.or_own(section, values[name])
    for figure, clauses in CLAUSES.items():
        many = int(flaw.values.get(figure, 0)) > NOTHING[figure]
        values |= {name: w(f"audit.{name}", **values) if many else "" for name in clauses}
    told = worded(replace(flaw, values=values), w)
    if values["line"] is None:
        return told
    return replace(told, evidence=w("audit.line", line=values["line"], evidence=told.evidence))
