"""Sound reports, drawn at random: nothing in them is called an error or a warning.

True scores and counts are drawn, printed as reports print them (rounded or cut off, with or without
counts, averages and failures), and claimed only where the audit's own figures carry the claim.
"""

from collections.abc import Iterator
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest

from assay.data.reported.reported_record import (
    Rating,
    Reported,
    ReportedComparison,
    ReportedRun,
    Scoring,
)
from assay.errors import Finding
from assay.judge.audit.claims import pairs
from assay.judge.audit.rules import audit

ITEMS = (40, 100, 164, 200, 400, 500, 1319, 5000)


def shown(count: int, items: int, digits: int, mode: str) -> Decimal:
    """A share of items in percent, as it is printed."""
    exact = Decimal(100 * count) / items
    return exact.quantize(Decimal(1).scaleb(-digits), rounding=mode)


def runs_of(rng: np.random.Generator) -> Iterator[tuple[ReportedRun, Rating]]:
    """Runs on the same benchmarks, as good as each other or not, each with its average."""
    sizes = {f"bench{i}": int(rng.choice(ITEMS)) for i in range(rng.integers(1, 6))}
    base = {cell: rng.uniform(0.1, 0.9) for cell in sizes}
    digits, mode = int(rng.integers(0, 3)), rng.choice([ROUND_DOWN, ROUND_HALF_EVEN])
    for index in range(int(rng.integers(2, 6))):
        gain = rng.choice([0.0, 0.0, 0.02, 0.1]) if index else 0.0
        right = {c: int(rng.binomial(n, min(base[c] + gain, 1))) for c, n in sizes.items()}
        scores = {c: (shown(k, sizes[c], digits, mode),) for c, k in right.items()}
        counts = {c: (k,) for c, k in right.items()} if rng.random() < 0.5 else {}
        settings = {"lr": index} if index else {}
        exact = sum((Decimal(100 * right[c]) / sizes[c] for c in sizes), Decimal(0)) / len(sizes)
        says = exact.quantize(Decimal(1).scaleb(-digits), rounding=mode)
        run = ReportedRun(
            name=f"run{index}", scores=scores, right=counts, items=sizes, trained=index > 0,
            settings={k: Decimal(v) if isinstance(v, int) else v for k, v in settings.items()},
        )  # fmt: skip
        marks = tuple(value for (value,) in scores.values())
        yield run, Rating(marks=marks, says=says, rounded=True)


def sound(seed: int) -> Reported:
    """One report, whose claims are those that its numbers carry."""
    runs, averages = zip(*runs_of(np.random.default_rng(seed)), strict=True)
    report = Reported(scoring=Scoring(control="run0"), runs=runs, ratings=averages)
    claims = tuple(
        ReportedComparison(
            run=pair.run.name, control=pair.control.name, says=verdict, cells=(cell,)
        )
        for pair in pairs(report)
        for cell, found in pair.by_cell.items()
        if (verdict := found.verdict if found.verdict in ("better", "worse") else "undecided")
    )
    return report.model_copy(update={"comparisons": claims})


def alarms(report: Reported) -> list[Finding]:
    return [flaw for flaw in audit(report) if flaw.severity != "note"]


@pytest.mark.parametrize("seeds", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_no_sound_report_gives_an_error_or_a_warning(seeds):
    found = {seed: alarms(sound(seed)) for seed in range(seeds)}
    wrong = {seed: [flaw.code for flaw in flaws] for seed, flaws in found.items() if flaws}
    assert len(wrong) <= seeds / 100, wrong


def test_every_claim_that_the_numbers_do_not_carry_is_found():
    """The same reports with a claim of one undecided cell."""
    asked = 0
    for seed in range(10):
        report = sound(seed)
        claims = [c for c in report.comparisons if c.says == "undecided"]
        for claim in claims[:3]:
            said = claim.model_copy(update={"says": "better"})
            asked += 1
            assert alarms(report.model_copy(update={"comparisons": (said,)}))
    assert asked > 15
