"""Scores that a section lists, and what it leaves open: the short lines under a heading."""

import re

from assay.data.reported.markdown import words
from assay.data.reported.markdown.blocks import Line, Section
from assay.data.reported.markdown.draft import Draft, name_condition
from assay.data.reported.markdown.names import condition, heading_name, quoted_settings
from assay.data.reported.markdown.score_tables import score_value
from assay.data.reported.record import Change, Search, Verdict

PROGRESS = re.compile(
    rf"^((?:step|epoch)\s*\d+)\s*[:：]\s*(.+?)\s*=\s*({words.NUMBER})"
    rf"(?:\s*[(（]\s*([↑↓])\s*({words.NUMBER})\s*[%％]\s*[)）])?$",
    re.I,
)


def read_lists(draft: Draft, section: Section) -> None:
    """The scores of a section, as one run's repeats or as its benchmarks."""
    repeats = [(line, score_value(line.text)) for line in section.items]
    if section.items and all(value is not None for _, value in repeats):
        name = section_run(draft, section)
        draft.score(name, "", [v for _, v in repeats if v is not None], section.items[0].number)
    for line in section.items:
        match = words.LABELLED.match(line.text)
        named = words.SCORING.match(match[1]) if match else None
        value = score_value(match[2], match[1]) if match and named else None
        if named and value is not None:
            cell = (named[1] or named[2] or "").strip()
            draft.score(section_run(draft, section), cell, (value,), line.number)
    _describe(draft, section)
    _progress(draft, section)
    _search(draft, section)


def section_run(draft: Draft, section: Section) -> str:
    """The run that a section is about: the condition of its headings, else its heading."""
    fixed = condition(section.path)
    if fixed:
        return name_condition(draft, fixed, section.line)
    name = heading_name(section.title)
    draft.run(name, section.line)
    return name


def _describe(draft: Draft, section: Section) -> None:
    """Quoted settings and the verdict in a heading, where the section is a run's."""
    pending = any(words.OPEN_LINE.match(line.text) for line in section.items)
    name = heading_name(section.title)
    if pending and section.quotes and name not in draft.runs:
        draft.run(name, section.line).finished = False
    run = draft.runs.get(name)
    if run is None or run.line < section.line:
        return
    for line in section.quotes:
        run.settings = {**quoted_settings(line.text), **run.settings}
    aside = " ".join(words.PARENTHESES.findall(section.title))
    run.says = run.says or verdict(aside)


def verdict(text: str) -> Verdict | None:
    """What a text says of an effect."""
    return next((says for pattern, says in words.EFFECTS if pattern.search(text)), None)


def read_open(draft: Draft, section: Section) -> None:
    """Cells and lines that are to be filled in, and sections in which nothing stands."""
    place = " / ".join(section.path[-2:]) or draft.about
    for table in section.tables:
        cells = [(row.number, cell) for row in table.rows for cell in row.cells]
        found = [number for number, cell in cells if words.OPEN_CELL.match(cell)]
        if found:
            draft.left_open(place, len(found), found[0])
    pending = [line for line in section.lines if words.OPEN_LINE.match(line.text)]
    run = draft.runs.get(heading_name(section.title))
    if pending and (run is None or run.finished):
        draft.left_open(place, len(pending), pending[0].number)


def _progress(draft: Draft, section: Section) -> None:
    """`Epoch 2: KL = 0.08131（↓ 13.5%）` after `Epoch 1: KL = 0.09400`: a relative change."""
    before: re.Match[str] | None = None
    for line in section.items:
        match = PROGRESS.match(line.text)
        if match and before and before[2] == match[2] and match[4]:
            sign = "-" if match[4] == "↓" else ""
            change = Change(
                of=f"{match[2]}, {before[1]} → {match[1]}",
                before=words.decimal(before[3]),
                after=words.decimal(match[3]),
                says=words.decimal(sign + match[5]),
                relative=True,
                line=line.number,
            )
            draft.add("changes", change)
        before = match


def _search(draft: Draft, section: Section) -> None:
    """A grid of settings written as code in the section of a scored run."""
    grids = [match for line in section.code if (match := words.GRID.match(line.text))]
    name = heading_name(section.title)
    run = draft.runs.get(name)
    if len(grids) < 2 or run is None or not run.scores:
        return
    points = 1
    for grid in grids:
        points *= len(grid[1].split(","))
    draft.add("searches", Search(chosen=name, points=points, line=section.code[0].number))


def rate_name(section: Section, line: Line) -> str:
    """The name of a rate in running text."""
    match = words.LABELLED.match(line.text)
    return heading_name(match[1] if match else section.title)
