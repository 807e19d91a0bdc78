"""Collects the facts that tables, lists and sentences give, and completes them to a record.

Scores are kept in percent. Each cell has the score of one place; another value for it is kept as a
second mention, never dropped. For logs that do not print item counts, those of common benchmarks
are known here.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from assay.data.reported.reading import vocabulary
from assay.data.reported.reading.name_forms import Names, key_of, tidy
from assay.data.reported.reported_record import (
    Average,
    Mention,
    Metric,
    Open,
    Reported,
    Run,
    Scoring,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Known:
    """A benchmark: its items, the categories that its overall score averages, one item's step."""

    name: str
    items: int | None
    categories: int | None = None
    step: Decimal = Decimal(1)


KNOWN: tuple[tuple[re.Pattern[str], Known], ...] = (
    (
        re.compile(r"bfcl.{0,16}mu\w+[ _-]?turn[ _-]?base", re.I),
        Known("bfcl/multi_turn_base", 200, 4),
    ),
    (re.compile(r"gsm-?8k", re.I), Known("gsm8k", 1319)),
    (re.compile(r"math-?500", re.I), Known("math500", 500)),
    (re.compile(r"amc-?(?:20)?23", re.I), Known("amc23", 40)),
    (re.compile(r"aime-?(?:20)?2[45]", re.I), Known("aime", 30)),
    (re.compile(r"olympiad-?bench", re.I), Known("olympiadbench", 675)),
    (re.compile(r"(?:ok-?|text)?vqa(?:v2)?", re.I), Known("vqa", None, step=Decimal("0.1"))),
    (re.compile(r"human-?eval(?!\+)", re.I), Known("humaneval", 164)),
)
"""Sizes of the test sets as their authors publish them; VQA accuracy is 0, 0.3, 0.6, 0.9 or 1."""


def known(text: str) -> list[Known]:
    """The benchmarks that a text names, each once."""
    return list(dict.fromkeys(entry for pattern, entry in KNOWN if pattern.search(text)))


UNKNOWN_STEP = Decimal("0.01")
"""Step of an item's score where scores are means of an unknown number of repeats."""


@dataclass(frozen=True, slots=True)
class Score:
    """What one cell of a table, or one line of a list, gives of a run."""

    run: str
    cell: str
    """The benchmark; "" where the place names none."""
    line: int
    values: tuple[Decimal, ...] = ()
    right: int | None = None
    items: int | None = None
    failed: int | None = None
    left_out: int | None = None
    interval: tuple[Decimal, ...] = ()
    place: str = ""
    """The heading it stands under."""
    repeat: bool = False
    """Whether its row is marked as one of several repeats."""
    absent: bool = False
    """Whether the place says that there is no result."""


@dataclass(frozen=True, slots=True)
class Note:
    """Words in a table's row about its run."""

    run: str
    cell: str
    text: str
    line: int


