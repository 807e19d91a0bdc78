"""Fairness before figures: everything in which two runs differ, and what of it was declared.

Compares two manifests as nested tables. Reading manifests from disk is the lab's part.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["declared", "allowed", "note", "confound"]

NOTES = frozenset({"machine", "packages", "time", "name", "about"})
"""Parts of a manifest whose differences are shown and do not make a comparison unfair."""

SPEC_WORDS = {"stage": "stages", "evaluate": "evaluation", "model": "base_weights"}
"""An experiment file names the parts of a manifest by these words, and `vary` may use them."""

ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Confound:
    """One difference between two manifests. `kind` says whether it is a confound after all."""

    path: str
    """Dotted path of the value."""
    control: Any
    """The control's value; ABSENT when it has none."""
    other: Any
    kind: Kind


def differences(
    control: Mapping[str, Any],
    other: Mapping[str, Any],
    vary: Sequence[str] = (),
    allow: Sequence[str] = (),
) -> list[Confound]:
    """Every value in which two manifests differ, by dotted path.

    `vary` and `allow` are dotted prefixes, in the words of the manifest or of the experiment file:
    what the experiment is about, and what the reader accepts knowingly. A prefix covers whole path
    parts: `stages.rl.kl` covers `stages.rl.kl.coef` and not `stages.rl.klein`.
    """
    left, right = dict(_leaves(control)), dict(_leaves(other))
    found = []
    for path in sorted(left.keys() | right.keys()):
        before, after = left.get(path, ABSENT), right.get(path, ABSENT)
        if before != after:
            kind = _kind(path, vary, allow)
            found.append(Confound(".".join(path), before, after, kind))
    return found


def confounds(
    control: Mapping[str, Any], other: Mapping[str, Any], vary: Sequence[str] = ()
) -> list[Confound]:
    """The differences that make two runs not comparable: neither declared nor mere notes."""
    return [c for c in differences(control, other, vary) if c.kind == "confound"]


def _leaves(
    table: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths and values of a nested table; an empty table is a value."""
    for key, value in table.items():
        path = (*above, str(key))
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path)
        else:
            yield path, value


def _kind(path: tuple[str, ...], vary: Sequence[str], allow: Sequence[str]) -> Kind:
    """What a difference at this path means."""
    if _covered(path, vary):
        return "declared"
    if _covered(path, allow):
        return "allowed"
    return "note" if path[0] in NOTES else "confound"


def _covered(path: tuple[str, ...], prefixes: Sequence[str]) -> bool:
    """Whether one of the dotted prefixes leads to this path."""
    # As one text, because a name in a path may have a dot itself: the reward "tools.ast".
    dotted = ".".join(path) + "."
    for prefix in prefixes:
        first, dot, rest = prefix.partition(".")
        if dotted.startswith(f"{SPEC_WORDS.get(first, first)}{dot}{rest}."):
            return True
    return False
