"""Translates the settings of a stage into the words of another trainer, by a table of rows.

A table is data: for each key of the stage the other tool's keys, how its value is written there,
and what differs. A difference is listed; where the tool has nothing that corresponds, the export is
refused until the key is allowed by name. Tables are in `trl`, `swift` and `verl`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from assay.errors import InputError, nearest
from assay.trainers.settings import Settings

When = Callable[[Settings], bool]
Values = Mapping[str, Any]


def always(settings: Settings) -> bool:
    """For what differs whatever is set."""
    return True


def nothing(settings: Settings) -> Values:
    """For keys that write nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class Unlike:
    """What is not the same over there."""

    what: str
    """In a sentence without its end."""
    when: When = always
    refused: bool = False
    """Nothing corresponds: the key has to be allowed by name."""


FLOAT32 = Unlike("computes in float32 without a GPU; Assay in bfloat16 on a CPU that gains by it")
"""Of number formats, where the tool is told so."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a translation table."""

    key: str
    """Of the stage, dotted; in parentheses, what Assay always does and the tool does by default
    not."""
    theirs: str = ""
    """The tool's keys, for the page."""
    how: str = ""
    """How the value is converted, for the page."""
    values: Callable[[Settings], Values] = nothing
    unlike: tuple[Unlike, ...] = ()
    idle: Mapping[str, str] = field(default_factory=dict)
    """Keys of the tool that change nothing of what is learned, in one text by the reason; a key may
    be a pattern."""
    gated: Mapping[str, str] = field(default_factory=dict)
    """Keys of the tool that act where another does, likewise by that other key, which an export
    writes as it does not act."""


def fixed(values: Values) -> Row:
    """The row of what Assay never does, with the values by which a tool does not either."""
    return Row(
        "(nothing else)", ", ".join(values), "what Assay does, or does not do", lambda s: values
    )


def listed(groups: Mapping[str, str], key: str) -> str | None:
    """By what a key is listed in a row's `idle` or `gated`."""
    held = (by for by, keys in groups.items() if any(fnmatchcase(key, k) for k in keys.split()))
    return next(held, None)


def their_keys(row: Row) -> list[str]:
    """The tool's keys that a row names on the page; one that begins with a dot has the parents of
    the one before it."""
    found: list[str] = []
    for key in row.theirs.replace(";", ",").split(", "):
        parent = found[-1].rpartition(".")[0] if found else ""
        found.append(parent + key if key.startswith(".") else key)
    return found


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that does not mean the same in the tool."""

    key: str
    what: str
    allowed: bool = False
    """Nothing corresponds to it, and the user allowed that by name."""


@dataclass(frozen=True)
class Translated:
    """The settings of a stage in a tool's words."""

    values: Values
    """The tool's configuration, by its keys."""
    differences: tuple[Difference, ...]


def translated(
    rows: Sequence[Row], settings: Settings, tool: str, allowed: Collection[str] = ()
) -> Translated:
    """A stage in the words of `tool`. Raises InputError for a setting to which nothing corresponds
    and that neither the stage nor `allowed` allows, for an `allowed` key that needs no permission,
    and for a key of the stage's `allow` that is none.
    """
    named = settings.stage.allow or ()
    for key in named:
        if key not in (keys := [row.key for row in rows]):
            place = f"stage.{settings.name}.allow"
            raise InputError(f"{key!r} is no setting", field=place, fix=nearest(key, keys))
    values: dict[str, Any] = {}
    differences: list[Difference] = []
    for row in rows:
        found = [each for each in row.unlike if each.when(settings)]
        refused = next((each for each in found if each.refused), None)
        if refused is not None and row.key not in (*allowed, *named):
            place = f"stage.{settings.name}.{row.key}"
            in_file = f'allow = ["{row.key}"] in the stage'
            how = in_file if settings.stage.trainer else f"--allow {row.key}"
            fix = f"{how} lists it as a difference"
            raise InputError(f"{tool} {refused.what}", field=place, fix=fix)
        differences += [Difference(row.key, each.what, each.refused) for each in found]
        values |= row.values(settings)
    needed = [each.key for each in differences if each.allowed]
    for key in allowed:
        if key not in needed:
            fix = nearest(key, needed) if needed else "leave it out"
            problem = f"{key!r} needs no permission to go to {tool}"
            raise InputError(problem, field="--allow", fix=fix)
    return Translated(values, tuple(differences))
