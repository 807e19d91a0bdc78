"""Names of axes and of their values, as parts of the names of runs and evaluations."""

import re
from collections.abc import Sequence
from typing import Any

from assay.data.hashing import canonical_json, sha256_text

LONGEST = 24
"""Values written out in a name; longer ones are shortened to a hash."""


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The shortest unique end of each dotted path, as a part of a run's name."""
    return {key: "-".join(end) for key, end in shortest_ends(keys).items()}


def shortest_ends(keys: Sequence[str]) -> dict[str, Sequence[str]]:
    """The last parts of each dotted path, as few as no other of the paths ends with."""
    parts = [key.split(".") for key in keys]
    found: dict[str, Sequence[str]] = {}
    for own in parts:
        ends = (own[-length:] for length in range(1, len(own)))
        alone = (end for end in ends if sum(each[-len(end) :] == end for each in parts) == 1)
        found[".".join(own)] = next(alone, own)
    return found


def slug(value: Any) -> str:
    """A value as part of a name: numbers as they are, signs as dashes, long values as a hash."""
    text = value if isinstance(value, str) else canonical_json(value)
    plain = re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.+").replace("+", "")
    if not plain or len(plain) > LONGEST or (not isinstance(value, str) and "{" in text):
        return sha256_text(canonical_json(value))[:8]
    return plain
