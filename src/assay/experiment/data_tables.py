"""The `[data.NAME]` tables: where the rows of a data set come from and which of them are used.

Only the accepted values are defined here; rows are read and chosen in `lab.setup.prepare`.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.data.csv_files import Encoding
from assay.data.splits import DEV_FIX, dev_problem
from assay.experiment.base_table import Count, Many, Table, raise_all, refused


class Take(Table):
    """Which rows of a source, or items of a benchmark, are used."""

    rows: Count
    """How many; more than there are is an error."""
    how: Literal["random", "first"] = "random"
    """`random` draws the same rows for every seed; `first` takes them in file order."""


class Split(Table):
    """How rows are divided into a training part and a dev part that never meet."""

    dev: float | int
    """Size of the dev part `NAME.dev`: a share of the conversations (below 1) or a number of rows
    (2 or more); conversations stay whole."""
    by: Literal["conversation"] = "conversation"
    """Rows of one conversation always fall on the same side."""

    @model_validator(mode="after")
    def _dev_is_a_share_or_a_number_of_rows(self) -> Self:
        problem = dev_problem(self.dev)
        if problem:
            raise refused("dev", problem, DEV_FIX)
        return self


class Csv(Table):
    """How a CSV file is written."""

    delimiter: Annotated[str, Field(pattern=r"^[^\r\n]$")] | None = None
    """Stands between fields; omitted: a tab in `.tsv` files, else a comma."""
    quote: Annotated[str, Field(pattern=r"^[^\r\n]$")] = '"'
    """Stands around fields that hold the delimiter or a line break; doubled within one."""
    header: Annotated[Many[str], Field(min_length=1)] | None = None
    """Names of the columns; omitted: the first line holds them."""
    encoding: Encoding = "utf-8"
    """How characters are stored."""


class DataSpec(Table):
    """A data set. Stages name it as `NAME`, its dev part as `NAME.dev`."""

    source: str
    """`path:FILE` (relative to the lab's root), or a source of the task such as
    `bfcl:live_simple`."""
    format: str | None = None
    """Format of the file, such as `messages`; required for `path:`, implied otherwise."""
    columns: dict[str, str] | None = None
    """Columns of the format and what the file calls them: `{ prompt = "question" }`."""
    csv: Csv | None = None
    """How a CSV file is written; a file with another ending than `.csv` or `.tsv` is read as CSV
    where this is given."""
    expand: Literal["each_turn", "last_call"] | None = None
    """`each_turn`: one row for each assistant message, with what came before it; `last_call`: the
    conversation up to its last call."""
    undeclared_calls: Literal["keep", "drop"] = "keep"
    """Rows with calls that their tools do not describe; counted either way."""
    reasoning: Literal["keep", "drop"] = "keep"
    """Reasoning in assistant messages; a model trained without it learns not to think."""
    take: Take | None = None
    """Use only some rows."""
    split: Split | None = None
    """Keep a dev part out of training."""
    max_prompt_tokens: Count | None = None
    """Rows with a longer prompt are dropped and counted, never cut."""
    min_tokens: Count | None = None
    """Shorter conversations, the answer included, are dropped and counted."""
    max_tokens: Count | None = None
    """Longer conversations, the answer included, are dropped and counted."""
    disjoint_from: Many[str] = ()
    """Benchmarks: rows that share a question or a function name with them are dropped and
    counted."""

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        raise_all(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[PydanticCustomError]:
        kind, colon, rest = self.source.partition(":")
        if not (kind and colon and rest):
            fix = "write path:FILE or a source of the task, such as bfcl:live_simple"
            yield refused("source", f"{self.source!r} is not a source", fix)
        elif kind == "path" and self.format is None:
            fix = 'for example format = "messages"'
            yield refused("format", "a file needs its format", fix)
        for key in ("columns", "csv"):
            if getattr(self, key) is not None and kind not in ("path", ""):
                yield refused(key, "only a file has columns", "remove it")
        if (self.min_tokens or 0) > (self.max_tokens or float("inf")):
            problem = f"is more than max_tokens = {self.max_tokens}"
            yield refused("min_tokens", problem, "no row could be between them")
