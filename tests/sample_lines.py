"""The lines of a file of samples as they lie there, for tests that change or compare them."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def read_samples(file: Path) -> list[dict[str, Any]]:
    """Every column of every line."""
    return pq.read_table(file).to_pylist()


def sample_line(step: int, row: str, number: int, **values: Any) -> dict[str, Any]:
    """A line as the stage `rl` of a run writes it, with what the test gives it."""
    line = {
        "sample_id": f"rl/{step}/{row}#{number}",
        "step": step,
        "row_id": row,
        "visit": 0,
        "sample": number,
        "text": "x",
        "tokens": [1, 2],
        "behaviour_logps": [-0.1, -0.2],
        "reward": 0.0,
        "parts": "{}",
        "why": "",
        "advantage": 0.0,
        "ended": "stop",
    }
    return line | values
