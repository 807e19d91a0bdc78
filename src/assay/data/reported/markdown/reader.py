"""Reads a Markdown log: headings, quoted settings, lists and tables of percentages, some sentences.

Chinese or English. What is not recognised is left alone: a wrong reading is worse than none. Tables
and lists come first, because sentences are understood by the runs and metrics that these give.
"""

from collections.abc import Callable
from pathlib import Path

from assay.data.reported.markdown import log_tables, score_tables
from assay.data.reported.markdown.blocks import Section, Table, leaves, sections
from assay.data.reported.markdown.draft import Draft, finished
from assay.data.reported.markdown.figures import read_figures
from assay.data.reported.markdown.lists import read_lists, read_open
from assay.data.reported.markdown.prose import outermost, pairs_of_conditions, read_prose
from assay.data.reported.record import Reported

TableReader = Callable[[Draft, Section, Table], bool]

TABLES: dict[str, TableReader] = {
    "settings": log_tables.read_settings,
    "marks": log_tables.read_marks,
    "training": log_tables.read_training,
    "steps": log_tables.read_steps,
    "conditions": log_tables.read_conditions,
    "scores": score_tables.read_scores,
}
"""Kinds of tables, in the order in which they are tried; the first that reads one keeps it."""


def read_markdown(text: str, file: Path) -> Reported:
    """The record of a Markdown text; empty where nothing is recognised."""
    found = sections(text)
    draft = Draft(outermost(found) or file.name, text)
    for section in found:
        for table in section.tables:
            if table.header:
                any(read(draft, section, table) for read in TABLES.values())
        read_lists(draft, section)
    for section in found:
        read_open(draft, section)
        read_prose(draft, section)
        read_figures(draft, section)
    for section in leaves(found):
        if section.path and section.empty:
            draft.left_open(section.title, 1, section.line)
    pairs_of_conditions(draft, found)
    return finished(draft)
