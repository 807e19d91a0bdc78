"""Whether a comparison lets a CI step pass: `assay compare --fail-on`.

Verdicts are made in `judge.verdict`; here they are only read.
"""

from collections.abc import Sequence
from typing import Literal

from assay.compare.table import Pairing, Table
from assay.errors import InputError

FailOn = Literal["worse", "undecided"]
FAILING = {
    "worse": ("worse", "not comparable"),
    "undecided": ("worse", "not comparable", "undecided"),
}
"""What has no verdict passes no gate."""


def failures(tables: Sequence[Table], fail_on: FailOn) -> list[str]:
    """A phrase for each run that fails against its control.

    Where non-inferiority was asked, that is the gate: a run passes if it is shown, whatever the
    verdict. Raises InputError where nothing was compared.
    """
    pairs = [(t, line.to_control) for t in tables for line in t.lines if line.to_control]
    if not pairs:
        raise InputError("no run was compared with a control", field="--fail-on")
    return [phrase for table, pair in pairs if (phrase := _failure(table, pair, fail_on))]


def _failure(table: Table, pair: Pairing, fail_on: FailOn) -> str:
    found, asked = pair.comparison, pair.comparison.non_inferiority
    place = f"{pair.control} on {table.evaluation.benchmark or table.evaluation.name}"
    if asked is not None:
        margin = f"at most {100 * asked.margin:g} points worse than"
        return "" if asked.shown else f"{pair.other} is not shown to be {margin} {place}"
    bad = found.verdict in FAILING[fail_on]
    return f"{pair.other} is {found.verdict} against {place}" if bad else ""
