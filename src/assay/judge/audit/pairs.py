"""The comparisons of a report: each run against its control as one family, and those it claims.

Two runs are one pair, compared as two binomials without items and labelled unpaired. Settings say
which factors differ; of a base model against a trained one the training is what is compared. The
rules decide what a pair means for the report's words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from assay.data.reported.reported_record import Comparison as Claim
from assay.data.reported.reported_record import Reported, Run, Verdict
from assay.judge.audit.cells import cells, compare_cells, compare_means
from assay.judge.confounds import ABSENT, Confound, differences
from assay.judge.families import adjust_family
from assay.judge.verdict import Comparison


def same_value(first: object, second: object) -> bool:
    """Whether two values of a setting are the same: equal numbers, or the same words."""
    words = [" ".join(str(value).split()).casefold() for value in (first, second)]
    try:
        return float(words[0]) == float(words[1])
    except ValueError:
        return words[0] == words[1]


def settings_of(report: Reported, run: Run) -> dict[str, object]:
    """The settings of a run from its own table, then from other mentions."""
    known: dict[str, object] = {}
    for settings in (run.settings, *(m.settings for m in report.mentions if m.of == run.name)):
        known = {**settings, **known}
    return known


def factors(
    report: Reported, control: Run, run: Run, vary: tuple[str, ...] = ()
) -> tuple[Confound, ...]:
    """The settings that are known of both runs and differ, those under test apart."""
    return tuple(
        found
        for found in differences(settings_of(report, control), settings_of(report, run), vary)
        if ABSENT not in (found.control, found.other)
        and found.kind != "declared"
        and not same_value(found.control, found.other)
    )


REVERSED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A run against another, cell by cell."""

    run: Run
    control: Run
    says: Verdict | None
    """The report's verdict on the whole run."""
    by_cell: Mapping[str, Comparison]
    """The cells that both have, with Holm-adjusted p-values; without those of unknown size."""
    overall: Comparison | None = None
    """The mean over these cells, where there are several and none is part of another."""
    differs: tuple[Confound, ...] = ()
    """Settings known of both runs that differ, without those that the comparison is about."""
    vary: tuple[str, ...] = ()
    line: int | None = None
    says_of: Mapping[str, Verdict] = field(default_factory=dict)
    """Cell -> the report's verdict on it alone."""
    claims: tuple[Claim, ...] = ()
    """The report's own comparisons of the two, all in the pair's direction."""

    @property
    def shared_cells(self) -> int:
        """Number of cells that both have a score of, whether or not it can be judged."""
        return len(self.run.scores.keys() & self.control.scores.keys())

    @property
    def claimed(self) -> bool:
        """Whether the report gives a verdict on the pair, or claims the comparison."""
        return bool(self.says or self.says_of or self.claims)

    @property
    def confounded(self) -> bool:
        """Whether more differs than the one thing that a comparison may be about."""
        return len(self.differs) + bool(self.vary) > 1

    @property
    def name(self) -> str:
        """`run / control`."""
        return f"{self.run.name} / {self.control.name}"

    def claim_of(self, cell: str) -> Claim | None:
        """The report's own comparison of a cell: the one that names it, else the one of all."""
        named = [claim for claim in self.claims if cell in claim.cells]
        whole = [claim for claim in self.claims if not claim.cells]
        return next(iter([*named, *whole]), None)


def pairs(report: Reported) -> list[Pair]:
    """Every comparison of the report, each once: families against a control, then its own."""
    found: dict[frozenset[str], Pair] = {}
    for pair in families(report):
        found.setdefault(frozenset((pair.run.name, pair.control.name)), pair)
    for claim in report.comparisons:
        run, control = report.run(claim.run), report.run(claim.control)
        if run is not None and control is not None and run.name != control.name:
            key = frozenset((claim.run, claim.control))
            if key not in found:
                cells = _compare(report, control, run)
                found[key] = Pair(run, control, None, adjust_family(cells), _mean(report, cells))
            found[key] = _with(found[key], claim)
    return [_of_settings(report, pair) for pair in found.values()]


def families(report: Reported) -> Iterator[Pair]:
    """Runs against their control. All cells of all runs with one control are one family."""
    members: dict[str, list[Run]] = {}
    for run in report.runs:
        name = report.scoring.control if run.control is None else run.control
        if name and name != run.name and (run.scores or run.right):
            members.setdefault(name, []).append(run)
    for name, runs in members.items():
        control = report.run(name)
        if control is None:
            continue
        found = {run.name: _compare(report, control, run) for run in runs}
        flat = {f"{n}\n{cell}": c for n, by_cell in found.items() for cell, c in by_cell.items()}
        judged = adjust_family(flat)
        means = {n: _mean(report, by_cell) for n, by_cell in found.items()}
        overall = adjust_family({n: mean for n, mean in means.items() if mean is not None})
        for run in runs:
            cells = {cell: judged[f"{run.name}\n{cell}"] for cell in found[run.name]}
            mean = overall.get(run.name)
            yield Pair(run, control, run.says, cells, mean, line=run.line, says_of=run.says_of)


def _mean(report: Reported, by_cell: Mapping[str, Comparison]) -> Comparison | None:
    """The mean over the cells of a pair; none over subsets that hold each other."""
    return None if report.scoring.nested else compare_means(list(by_cell.values()))


def _with(pair: Pair, claim: Claim) -> Pair:
    """The pair with one more claim of the report about it, turned where it is the other way."""
    if claim.run != pair.run.name:
        claim = _turned(claim)
    told = dict.fromkeys(claim.cells, claim.says) if claim.says else {}
    return replace(
        pair,
        says=pair.says or (None if claim.cells else claim.says),
        says_of={**{cell: says for cell, says in told.items() if says}, **pair.says_of},
        claims=(*pair.claims, claim),
        line=pair.line or claim.line,
    )


def _turned(claim: Claim) -> Claim:
    """The same claim with run and control exchanged."""
    says = REVERSED.get(claim.says, claim.says) if claim.says else None
    limits = tuple(-limit for limit in reversed(claim.interval))
    update = {"run": claim.control, "control": claim.run, "says": says, "interval": limits}
    return claim.model_copy(update=update)


def _of_settings(report: Reported, pair: Pair) -> Pair:
    """The pair with the factors it varies, and other differences."""
    named = next((claim.vary for claim in pair.claims if claim.vary), ())
    differs = factors(report, pair.control, pair.run, named)
    training = pair.control.trained != pair.run.trained
    return replace(pair, differs=differs, vary=named or ("training",) * training)


def _compare(report: Reported, control: Run, run: Run) -> dict[str, Comparison]:
    before, after = cells(report, control), cells(report, run)
    found = {cell: compare_cells(before[cell], after[cell]) for cell in before if cell in after}
    return {cell: comparison for cell, comparison in found.items() if comparison is not None}
