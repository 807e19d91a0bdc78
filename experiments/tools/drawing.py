"""Draws generated data from templates: the tables of the TOML files in `generated/`.

A table is filled in the order in which it is written, and later entries name earlier ones.

  "{name}"              the value of that name, of whatever type; within a longer text, its text
  "{name:lower}"        a form: lower, capital, listed (`1, 2 and 3`), joined (`1 and 2 and 3`)
  x.choice = [...]      one of the list, which is filled once it is chosen
  x.half = [...]        one of every other element: training and held-out data have other halves
  x.pool = "list"       the same of a list in `[values]`, none twice in a task while others are left
  x.integer = [a, b]    from a to below b (training even, held-out odd)
  x.between = [a, b]    from a to b, the same in training and held-out data
  x.decimal = [a, b]    as `integer`, plus 0.25, 0.5 or 0.75, so that it is written in one way
  x.sum = [...]         the sum of the elements
  x.float = "text"      the number that a text writes
  x.distinct = [n, t]   n different values of the template t
  x.some = [n, ...]     each of the others with an even chance, at most n; the first if none comes

The entries of `[values]`, those of the file and of `words.toml`, are drawn anew at every mention;
all others are bound. Pools, parities and halves keep training and held-out data apart: the two
share no call with a drawn value in it. What a scene asks for, and whether its calls work, is not
known here (`simulated`).
"""

import functools
import random
import string
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from assay.errors import InputError

FOLDER = Path(__file__).parent / "generated"
MOST = 20_000
"""Rows of one source."""
Side = Literal["train", "held_out"]
Item = TypeVar("Item")


@functools.cache
def tables(name: str) -> dict[str, Any]:
    """The tables of a file, its `values` joined with those of `words`; not to be changed."""
    read = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    shared = {} if name == "words" else tables("words")["values"]
    return {**read, "values": {**shared, **read.get("values", {})}}


def row_count(count: str, source: str, rows: str) -> int:
    """The number after `source` and a colon; `rows` names what it counts. Raises InputError."""
    if not count.isdecimal() or len(count) > len(str(MOST)) or not 0 < int(count) <= MOST:
        fix = f'write "{source}:500"; at most {MOST}'
        raise InputError(f"{count!r} is no number of {rows}", field="source", fix=fix)
    return int(count)


@dataclass
class Draw:
    """The random choices of one task."""

    random: random.Random
    side: Side
    taken: dict[str, set[str]] = field(default_factory=dict)
    """What the task has taken from each pool."""

    def half(self, items: Sequence[Item]) -> Sequence[Item]:
        """The elements that belong to this side."""
        return items[0::2] if self.side == "train" else items[1::2]

    def pool(self, name: str, items: Sequence[str]) -> str:
        """One of the side's half of a pool that is not taken, or of all of it when it is empty."""
        own, used = self.half(items), self.taken.setdefault(name, set())
        chosen = self.random.choice([item for item in own if item not in used] or own)
        used.add(chosen)
        return chosen

    def integer(self, low: int, high: int) -> int:
        """From `low` to below `high`: even in training, odd in held-out data."""
        return self.random.randrange(low, high) // 2 * 2 + (self.side == "held_out")


class Names(dict[str, Any]):
    """What templates may name: bound values, and the `values` of a file, drawn at every mention."""

    def __init__(self, draw: Draw, values: Mapping[str, Any], bound: Mapping[str, Any]):
        """`bound` is copied. Naming what is in neither raises KeyError."""
        super().__init__(bound)
        self.draw, self.file_values = draw, values

    def __missing__(self, name: str) -> Any:
        """A value of the file, drawn now."""
        return self.fill(self.file_values[name])

    def bind(self, table: Mapping[str, Any]) -> "Names":
        """These names with those of a filled table."""
        inner = Names(self.draw, self.file_values, self)
        for name, template in table.items():
            inner[name] = inner.fill(template)
        return inner

    def fill(self, template: Any) -> Any:
        """The template's value: texts formatted, tables with the key of a kind drawn."""
        match template:
            case str():
                return self._text(template)
            case list():
                return [self.fill(each) for each in template]
            case dict():
                kind = next(iter(template), "")
                if len(template) == 1 and kind in KINDS:
                    return KINDS[kind](self, template[kind])
                return {str(self.fill(key)): self.fill(each) for key, each in template.items()}
        return template

    def _text(self, template: str) -> Any:
        match list(FORMATTER.parse(template)):
            case [("", str(name), "", None)]:
                return FORMATTER.get_field(name, (), self)[0]
        return FORMATTER.vformat(template, (), self)


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        form = FORMS.get(format_spec)
        return form(value) if form is not None else format(value, format_spec)


def _listed(items: Sequence[Any]) -> str:
    return ", ".join(map(str, items[:-1])) + f" and {items[-1]}"


def _joined(items: Sequence[str]) -> str:
    return " and ".join(item.replace("_", " ") for item in items)


FORMATTER = _Formatter()
FORMS: Mapping[str, Callable[[Any], str]] = {
    "lower": str.lower,
    "capital": str.capitalize,
    "listed": _listed,
    "joined": _joined,
}


def _choice(names: Names, options: Any) -> Any:
    # Chosen before it is filled, so that the other options draw nothing.
    listed = names.fill(options) if isinstance(options, str) else options
    return names.fill(names.draw.random.choice(listed))


def _decimal(names: Names, bounds: Sequence[int]) -> float:
    return names.draw.integer(*bounds) + names.draw.random.choice((0.25, 0.5, 0.75))


def _distinct(names: Names, template: tuple[int, str]) -> list[Any]:
    found: list[Any] = []
    while len(found) < template[0]:
        new = names.fill(template[1])
        if new not in found:
            found.append(new)
    return found


def _some(names: Names, options: Sequence[Any]) -> list[Any]:
    most, *items = options
    return [item for item in items if names.draw.random.choice((True, False))][:most] or items[:1]


KINDS: Mapping[str, Callable[[Names, Any], Any]] = {
    "choice": _choice,
    "half": lambda names, items: names.draw.random.choice(names.draw.half(items)),
    "pool": lambda names, name: names.draw.pool(name, names.file_values[name]),
    "integer": lambda names, bounds: names.draw.integer(*bounds),
    "between": lambda names, bounds: names.draw.random.randint(*bounds),
    "decimal": _decimal,
    "sum": lambda names, parts: sum(names.fill(parts)),
    "float": lambda names, text: float(names.fill(text)),
    "distinct": _distinct,
    "some": _some,
}
"""What the single key of a table draws."""
