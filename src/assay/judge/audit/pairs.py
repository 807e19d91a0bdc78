"""The comparisons of a report: runs against their control as one family, and those it draws itself.

Each is two binomials without items, labelled unpaired. What they mean for the report's words is
said by the rules.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay.data.reported.record import Comparison as Claim
from assay.data.reported.record import Reported, Run, Verdict
from assay.judge.audit.cells import cells, compare_cells
from assay.judge.confounds import ABSENT, Confound, differences
from assay.judge.holm import adjust_family
from assay.judge.verdict import Comparison


@dataclass(frozen=True, slots=True)
class Pair:
    """A run against another, cell by cell."""

    run: Run
    control: Run
    says: Verdict | None
    """What the report says of the run."""
    by_cell: Mapping[str, Comparison]
    """The cells that both have, with Holm-adjusted p-values; without those of unknown size."""
    differs: tuple[Confound, ...] = ()
    """Settings known of both runs that differ, without those that the comparison is about."""
    vary: tuple[str, ...] = ()
    line: int | None = None

    @property
    def shared_cells(self) -> int:
        """Number of cells that both have a score of, whether or not it can be judged."""
        return len(self.run.scores.keys() & self.control.scores.keys())

    @property
    def confounded(self) -> bool:
        """Whether more differs than the one thing that a comparison may be about."""
        return len(self.differs) + bool(self.vary) > 1

    @property
    def name(self) -> str:
        """`run / control`."""
        return f"{self.run.name} / {self.control.name}"


def pairs(report: Reported) -> list[Pair]:
    """Every comparison of the report: families against a control, then the report's own."""
    return [*families(report), *(drawn(report))]


def families(report: Reported) -> Iterator[Pair]:
    """Runs against their control. All cells of all runs with one control are one family."""
    members: dict[str, list[Run]] = {}
    for run in report.runs:
        name = report.scoring.control if run.control is None else run.control
        if name and name != run.name and run.scores:
            members.setdefault(name, []).append(run)
    for name, runs in members.items():
        control = report.run(name)
        if control is not None:
            yield from _family(report, control, runs)


def _family(report: Reported, control: Run, runs: list[Run]) -> Iterator[Pair]:
    found = {run.name: _compare(report, control, run) for run in runs}
    flat = {f"{n}\n{cell}": c for n, by_cell in found.items() for cell, c in by_cell.items()}
    judged = adjust_family(flat)
    for run in runs:
        by_cell = {cell: judged[f"{run.name}\n{cell}"] for cell in found[run.name]}
        differs = known_differences(report, control, run)
        yield Pair(run, control, run.says, by_cell, differs, line=run.line)


def drawn(report: Reported) -> Iterator[Pair]:
    """The comparisons that the report draws between runs it has; cells are one family."""
    for claim in report.comparisons:
        run, control = report.run(claim.run), report.run(claim.control)
        if run is not None and control is not None:
            by_cell = adjust_family(_compare(report, control, run))
            differs = known_differences(report, control, run, claim.vary)
            yield Pair(run, control, claim.says, by_cell, differs, claim.vary, claim.line)


def absent(report: Reported, claim: Claim) -> list[str]:
    """The names of a claim that no run of the report has."""
    return [name for name in (claim.run, claim.control) if report.run(name) is None]


def settings_of(report: Reported, run: Run) -> dict[str, object]:
    """What the report says of a run, here and elsewhere; its own table comes first."""
    known: dict[str, object] = {}
    for settings in (run.settings, *(m.settings for m in report.mentions if m.of == run.name)):
        known = {**settings, **known}
    return known


def known_differences(
    report: Reported, control: Run, run: Run, vary: tuple[str, ...] = ()
) -> tuple[Confound, ...]:
    """The settings that are known of both runs and differ, those under test apart."""
    found = differences(settings_of(report, control), settings_of(report, run), vary)
    return tuple(c for c in found if ABSENT not in (c.control, c.other) and c.kind != "declared")


def _compare(report: Reported, control: Run, run: Run) -> dict[str, Comparison]:
    before, after = cells(report, control), cells(report, run)
    found = {cell: compare_cells(before[cell], after[cell]) for cell in before if cell in after}
    return {cell: comparison for cell, comparison in found.items() if comparison is not None}
