"""Finds the program in what a policy wrote. It neither repairs nor judges it."""

import re

from assay.data.fenced_blocks import PYTHON, fenced_blocks

_CLASS = re.compile(r"^class Workflow\b", re.MULTILINE)
_END = re.compile(r"^[ \t]*```", re.MULTILINE)


def program_of(completion_text: str) -> str | None:
    """The first block that is marked as Python, else the text from `class Workflow` on; None for
    neither.

    A block that is never closed goes to the end of the text, as that of a cut completion does; the
    text from the class on ends at the next fence.
    """
    marked = [b.code for b in fenced_blocks(completion_text) if b.language in PYTHON[1:]]
    if marked:
        program = marked[0]
    elif start := _CLASS.search(completion_text):
        program = _END.split(completion_text[start.start() :])[0]
    else:
        return None
    return program.rstrip() + "\n" if program.strip() else None
