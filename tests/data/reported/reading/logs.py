"""A small log for tests of sentences: three runs on two benchmarks, and what a sentence adds."""

from pathlib import Path

from assay.data.reported.read_reported import read_markdown
from assay.data.reported.reported_record import Reported

TABLE = """
| model | Alpha (n=200) | Gamma (n=400) | lr | data |
|---|---|---|---|---|
| base | 40.0% | 30.0% | - | - |
| sft | 44.0% | 35.0% | 1e-5 | 10k |
| grpo-2 | 46.0% | 34.5% | 1e-6 | 20k |

"""


def said(sentence: str) -> Reported:
    """The record of the table with a sentence under it."""
    return read_markdown(TABLE + sentence + "\n", Path("log.md"))
