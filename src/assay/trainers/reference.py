"""What a tool's keys and metrics are here, line by line: `assay engines keys TOOL`."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from assay.errors import look_up
from assay.trainers.register import TRAINERS
from assay.trainers.table import table
from assay.trainers.translation import Cell


@dataclass(frozen=True, slots=True)
class Line:
    """One line for people."""

    ours: str
    """A setting of a stage, a metric, or in parentheses what is neither."""
    theirs: tuple[str, ...]
    how: str
    unlike: str


def lines(tool: str, wanted: str | None = None) -> list[Line]:
    """All lines of a tool, or those with a key of either side that holds `wanted`, each once.
    Raises UnknownName."""
    trainer = look_up(TRAINERS, tool, "trainer")
    found = [line for method in trainer.methods for line in of_method(tool, method)]
    for each in trainer.output.metrics:
        how = ("1 less it" if each.rest else "as it is") if each.ours else ""
        found.append(Line(each.ours or "(metric)", (each.theirs,), how, each.unlike))
    return [*dict.fromkeys(each for each in found if wanted is None or names(each, wanted))]


def names(line: Line, wanted: str) -> bool:
    """Whether a line is of a key; the tool's may be patterns."""
    return any(wanted in key or fnmatchcase(wanted, key) for key in (line.ours, *line.theirs))


def of_method(tool: str, method: str) -> Iterator[Line]:
    """The lines of one method."""
    own = table(tool, method)
    for key, cell in own.cells.items():
        parts = [("refused: " if each.refused else "") + each.what for each in cell.unlike]
        yield Line(key, cell.keys, words(cell), "; ".join(parts))
    for why, keys in own.idle.items():
        yield Line("(without effect)", tuple(keys.split()), why, "")
    for switch, keys in own.gated.items():
        yield Line("(off)", tuple(keys.split()), f"acts where {switch} is another", "")


def words(cell: Cell) -> str:
    """How a value is written."""
    if cell.how or not cell.keys:
        return cell.how
    if cell.names is not None:
        pairs = ((own, v if isinstance(v, tuple) else (v,)) for own, v in cell.names.items())
        return "; ".join(f"{own}: {' '.join(map(str, theirs))}" for own, theirs in pairs)
    return "as it is" if cell.none is None else f"omitted: {cell.none:g}"
