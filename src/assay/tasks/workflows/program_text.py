"""Takes the program out of a completion: the text that runs, never a repaired one."""

import re

_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
_CLASS = re.compile(r"^(?:(?:from|import)[^\n]*\n|[ \t]*\n)*class Workflow\b", re.MULTILINE)


def program_of(completion: str) -> str | None:
    """The first block of Python, else the text from `class Workflow` on with the imports right
    above it; None without either."""
    found = _BLOCK.search(completion)
    if found is not None:
        return found[1]
    start = _CLASS.search(completion)
    return None if start is None else completion[start.start() :]
