"""Describes each setting once for all tools: a row of Assay's key with a cell for TRL, ms-swift and
verl, which export writes and import reads back.

A cell has the tool's keys, how a value is written there, and what differs. A difference is listed;
where the tool has nothing that corresponds, an export is refused until the key is allowed by name.
The rows are in settings.toml, which `table` reads.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from assay.errors import InputError, nearest
from assay.trainers.settings import Settings

Values = Mapping[str, Any]
"""A tool's configuration by its own keys, dotted where they are nested."""


@dataclass(frozen=True, slots=True)
class Unlike:
    """What is not the same over there."""

    what: str
    """In a sentence without its end."""
    when: Callable[[Settings], bool] | None = None
    """Omitted: where the setting is set."""
    refused: bool = False
    """Nothing corresponds: the key has to be allowed by name."""

    def holds(self, settings: Settings, key: str) -> bool:
        """Whether it is so of a stage's setting."""
        if self.when is not None:
            return self.when(settings)
        return settings.value(key) not in (None, False, 0)


@dataclass(frozen=True)
class Cell:
    """What a tool has for a setting."""

    keys: tuple[str, ...] = ()
    """The tool's."""
    how: str = ""
    """In words, where the value is not written as it is."""
    names: Values | None = None
    """The tool's values by Assay's; the first stands for what has none, and is allowed."""
    none: Any = None
    """The tool's value where Assay's is omitted."""
    value: Callable[[Settings], Any] | None = None
    """The tool's value, of a tuple one for each key, or all that is written; omitted: Assay's."""
    read: Callable[[Values], Any] | None = None
    """Assay's value by the tool's configuration; omitted: that of the first key, where no `value`
    was converted."""
    unlike: tuple[Unlike, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether its keys hold the setting's own value."""
        return bool(self.keys) and not self.how and self.value is None

    def written(self, settings: Settings, key: str) -> Values:
        """What an export writes for Assay's `key`."""
        if self.value is None and not self.is_plain:
            return {}
        value = settings.value(key) if self.value is None else self.value(settings)
        if isinstance(value, Mapping):
            return value
        if self.names is not None:
            value = self.names.get(value, next(iter(self.names.values())))
        value = self.none if value is None else value
        if isinstance(value, tuple) and len(self.keys) > 1:
            return dict(zip(self.keys, value, strict=True))
        return dict.fromkeys(self.keys, [*value] if isinstance(value, tuple) else value)

    def told(self, config: Values) -> Any:
        """Assay's value by a tool's configuration. Raises KeyError where that does not tell it, or
        tells another kind of value than the tool writes."""
        try:
            if self.read is not None:
                return self.read(config)
            first = config[self.keys[0]]
            if self.names is None:
                return None if first == self.none else first
            values = {own: v if isinstance(v, tuple) else (v,) for own, v in self.names.items()}
            found = [own for own, theirs in values.items() if theirs[0] == first]
            if len(found) > 1:  # the other keys tell which
                all_ = tuple(config[key] for key in self.keys)
                found = [own for own in found if values[own] == all_]
            return dict(enumerate(found))[0]
        except (TypeError, ZeroDivisionError, AttributeError) as error:
            raise KeyError(self.keys) from error


@dataclass(frozen=True)
class Table:
    """What a tool has for the stages of a method."""

    cells: Mapping[str, Cell]
    """By Assay's key, in the order of writing."""
    idle: Mapping[str, str] = field(default_factory=dict)
    """Keys of the tool that change nothing of what is learned, in one text by the reason; a key may
    be a pattern."""
    gated: Mapping[str, str] = field(default_factory=dict)
    """Keys of the tool that act where another does, likewise by that other key, which an export
    writes as it does not act."""

    def written(self, settings: Settings) -> Values:
        """All that an export writes."""
        found: dict[str, Any] = {}
        for key, cell in self.cells.items():
            found |= cell.written(settings, key)
        return found

    def unlike(self, settings: Settings) -> list[tuple[str, Unlike]]:
        """What differs of a stage, by Assay's keys."""
        pairs = [(key, each) for key, cell in self.cells.items() for each in cell.unlike]
        found = {(k, each.what): (k, each) for k, each in pairs if each.holds(settings, k)}
        return [*found.values()]

    def is_idle(self, key: str) -> bool:
        """Whether a key of the tool changes nothing of what is learned."""
        return listed(self.idle, key) is not None


def listed(groups: Mapping[str, str], key: str) -> str | None:
    """By what a key is listed in a table's `idle` or `gated`."""
    held = (by for by, keys in groups.items() if any(fnmatchcase(key, k) for k in keys.split()))
    return next(held, None)


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
    differences: tuple[Difference, ...]


def translated(
    table: Table, settings: Settings, tool: str, allowed: Collection[str] = ()
) -> Translated:
    """A stage in the words of `tool`. Raises InputError for a setting to which nothing corresponds
    and that neither the stage nor `allowed` allows, for an `allowed` key that needs no permission,
    and for a key of the stage's `allow` that is none.
    """
    named = settings.stage.allow or ()
    for key in named:
        if key not in table.cells:
            known = [each for each in table.cells if not each.startswith("(")]
            place, fix = f"stage.{settings.name}.allow", nearest(key, known)
            raise InputError(f"{key!r} is no setting", field=place, fix=fix)
    found = table.unlike(settings)
    for key, each in found:
        if each.refused and key not in (*allowed, *named):
            in_file = f'allow = ["{key}"] in the stage'
            how = in_file if settings.stage.trainer else f"--allow {key}"
            place, fix = f"stage.{settings.name}.{key}", f"{how} lists it as a difference"
            raise InputError(f"{tool} {each.what}", field=place, fix=fix)
    differences = tuple(Difference(key, each.what, each.refused) for key, each in found)
    refuse_needless(allowed, [each.key for each in differences if each.allowed], tool)
    return Translated(table.written(settings), differences)


def refuse_needless(allowed: Collection[str], needed: Sequence[str], tool: str) -> None:
    """Raise InputError for a key that is allowed and needs no permission."""
    for key in allowed:
        if key not in needed:
            fix = nearest(key, needed) if needed else "leave it out"
            problem = f"{key!r} needs no permission to go to {tool}"
            raise InputError(problem, field="--allow", fix=fix)
