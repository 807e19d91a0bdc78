"""A record in the making: what the parts of the Markdown reader add to, and its completion.

Scores are kept in percent. What two places say differently is kept as two mentions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from assay.data.reported.known import known
from assay.data.reported.markdown.names import Condition, condition_name
from assay.data.reported.record import (
    Comparison,
    Mention,
    Metric,
    Open,
    Reported,
    Run,
    Scoring,
    Verdict,
)

Parts = dict[str, list[Any]]


@dataclass(slots=True)
class DraftRun:
    """A run of which more may be learned further down."""

    line: int
    condition: Condition = field(default_factory=dict)
    settings: dict[str, str | Decimal] = field(default_factory=dict)
    scores: dict[str, tuple[Decimal, ...]] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    says: Verdict | None = None
    finished: bool = True


@dataclass(slots=True)
class Draft:
    """Everything recognised so far."""

    about: str
    text: str
    runs: dict[str, DraftRun] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    open: dict[str, Open] = field(default_factory=dict)
    parts: Parts = field(default_factory=dict)
    """All other parts of the record by their names there."""

    def run(self, name: str, line: int, fixed: Condition | None = None) -> DraftRun:
        """The run of that name, made where it is new."""
        return self.runs.setdefault(name, DraftRun(line, dict(fixed or {})))

    def add(self, kind: str, part: object) -> None:
        """Add a part once."""
        known_parts = self.parts.setdefault(kind, [])
        if part not in known_parts:
            known_parts.append(part)

    def left_open(self, place: str, count: int, line: int) -> None:
        """Count what is to be filled in at a place."""
        before = self.open.get(place)
        total = count + (before.count if before else 0)
        self.open[place] = Open(place=place, count=total, line=before.line if before else line)

    def score(
        self, run: str, cell: str, values: Sequence[Decimal], line: int, items: int | None = None
    ) -> None:
        """Add the printed values of a cell; another value for it becomes a contradiction."""
        entry = self.run(run, line)
        first = entry.scores.setdefault(cell, tuple(values))
        if first != tuple(values):
            key = cell or "score"
            for line_of, shown in ((entry.line, first), (line, tuple(values))):
                said = {key: " ".join(f"{value:f}" for value in shown)}
                place = f"line {line_of}"
                self.add("mentions", Mention(of=run, place=place, settings=said, line=line_of))
        if items:
            entry.items[cell] = items


def finished(draft: Draft) -> Reported:
    """The record that the draft came to."""
    _inherit(draft)
    benchmarks = known(draft.text)
    only = benchmarks[0] if len(benchmarks) == 1 else None
    runs = tuple(_run(draft, name) for name in draft.runs)
    scoring = Scoring(
        benchmark=", ".join(entry.name for entry in benchmarks),
        items=only.items if only else None,
        categories=only.categories if only else None,
        step=only.step if only else Decimal(1),
    )
    parts: dict[str, Any] = {kind: tuple(parts) for kind, parts in draft.parts.items()}
    return Reported(
        about=draft.about,
        scoring=scoring,
        runs=runs,
        metrics=tuple(draft.metrics.values()),
        open=tuple(draft.open.values()),
        **parts,
    )


def _inherit(draft: Draft) -> None:
    """Settings said of a wider condition hold for the narrower ones."""
    for run in draft.runs.values():
        for wider in draft.runs.values():
            if wider.condition and wider.condition.items() < run.condition.items():
                run.settings = {**wider.settings, **run.settings}


def _control(draft: Draft, name: str) -> str:
    """The one run called baseline or control that has a score of the same thing, else "".

    One that is called nothing else comes first; a second baseline is not compared with the first.
    """
    if is_control(name):
        return ""
    scored = draft.runs[name].scores.keys()
    named = [other for other in draft.runs if is_control(other)]
    shared = [other for other in named if scored & draft.runs[other].scores.keys()]
    plain = [other for other in shared if other.lower() in CONTROLS]
    chosen = plain or shared
    return chosen[0] if len(chosen) == 1 else ""


def has_control(draft: Draft) -> bool:
    """Whether a run of the report looks like the baseline of the others."""
    return any(is_control(name) and run.scores for name, run in draft.runs.items())


CONTROLS = ("baseline", "control", "base", "基线", "对照", "基准")


def is_control(name: str) -> bool:
    """Whether a run is called a baseline or a control."""
    return any(word in name.lower() for word in CONTROLS)


def _run(draft: Draft, name: str) -> Run:
    """The finished run."""
    entry = draft.runs[name]
    items = {cell: entry.items.get(cell) or _known_items(cell) for cell in entry.scores}
    return Run(
        name=name,
        line=entry.line,
        settings=entry.settings,
        scores=entry.scores,
        items={cell: count for cell, count in items.items() if count} or None,
        control=_control(draft, name),
        says=entry.says,
        finished=entry.finished,
    )


def _known_items(cell: str) -> int | None:
    """Items of the one benchmark that a cell's name holds."""
    found = known(cell)
    return found[0].items if len(found) == 1 else None


def name_condition(draft: Draft, fixed: Condition, line: int) -> str:
    """The name of a condition, which becomes a run of the draft."""
    name = condition_name(fixed)
    draft.run(name, line, fixed)
    return name


def compare(draft: Draft, run: str, control: str, line: int, vary: tuple[str, ...] = ()) -> None:
    """A comparison that the report draws, once for each pair."""
    pairs = [{c.run, c.control} for c in draft.parts.get("comparisons", ())]
    if run != control and {run, control} not in pairs:
        found = Comparison(run=run, control=control, line=line, vary=vary)
        draft.add("comparisons", found)
