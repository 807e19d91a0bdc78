"""The `[synthesise.NAME]` tables: rows that a teacher makes from seeds, and what has to hold.

Only the accepted values are defined here. `assay synthesise` makes the rows, and a data set reads
them as `source = "synthesise:NAME"`.
"""

from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    Refusals,
    RenderingSettings,
    refused,
)
from assay.experiment.reward_tables import Reward, RewardSettings

SYNTHESISE = "synthesise"
"""The kind of a data source that takes made rows, and the name of the table."""
MADE_BY = "synthesis"
"""The field of `extra` with the provenance of a made row."""
FILE = "path:"
JSON = "json"
"""How a teacher writes its rows, where no function of the user's reads them."""


class SynthesiseSpec(RewardSettings, RenderingSettings):
    """Rows that a helper model makes. `rendering`, `template_options`, `keep_special`,
    `reward_...`: as in stages."""

    data: str
    """The seeds: a data set such as `train`."""
    teacher: str = "teacher"
    """The helper model that writes them."""
    prompt: str
    """Text with gaps `{question}`, `{answer}`, `{tools}`, `{number}`, `{extra.NAME}`; `path:FILE`;
    `path:FILE.py:FUNCTION` of seed and sample number."""
    read: str = JSON
    """`json`, or `path:FILE.py:FUNCTION` from seed and text to objects."""
    format: str = "messages"
    """The data format of these objects."""
    keep: Many[str] = ()
    """Further fields of them that are kept."""
    rows: Count
    """Verified rows wanted."""
    samples: Few = 1
    """Most answers to each seed."""
    calls: Count | None = None
    """Most calls of helper models for this table."""
    reward: Reward
    """The gold answer has to earn it in full, an empty one must not."""
    disjoint_from: Many[str] = ()
    """Benchmarks and data sets that share no question with a row, beside the file's evaluations."""

    def _conflicts(self) -> Refusals:
        if self.read != JSON and not self.read.startswith(FILE):
            fix = 'write "json" or "path:FILE.py:FUNCTION"'
            yield refused("read", f"unknown way to write rows {self.read!r}", fix)
