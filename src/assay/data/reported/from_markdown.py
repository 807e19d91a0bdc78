"""Reads a Markdown log: its tables, lists and counts, and the short conclusions beside them.

Chinese or English. What is not recognised is left alone: a wrong reading is worse than none. Tables
and lists come first, because sentences are understood by the runs and benchmarks that these give.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from assay.data.reported.known import known
from assay.data.reported.reading.blocks import Line, Section, Table, leaves, sections
from assay.data.reported.reading.draft import Draft, finished, settle
from assay.data.reported.reading.grids import Place, grid_of
from assay.data.reported.reading.lists import read_asides, read_lists, read_open, read_rates
from assay.data.reported.reading.practice import read_practice
from assay.data.reported.reading.run_tables import is_training, read_scores
from assay.data.reported.reading.sizes import SIZE, read_sizes
from assay.data.reported.reading.stated_claims import read_claims
from assay.data.reported.reading.step_tables import read_training
from assay.data.reported.reading.vocabulary import CUMULATIVE
from assay.data.reported.reported_record import Reported

RATED = re.compile(
    r"accura|(?<![a-z])acc(?![a-z])|pass@|(?<![a-z])score|percent|%|success|exact match|正确率"
    r"|准确率|得分|通过率|成功率|百分",
    re.I,
)

NOT_RUNNING = re.compile(r"(?<![a-z])(?:not|no|never|rather than)(?![a-z])|不是|非累|并非", re.I)


def read_markdown(text: str, file: Path) -> Reported:
    """The record of a Markdown text; empty where nothing is recognised."""
    found = sections(text)
    title = next((section.title for section in found if section.path), "")
    draft = Draft(title or file.name, text)
    for section in found:
        for table in section.tables:
            read_table(draft, table, place_of(section, table))
    read_lists(draft, found)
    draft.tableless = not draft.scores
    for section in found:
        read_rates(draft, section)
    settle(draft)
    lines = [(line.text, line.number) for section in found for line in section.lines]
    read_asides(draft, found)
    places = [(section.title, section.texts) for section in found]
    read_sizes(draft, [*places, *(place for section in found for place in _introduced(section))])
    read_practice(draft, lines)
    read_claims(draft, lines)
    for section in found:
        read_open(draft, section)
    for section in leaves(found):
        if section.path and section.empty:
            draft.left_open(section.title, 1, section.line)
    return finished(draft)


def _introduced(section: Section) -> Iterator[tuple[str, list[Line]]]:
    """The lines with a colon of a section that introduce something, and what says its size."""
    for line in section.paragraphs:
        if line.text.endswith((":", "：")):
            yield line.text, [line] if SIZE.search(line.text) else section.texts


def read_table(draft: Draft, table: Table, place: Place) -> None:
    """Add what a table gives: readings of a training, else scores and settings of runs."""
    if not table.header or not table.rows:
        return
    grid = grid_of(table, place)
    training = is_training(grid) and read_training(draft, grid)
    read_scores(draft, grid, training)


def place_of(section: Section, table: Table) -> Place:
    """The heading of a table, and the words above it."""
    first = table.rows[0].number if table.rows else 0
    above = [line for line in section.lines if line.number < first][-1:]
    around = " ".join([*section.path[-2:], *(line.text for line in above)])
    named = known(section.title) or known(above[0].text if above else "")
    title = section.title
    return Place(
        title=title,
        scope=section.scope(first),
        rated=bool(RATED.search(around)),
        benchmark=named[0].name if len(named) == 1 else "",
        running=bool(CUMULATIVE.search(around)) and not NOT_RUNNING.search(around),
    )