@dataclass(slots=True)
class Draft:
    """Everything recognised so far."""

    about: str
    text: str
    scores: list[Score] = field(default_factory=list)
    settings: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Run, key, value, line."""
    averages: list[Average] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    controls: dict[str, str] = field(default_factory=dict)
    says: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    """A column's verdict on a run and a benchmark; on the whole run under ""."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Items of a benchmark as the text gives them; of all of them under ""."""
    place_sizes: dict[str, int] = field(default_factory=dict)
    """Items of what is scored under a heading."""
    repeats: int | None = None
    """Passes that each printed score is the mean of; 0 where their number is not given."""
    left_out: bool = False
    """Whether the text states that items without an answer are left out."""
    tableless: bool = False
    """Whether no table and no list gives a score."""
    said_left_out: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many, by run and benchmark."""
    metrics: dict[str, Metric] = field(default_factory=dict)
    open: dict[str, Open] = field(default_factory=dict)
    parts: dict[str, list[Any]] = field(default_factory=dict)
    """All other parts of the record by their names there."""

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

    def run_names(self) -> list[str]:
        """The runs that have a score, in the order of the report."""
        return list(dict.fromkeys(s.run for s in self.scores if s.values or s.right is not None))

    def cell_names(self) -> list[str]:
        """The benchmarks that have a score."""
        return list(dict.fromkeys(score.cell for score in self.scores if score.cell))

    def control(self) -> str:
        """The one run that is called a baseline; "" where there is none, or several."""
        named = [name for name in self.run_names() if vocabulary.CONTROL.search(name)]
        plain = [name for name in named if vocabulary.CONTROL.fullmatch(name)]
        chosen = plain or named
        return chosen[0] if len(chosen) == 1 else ""


def settle(draft: Draft) -> None:
    """Give one name to what is spelled in several ways, and a cell to scores without one."""
    spelled: dict[str, str] = {}
    for score in draft.scores:
        for name in (score.run, score.cell):
            spelled.setdefault(key_of(name), tidy(name))
    draft.scores = [
        replace(s, run=spelled[key_of(s.run)], cell=spelled[key_of(s.cell)]) for s in draft.scores
    ]
    bare = [score for score in draft.scores if not score.cell]
    places = list(dict.fromkeys(score.place for score in bare))
    if len(places) > 1 and not _one_thing(bare, places):
        draft.scores = [s if s.cell else replace(s, cell=tidy(s.place)) for s in draft.scores]
    runs = Names(draft.run_names())
    draft.settings = [
        (spelled.get(key_of(run)) or runs.whole(run) or run, key, value, line)
        for run, key, value, line in draft.settings
    ]
    draft.averages = [
        a.model_copy(
            update={"run": spelled[key_of(a.run)], "of": tuple(spelled[key_of(c)] for c in a.of)}
        )
        for a in draft.averages
        if key_of(a.run) in spelled
    ]
    draft.notes = [replace(n, run=spelled.get(key_of(n.run), n.run)) for n in draft.notes]


def _one_thing(scores: Sequence[Score], places: Sequence[str]) -> bool:
    """Whether tables without a benchmark's name score the same thing.

    They do where no run stands in two of them, or where one has the same score in two.
    """
    by_run: dict[str, list[Score]] = {}
    for score in scores:
        by_run.setdefault(score.run, []).append(score)
    twice = [group for group in by_run.values() if len({s.place for s in group}) > 1]
    agree = [g for g in twice if len({s.values for s in g}) < len({s.place for s in g})]
    return not twice or bool(agree)


def finished(draft: Draft) -> Reported:
    """The record that the draft came to."""
    runs = tuple(_run(draft, name) for name in draft.run_names())
    cells = {cell for run in runs for cell in (*run.scores, *run.right, *run.not_run)}
    names = {run.name for run in runs}
    averages = [
        a.model_copy(update={"of": tuple(cell for cell in a.of if cell in cells)})
        for a in draft.averages
        if a.run in names and a.of
    ]
    benchmarks = known(draft.text)
    scoring = Scoring(
        benchmark=", ".join(dict.fromkeys(entry.name for entry in benchmarks)),
        categories=benchmarks[0].categories if len(benchmarks) == 1 else None,
        repeats=draft.repeats or 1,
        step=UNKNOWN_STEP if draft.repeats == 0 else Decimal(1),
    )
    parts: dict[str, Any] = {kind: tuple(parts) for kind, parts in draft.parts.items()}
    return Reported(
        about=draft.about,
        scoring=scoring,
        runs=runs,
        metrics=tuple(draft.metrics.values()),
        averages=tuple(averages),
        open=tuple(draft.open.values()),
        **{**parts, "mentions": (*parts.get("mentions", ()), *_again(draft))},
    )


def _run(draft: Draft, name: str) -> Run:
    """The finished run; its first printed score of a cell counts, later ones are mentions."""
    own = [score for score in draft.scores if score.run == name]
    cells: dict[str, list[Score]] = {}
    for score in own:
        cells.setdefault(score.cell, []).append(score)
    kept = {cell: _kept(group, draft) for cell, group in cells.items()}
    kept = {cell: group for cell, group in kept.items() if group}
    line = min(score.line for score in own)
    scores = {c: tuple(v for s in group for v in s.values) for c, group in kept.items()}
    right = {c: tuple(s.right for s in group if s.right is not None) for c, group in kept.items()}
    failed = {c: g[0].failed for c, g in kept.items() if g[0].failed is not None}
    items = {c: _items(draft, c, group) for c, group in kept.items()}
    return Run(
        name=name,
        line=line,
        settings=_settings(draft, name),
        scores={cell: values for cell, values in scores.items() if values},
        items={cell: n for cell, n in items.items() if n} or None,
        right={c: n for c, n in right.items() if n and len(n) == len(scores[c] or n) and items[c]},
        failed=failed,
        left_out=_left_out(draft, name, kept, items),
        not_run=tuple(
            c
            for c, group in cells.items()
            if (c not in kept and any(s.absent for s in group))
            or _zero_not_run(draft, name, c, kept.get(c, []))
        ),
        intervals={c: g[0].interval for c, g in kept.items() if g[0].interval},
        control=draft.controls.get(name, "" if name == draft.control() else draft.control()) or "",
        says=draft.says.get((name, "")),
        says_of={
            cell: says
            for (run, cell), says in draft.says.items()
            if run == name and cell in kept and cell
        },
        lines={cell: group[0].line for cell, group in kept.items() if group[0].line != line},
    )


NOT_RUN = re.compile(
    r"(?<![a-z])(?:not|never|wasn't|isn't|weren't|hasn't been|have not been|yet to be) "
    r"(?:yet )?(?:been )?(?:run|measured|evaluated|tested|executed|done)(?![a-z])"
    r"|(?<![a-z])(?:skipped|pending|did not run|no run|unrun|to be run)(?![a-z])"
    r"|(?:没有?|未|尚未|还没有?|待)(?:跑|测|评测|运行|测试|评估|执行)|没来得及|跳过",
    re.I,
)


def _zero_not_run(draft: Draft, name: str, cell: str, group: Sequence[Score]) -> bool:
    """Whether a 0 stands for a benchmark that a remark beside it says was not run."""
    zero = bool(group) and all(value == 0 for score in group for value in score.values)
    said = [note.text for note in draft.notes if note.run == name and NOT_RUN.search(note.text)]
    return zero and bool(said) and len(draft.cell_names()) > 1


def _kept(group: Sequence[Score], draft: Draft) -> list[Score]:
    """The scores of a cell that are its repeats: rows marked so, else those of the first line."""
    found = [s for s in group if s.values or s.right is not None]
    if not found or all(s.repeat for s in found) or _all_repeated(draft):
        return found
    return found[:1]


def _all_repeated(draft: Draft) -> bool:
    """Whether every run has the same number of lines for a cell, more than one."""
    counts = Counter((s.run, s.cell) for s in draft.scores if s.values or s.right is not None)
    return len(counts) > 1 and len(set(counts.values())) == 1 and next(iter(counts.values())) > 2


def _again(draft: Draft) -> Iterator[Mention]:
    """Scores that are printed a second time, at another place."""
    first: dict[tuple[str, str], list[Score]] = {}
    for score in draft.scores:
        if score.values:
            first.setdefault((score.run, score.cell), []).append(score)
    for (run, cell), group in first.items():
        for score in group[len(_kept(group, draft)) :]:
            place = score.place or f"line {score.line}"
            yield Mention(
                of=run, place=place, cell=cell, scores={cell: score.values}, line=score.line
            )


def _items(draft: Draft, cell: str, group: Sequence[Score]) -> int | None:
    """Items of a cell: of its row, of the text, or of a benchmark whose size is published."""
    own = next((score.items for score in group if score.items), None)
    if own or vocabulary.NOT_TEST.search(cell):
        return own
    for name, size in draft.sizes.items():
        if name and key_of(name) == key_of(cell):
            return size
    here = {draft.place_sizes.get(score.place) for score in group} - {None}
    if len(here) == 1:
        return here.pop()
    found = known(cell or draft.text)
    published = found[0].items if len(found) == 1 else None
    return draft.sizes.get("") or published


def _left_out(
    draft: Draft, name: str, kept: dict[str, list[Score]], items: dict[str, int | None]
) -> dict[str, int]:
    """Items left out of each cell: a stated number, those without an answer, or those missing."""
    found = {}
    for cell, group in kept.items():
        whole, own = draft.sizes.get(cell) or draft.sizes.get(""), items[cell]
        said = draft.said_left_out.get((name, cell)) or draft.said_left_out.get((name, ""))
        if group[0].left_out is not None:
            found[cell] = group[0].left_out
        elif said is not None:
            found[cell] = said
        elif draft.left_out and group[0].failed is not None:
            found[cell] = group[0].failed
        elif draft.left_out and whole and own and whole > own:
            found[cell] = whole - own
    return found


def _settings(draft: Draft, name: str) -> dict[str, str | Decimal]:
    """The settings of a run; the first value of a key counts."""
    found: dict[str, str | Decimal] = {}
    for run, key, value, _ in draft.settings:
        if run == name:
            found.setdefault(key, value)
    return found
