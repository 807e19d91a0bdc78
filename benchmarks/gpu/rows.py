"""What a section finds: rows, written one by one, so that a section cut short keeps the earlier.

A check passes where its value is at most what is allowed; what is measured has no bound; what needs
something that is not there says so. Nothing here runs a model.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.driver import say

PASSED, FAILED, MEASURED, NOT_RUN = "passed", "FAILED", "measured", "not run"


@dataclass(frozen=True)
class Row:
    """A line of the page."""

    what: str
    status: str
    """One of the four above."""
    found: str
    allowed: str = ""


class Check(NamedTuple):
    """A value that is not to be above a bound."""

    name: str
    value: float
    allowed: float


@dataclass(frozen=True)
class Setup:
    """What every section is told."""

    section: str
    device: str
    small: bool = False
    """Tiny shapes, for a CPU."""
    fault: bool = False
    """One weight of the device's model is scaled: every check of a computation has to fail."""
    smollm2: str | None = None
    """A folder with SmolLM2-135M; without it, random weights of its shape."""
    trl: str | None = None
    """A Python that has TRL; without it, this one."""


@dataclass(frozen=True)
class Rows:
    """Adds rows to a file."""

    file: Path

    def add(self, row: Row) -> None:
        """Write a row and print it."""
        with self.file.open("a") as stream:
            stream.write(json.dumps(asdict(row)) + "\n")
        say(f"  {row.status:8} {row.what}: {row.found}")

    def check(self, what: str, value: float, allowed: float) -> None:
        """A value that is not to be above a bound; what is no number fails."""
        status = PASSED if value <= allowed else FAILED
        self.add(Row(what, status, f"{value:.2g}", f"{allowed:.2g}"))

    def worst(self, what: str, found: Sequence[Check]) -> None:
        """Of several checks the one that comes nearest to its bound, or farthest beyond it."""

        def share(check: Check) -> float:
            return check.value / check.allowed if check.allowed else check.value

        bad = [check for check in found if not check.value <= check.allowed]
        name, value, allowed = max(bad or found, key=share)
        status = FAILED if bad else PASSED
        self.add(Row(what, status, f"{value:.2g} ({name})", f"{allowed:.2g}"))

    def measured(self, what: str, found: str) -> None:
        """A number without a bound."""
        self.add(Row(what, MEASURED, found))

    def left_out(self, what: str, why: str) -> None:
        """What needs something that is not there."""
        self.add(Row(what, NOT_RUN, why))

    def failed(self, what: str, why: str) -> None:
        """What broke, by the first line of why."""
        first = (why.strip().splitlines() or ["it says nothing"])[0]
        self.add(Row(what, FAILED, f"failed: {first[:200]}"))

    @contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Make a row of what breaks inside, and go on."""
        try:
            yield
        except Exception as error:  # a part that breaks must not cost the parts behind it
            self.failed(what, f"{type(error).__name__}: {error}")

    def read(self) -> list[Row]:
        """All rows so far; a line that was being written when the process was killed is none."""
        if not self.file.exists():
            return []
        lines = self.file.read_text().splitlines(keepends=True)
        return [Row(**json.loads(line)) for line in lines if line.endswith("\n")]
