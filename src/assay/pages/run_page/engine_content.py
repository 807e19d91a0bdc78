"""What a run says about an engine that sampled for it: whether hand-overs of weights arrived."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.pages.facts import RunFacts
from assay.pages.page import Block, Column, Table, Text
from assay.pages.words import Words, number, percent

GAP = "engine/gap"


def engine_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """A line for each stage whose completions an engine sampled; nothing where none did."""
    stages = [(name, _lines(lines)) for name, lines in facts.metrics.items()]
    rows = [[name, *_cells(lines)] for name, lines in stages if lines]
    if not rows:
        return []
    names = ("steps", "first", "gap", "sampled", "arrived", "read", "seconds")
    heads = [Column(words(f"engine.{name}"), right=True) for name in names]
    return [Text(words("engine.about"), "soft"), Table([words("engine.stage"), *heads], rows)]


def _lines(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [line for line in lines if GAP in line]


def _cells(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    def of(name: str) -> list[float]:
        return [line[f"engine/{name}"] for line in lines if f"engine/{name}" in line]

    arrived, errors, read = of("proof_stage"), of("proof_stage_error"), of("read")
    share = f"{percent(arrived[-1])} ± {percent(errors[-1])}" if arrived else "–"
    parts = ("load_seconds", "read_seconds", "proof_seconds")
    spent = sum(sum(of(part)) for part in parts) / len(lines)
    return [
        number(len(lines)),
        number(lines[0]["engine/gap_first"]),
        number(max(of("gap"))),
        number(max(of("gap_sampled"))) if of("gap_sampled") else "–",
        share,
        percent(min(read)) if read else "–",
        number(spent),
    ]
