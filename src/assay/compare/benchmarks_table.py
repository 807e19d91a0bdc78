"""Runs or checkpoints on several benchmarks in one table, with the harmonic mean of their ratios.

The baseline is the control as it was measured, or a given figure for each benchmark. Scores and
verdicts are those of the benchmarks' own tables; each of those is a family of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.compare.table import Line, Table
from assay.errors import InputError, nearest
from assay.judge.averages import Harmonic, harmonic_of
from assay.judge.scores import ItemsDifferError, on_shared_items


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One run or checkpoint on all benchmarks."""

    name: str
    lines: tuple[Line | None, ...]
    """By benchmark; None where it was not measured."""
    ratios: tuple[float | None, ...]
    """Score over baseline by benchmark; None where there is no score or the baseline is 0."""
    harmonic: Harmonic | None
    problem: str
    """Why there is no harmonic mean: `not measured`, `baseline 0`, `scale`; "" if there is one."""


@dataclass(frozen=True, slots=True)
class BenchmarksTable:
    """The rows of several tables side by side."""

    tables: tuple[Table, ...]
    figures: Mapping[str, float]
    """The given baseline by evaluation; empty where the control is the baseline."""
    rows: tuple[BenchmarkRow, ...]
    control: str
    """The first row that was measured on all benchmarks, else the first."""

    @property
    def evaluations(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(table.evaluation.name for table in self.tables)


def benchmarks_table(
    tables: Sequence[Table], figures: Mapping[str, float] | None = None
) -> BenchmarksTable:
    """The tables of several benchmarks side by side, rows by their names.

    `figures` gives a baseline for every evaluation, by the name of the evaluation or of its
    benchmark. Raises InputError for other names or a figure that is not above 0.
    """
    given = _by_evaluation(tables, figures) if figures else {}
    names = dict.fromkeys(line.name for table in tables for line in table.lines)
    by_name = [{line.name: line for line in table.lines} for table in tables]
    lines = {name: tuple(lines.get(name) for lines in by_name) for name in names}
    control = next((name for name in names if None not in lines[name]), next(iter(names)))
    baselines: list[Line | float | None] = list(given.values()) or list(lines[control])
    rows = [
        BenchmarkRow(name, found, _ratios(found, baselines), *_harmonic(found, baselines))
        for name, found in lines.items()
    ]
    return BenchmarksTable(tuple(tables), given, tuple(rows), control)


def _by_evaluation(tables: Sequence[Table], figures: Mapping[str, float]) -> dict[str, float]:
    """The figure of every table, in their order."""
    records = [table.evaluation for table in tables]
    known = {name for record in records for name in (record.name, record.benchmark)}
    for name, figure in figures.items():
        if name not in known:
            fix = nearest(name, sorted(record.name for record in records))
            raise InputError(f"{name!r} is not compared", field="--ratios-to", fix=fix)
        if not 0 < figure <= 1:
            fix = "give a score as a share, such as 0.716"
            raise InputError(f"{name}={figure:g} is no baseline", field="--ratios-to", fix=fix)
    found = {
        record.name: figures.get(record.name, figures.get(record.benchmark)) for record in records
    }
    missing = [name for name, figure in found.items() if figure is None]
    if missing:
        fix = f"give {missing[0]}=FIGURE as well, or leave --ratios-to out"
        raise InputError(f"has no figure for {missing[0]!r}", field="--ratios-to", fix=fix)
    return {name: float(figure) for name, figure in found.items() if figure is not None}


def _ratios(
    lines: Sequence[Line | None], baselines: Sequence[Line | float | None]
) -> tuple[float | None, ...]:
    """Score over baseline by benchmark, on the items that both were asked."""
    return tuple(_ratio(line, base) for line, base in zip(lines, baselines, strict=True))


def _ratio(line: Line | None, base: Line | float | None) -> float | None:
    if line is None or base is None or line.scores is None:
        return None
    if not isinstance(base, Line):
        return line.score / base
    assert base.scores is not None, "every line of a table has its scores"
    one, other = on_shared_items(line.scores, base.scores)
    return one.mean / other.mean if other.mean else None


def _harmonic(
    lines: Sequence[Line | None], baselines: Sequence[Line | float | None]
) -> tuple[Harmonic | None, str]:
    """The harmonic mean, or why there is none."""
    parts = [line.scores for line in lines if line is not None and line.scores is not None]
    known = [base.scores if isinstance(base, Line) else base for base in baselines]
    figures = [base for base in known if base is not None]
    if min(len(parts), len(figures)) < len(lines):
        return None, "not measured"
    if any(part.bounds != (0.0, 1.0) for part in parts):
        return None, "scale"
    try:
        return harmonic_of(parts, figures), ""
    except ItemsDifferError:
        raise
    except InputError:
        return None, "baseline 0"
