"""A histogram in one line of text."""

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def histogram_line(counts: Sequence[int], edges: Sequence[float]) -> str:
    """One block for each bin, between the outer edges; an empty bin is a blank.

    A block's height is its count's share of the largest, so that any count shows.
    """
    most = max(counts)
    bars = "".join(
        BLOCKS[-(-count * len(BLOCKS) // most) - 1] if count else " " for count in counts
    )
    return f"{edges[0]:,.0f} |{bars}| {edges[-1]:,.0f}"
