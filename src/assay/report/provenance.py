"""What a run was made of: its data sets with what was left out, and its fingerprints.

Reads the manifest as nested tables and takes what it finds there; it checks nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.report.checked import shared_lines
from assay.report.facts import RunFacts
from assay.report.words import Words, number, visible
from assay.runs.manifest_file import CHECKED

HASH_LENGTH = 32
SHOWN_VALUE = 200


@dataclass(frozen=True, slots=True)
class DataView:
    """One data set in words."""

    name: str
    source: str
    about: str
    dropped: tuple[tuple[str, str], ...]
    leakage: tuple[str, ...]


Entry = tuple[str, str, bool]
"""Name, value, whether the value is a hash."""


def data_views(facts: RunFacts, words: Words) -> list[DataView]:
    """The experiment's data sets, with the counts that the manifest holds."""
    recorded = facts.manifest.get("data", {})
    views = []
    for name, spec in facts.experiment.data.items():
        found = recorded.get(name, {})
        dropped = {why: _count(rows) for why, rows in found.get("dropped", {}).items()}
        about = words("data.about_unknown")
        if "total" in found:
            about = words(
                "data.about",
                total=number(found["total"]),
                dropped=number(sum(dropped.values())),
                train=number(_count(found["train"])),
                dev=number(_count(found["dev"])),
            )
        against = ", ".join(spec.disjoint_from)
        leaked = sum(
            count for why, count in dropped.items() if any(b in why for b in spec.disjoint_from)
        )
        common = shared_lines(facts, name, words)
        leakage = [words("data.no_check")] if not against and not common else []
        if against and "total" in found:
            leakage = [words("data.disjoint", benchmarks=against, count=number(leaked))]
        shown = tuple((dropped_for(why, words), number(count)) for why, count in dropped.items())
        views.append(DataView(name, spec.source, about, shown, (*leakage, *common)))
    return views


def fingerprints(facts: RunFacts, words: Words) -> list[tuple[str, list[Entry]]]:
    """The manifest: its single values, then one list for each of its tables."""
    made_of = {k: v for k, v in facts.manifest.items() if k != CHECKED}
    single = {k: v for k, v in made_of.items() if not isinstance(v, Mapping)}
    groups = [(words("fingerprint.run"), single), *made_of.items()]
    return [(key, list(leaves(value))) for key, value in groups if _is_table(value)]


def leaves(value: Any, path: str = "") -> Iterator[Entry]:
    """The values of a nested table by dotted path; lists as their length and first members."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
        return
    text = visible(_plain(value)).replace("\n", " ")
    shown = text if len(text) <= SHOWN_VALUE else f"{text[:SHOWN_VALUE]} …"
    yield path, shown, len(text) >= HASH_LENGTH and " " not in text


def _plain(value: Any) -> str:
    if isinstance(value, list):
        few = ", ".join(map(str, value[:4]))
        return few if len(value) <= 4 else f"{few}, … ({len(value):,})"
    return str(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _count(rows: Any) -> int:
    """A number of rows, written as such, as a list of ids, or as a table with `rows`."""
    if isinstance(rows, Mapping):
        return _count(rows["rows"])
    return rows if isinstance(rows, int) else len(rows)


def dropped_for(why: str, words: Words) -> str:
    """The reason in the reader's language; what stands in brackets behind it is kept."""
    known = words.known("reason", why)
    reason, bracket, rest = why.rpartition(" (")
    if known != why or not bracket:
        return known
    return words.known("reason", reason) + bracket + rest
