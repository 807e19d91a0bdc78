"""Looking something up by the name a user wrote. The tables are plain dicts elsewhere."""

from collections.abc import Mapping
from typing import TypeVar

from assay.errors import InputError, nearest

Entry = TypeVar("Entry")


class UnknownName(InputError):
    """A name that stands in none of the tables."""


def look_up(table: Mapping[str, Entry], name: str, what: str) -> Entry:
    """The entry called `name`; `what` names the kind of thing in the message.

    Raises UnknownName, offering the nearest names.
    """
    if name not in table:
        raise UnknownName(f"unknown {what} {name!r}", fix=nearest(name, table))
    return table[name]
