"""How much a packed file may unpack to: a few megabytes can stand for more than any memory holds.

What it is packed with, and what stands in it, is known where it is read.
"""

from dataclasses import dataclass
from pathlib import Path

from assay.data.raw_record import DataError

FREE_BYTES = 64 << 20
"""That any file may unpack to."""
MOST_TIMES = 100
"""A larger file unpacks to so many times its size at most. Logs of JSON take up a tenth."""
ENTRY_BYTES = 256
"""What a row or a member takes beside its content."""
MOST_ENTRIES = 200_000
"""Members of an archive."""


@dataclass
class Budget:
    """What one file may still unpack to."""

    file: Path
    times: int = MOST_TIMES
    free: int = FREE_BYTES
    used: int = 0

    def spend(self, content: int, entries: int = 1) -> None:
        """Note so many bytes more. Raises DataError where that is too much, or no number of bytes.

        To be asked before the bytes are unpacked, where a file says how many there are.
        """
        packed = self.file.stat().st_size
        allowed = max(self.free, self.times * packed)
        self.used += content + ENTRY_BYTES * entries
        if content < 0 or entries < 0 or self.used > allowed:
            problem = f"unpacks to more than {allowed >> 20} MB, from {packed / (1 << 20):.1f} MB"
            fix = "unpack it by hand and look at it; JSON lines are read line by line"
            raise DataError(problem, file=self.file, fix=fix)
