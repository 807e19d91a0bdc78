"""Finds the program in what a policy wrote. It neither repairs nor judges it."""

import re

_FENCE = re.compile(r"^[ \t]*```(?:python|py)[ \t]*$", re.IGNORECASE | re.MULTILINE)
_END = re.compile(r"^[ \t]*```", re.MULTILINE)
_CLASS = re.compile(r"^class Workflow\b", re.MULTILINE)


def program_of(completion_text: str) -> str | None:
    """The first ```python block, else the text from `class Workflow` on; None for neither.

    A block that is never closed goes to the end of the text, as that of a cut completion does; the
    text from the class on ends at the next fence.
    """
    if fence := _FENCE.search(completion_text):
        rest = completion_text[fence.end() + 1 :]
    elif start := _CLASS.search(completion_text):
        rest = completion_text[start.start() :]
    else:
        return None
    end = _END.search(rest)
    program = rest if end is None else rest[: end.start()]
    return program.rstrip() + "\n" if program.strip() else None
