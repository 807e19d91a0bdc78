"""One finding of the audit, before it is put into words.

A key with numbers, so that every language brings its own sentences. No rule is here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from assay.data.reported.reported_record import Reported
from assay.judge.findings import Severity

Rule = Callable[[Reported], Iterable["Flaw"]]


@dataclass(frozen=True, slots=True)
class Flaw:
    """What a rule found, about what, with the figures that show it.

    An error cannot be true as printed; a warning is a conclusion that its numbers do not carry; a
    note is a figure that a reader needs beside what is printed.
    """

    key: str
    """Names the sentences: what was found, its evidence, what would settle it."""
    severity: Severity
    about: str
    """The run, comparison or metric, as the report names it."""
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)
    """What fills the sentences; differences, rates and limits in percent."""
    line: int | None = None
    """Line of the report."""
