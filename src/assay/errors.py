"""The two ways Assay stops: the user's input is wrong (exit code 2), or a run failed (exit code 1).

Every package raises a subclass defined beside the code that knows the problem; the command line
prints the message as one line. Nothing here catches anything.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

Entry = TypeVar("Entry")

MOST_NAMES = 20
"""Known names that an error lists: a benchmark has thousands of items, a message one line."""
FEW_NAMES = 12
"""So few known names are listed even where one of them is close."""
MOST_CHARACTERS = 2000
"""Of what an error says is wrong."""


Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: its code, which words it in every language of the pages, and the values that
    fill the words. A check, which speaks English alone, writes the words themselves.

    Among the values, `template` names other words of the evidence than those of the code, `advice`
    the fixes, and `words` the values that are words of the catalogue themselves.
    """

    severity: Severity
    what: str = ""
    evidence: str = ""
    fix: str = ""
    code: str = field(default="", repr=False)
    values: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


def finding(code: str, severity: Severity, /, **values: Any) -> Finding:
    """A finding that pages word by its code."""
    return Finding(severity, code=code, values=values)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings with errors first, then warnings, then notes; otherwise in order."""
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda each: order.index(each.severity))


class AssayError(Exception):
    """Something stopped a command; the message is one line fit to be shown to a user."""

    exit_code = 1
    each: "tuple[AssayError, ...]" = ()
    """The single problems, where the error stands for several."""


class RunFailure(AssayError):
    """A failure at run time: what was recorded so far is kept."""

    guards: tuple[str, ...] = ()
    """The guards of the experiment that stopped the run, by name."""


class InputError(AssayError):
    """Bad input: names the place, the problem and the fix."""

    exit_code = 2
    whole = False
    """Whether `field` counts from the root of the experiment file."""

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        fix: str | None = None,
    ):
        """`file`, `line` and `field` locate the problem; `fix` says what to do about it."""
        place = str(file) if file is not None else ""
        if line is not None:
            place += f":{line}"
        parts = [cut(part) for part in (place, field, problem) if part]
        super().__init__(": ".join(parts) + (f" ({fix})" if fix else ""))
        self.file, self.line, self.field = file, line, field
        self.problem, self.fix = problem, fix


@contextmanager
def within(place: str) -> Iterator[None]:
    """Inside, an InputError that names neither a file nor a table is one of a field of `place`."""
    try:
        yield
    except InputError as error:
        field, root = error.field or "", place.partition(".")[0]
        if error.file is None and not error.whole and not field.startswith(f"{root}."):
            field = f"{place}.{field}" if field else place
            InputError.__init__(error, error.problem, field=field, fix=error.fix)
        error.whole = root != "options"
        raise


def cut(text: str) -> str:
    """The two ends of a text that is longer than a message can be: it holds what somebody sent."""
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else f"{text[:half]} ... {text[-half:]}"


def look_up(register: Mapping[str, Entry], name: str, kind: str, empty: str = "") -> Entry:
    """`register[name]`; `kind` says in the message what the name is of.

    Raises InputError with the nearest names; of an `empty` register with its fix, the name in it.
    """
    if name not in register:
        fix = nearest(name, register) if register or not empty else empty.format(name)
        raise InputError(f"unknown {kind} {name!r}", fix=fix)
    return register[name]


def nearest(word: str, known: object) -> str:
    """A phrase that offers the known names closest to `word`, for an error's fix."""
    import difflib

    names = sorted(str(name) for name in known)  # type: ignore[attr-defined]
    alike = {_loosely(name): name for name in names}
    close = [alike[n] for n in difflib.get_close_matches(_loosely(word), alike, n=3, cutoff=0.5)]
    if close:
        guess = "did you mean " + " or ".join(repr(name) for name in close) + "?"
        few = len(close) < len(names) <= FEW_NAMES
        return guess + (" known: " + ", ".join(names) if few else "")
    return "known: " + listed(names)


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """The first names, and how many follow."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def time_range(low: float, high: float) -> str:
    """Seconds from `low` to `high`, at least 2, in words: "4 to 9 seconds", "5 to 11 minutes"."""
    unit, word = (60, "minutes") if high >= 120 else (1, "seconds")
    ends = f"{low / unit:.0f}", f"{max(high / unit, 2):.0f}"
    if ends[0] == "0":
        return f"under {ends[1]} {word}"
    return f"{' to '.join(ends) if ends[0] != ends[1] else ends[0]} {word}"


def _loosely(name: str) -> str:
    """A name without what hands write in several ways: capitals, and dashes for underscores."""
    return name.lower().replace("-", "_")
