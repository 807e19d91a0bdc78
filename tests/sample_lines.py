"""The lines of a file of samples as they lie there, for tests that change or compare them."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def read_samples(file: Path) -> list[dict[str, Any]]:
    """Every column of every line."""
    return pq.read_table(file).to_pylist()
