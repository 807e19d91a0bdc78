"""How long to wait before a request is repeated: growing, jittered, and as long as the server says.

Nothing waits here.
"""

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
LONGEST_ASKED = 120.0
"""The longest wait that a server can ask for, in seconds."""


def pause_before(attempt: int, retry_after: str | None = None) -> float:
    """Seconds before the repetition after `attempt`, which counts from 0.

    A server's `Retry-After` (RFC 9110, section 10.2.3) is kept to up to LONGEST_ASKED; the jitter
    comes on top of it, so that what was refused together is not repeated together.
    """
    growing = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)
    asked = asked_seconds(retry_after) if retry_after is not None else None
    if asked is None:
        return growing * random.uniform(0.75, 1.25)
    return max(asked, growing) + FIRST_PAUSE * random.uniform(0.0, 1.0)


def asked_seconds(retry_after: str, now: datetime | None = None) -> float | None:
    """What a `Retry-After` asks for, from 0 to LONGEST_ASKED; None where it is neither a number of
    seconds nor a date."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        # Ten digits are beyond the bound, and int() refuses thousands.
        return min(float(text[-10:] if not text[:-10].strip("0") else "9" * 10), LONGEST_ASKED)
    try:
        date = parsedate_to_datetime(text[:64])
        # A date in -0000 has no zone; HTTP's dates are all in UTC.
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (date - (now or datetime.now(UTC))).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), LONGEST_ASKED)
