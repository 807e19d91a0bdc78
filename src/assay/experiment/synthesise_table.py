"""The `[synthesise.NAME]` tables: rows that a teacher makes from seeds, and what has to hold.

Only the accepted values are defined here. `assay synthesise` makes the rows, and a data set reads
them as `source = "synthesise:NAME"`.
"""

from assay.errors import nearest
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
READ = ("json", "tags")
"""How a teacher may write its rows, where no function of the user's reads them."""


class SynthesiseSpec(RewardSettings, RenderingSettings):
    """Rows that a helper model makes. `rendering`, `template_options`, `keep_special`,
    `reward_...`: as in stages."""

    data: str
    """The seeds: a data set such as `train`."""
    teacher: str = "teacher"
    """The helper model that writes the rows."""
    prompt: str
    """What it is asked, with gaps `{question}`, `{answer}`, `{tools}`, `{number}`, `{extra.NAME}`;
    `path:FILE`, or `path:FILE.py:FUNCTION` of seed and sample number."""
    read: str = "json"
    """How its rows are written: `json`, `tags` (`<question>...</question>`), or
    `path:FILE.py:FUNCTION` of seed and text, which gives objects."""
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
    """What the gold answer has to earn in full, and an empty one must not."""
    disjoint_from: Many[str] = ()
    """Benchmarks and data sets that share no question with a made row, beside the file's
    evaluations."""

    def _conflicts(self) -> Refusals:
        if self.read not in READ and not self.read.startswith(FILE):
            problem = f"unknown way to write rows {self.read!r}"
            yield refused("read", problem, nearest(self.read, READ))
