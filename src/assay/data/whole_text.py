"""Text that every file can hold: a Python string may hold half of a surrogate pair, UTF-8 not."""

import re

_HALF = re.compile("[\ud800-\udfff]")


def whole_text(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair."""
    return _HALF.sub("\ufffd", text)
