"""A selection: the demonstrations that were picked for a query, the one next to the query first.

Its text, what records and rewards see, is a JSON list of the numbers in the demonstration set,
such as `[412, 7]`: 7 stands first in the prompt, then 412, then the query. A model heeds most what
it read last, so the best pick, which a selector makes first, belongs there (Lever-LM builds its
prompts this way, as `construct_order = "left"`). Nothing is judged here.
"""

import json
from collections.abc import Sequence

from assay.data.row import Message, Row
from assay.tasks.demos.demonstrations import POOL, SHOTS, BadSelection, set_of


def selection_text(picks: Sequence[int]) -> str:
    """The text of a selection."""
    return json.dumps(list(picks))


def picks_of(row: Row, text: str) -> tuple[int, ...]:
    """The picks that a text names.

    Raises BadSelection for picks that are not `shots` different demonstrations of the row's pool.
    """
    try:
        picks = json.loads(text)
    except ValueError:
        picks = None
    if not isinstance(picks, list) or not all(type(pick) is int for pick in picks):
        raise _wrong(row, f"{text!r} is no list of numbers")
    pool, shots = row.extra[POOL], row.extra[SHOTS]
    if outside := [pick for pick in picks if pick not in pool]:
        raise _wrong(row, f"{outside[0]} is not in the pool of {len(pool)}")
    if len(set(picks)) != len(picks) or len(picks) != shots:
        raise _wrong(row, f"{text} are not {shots} different demonstrations")
    return tuple(picks)


def _wrong(row: Row, problem: str) -> BadSelection:
    return BadSelection(f"row {row.id}: {problem}", file=row.origin or None, field="selection")


def conversation(row: Row, picks: Sequence[int]) -> tuple[Message, ...]:
    """What the frozen model reads: the instruction, the picked demonstrations, the last pick first,
    and the query last. Selections that end alike share the beginning of their prompts."""
    found = set_of(row)
    said: list[Message] = [Message("system", found.instruction)] if found.instruction else []
    for pick in reversed(picks):
        shown = found.demonstrations[pick]
        said += [shown.asked, Message("assistant", shown.answer)]
    return (*said, *row.prompt)
