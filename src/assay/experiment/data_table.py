"""The `[data.NAME]` tables: where rows come from, which are taken and how they are split."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

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
    """What goes to the dev part, named `NAME.dev`: a number below 1 is a share of the
    conversations, an integer from 2 on a number of rows. Conversations stay whole, so that the last
    one may bring a few rows more."""
    by: Literal["conversation"] = "conversation"
    """Rows of one conversation always fall on the same side."""

    @model_validator(mode="after")
    def _dev_is_a_share_or_a_number_of_rows(self) -> Self:
        problem = dev_problem(self.dev)
        if problem:
            raise refused("dev", problem, DEV_FIX)
        return self


class DataSpec(Table):
    """A data set. Stages name it as `NAME`, its dev part as `NAME.dev`."""

    source: str
    """`path:FILE` (relative to the lab's root), or a source of the task such as
    `bfcl:live_simple`."""
    format: str | None = None
    """Format of the file, such as `messages`; required for `path:`, implied otherwise."""
    expand: Literal["each_turn", "last_call"] | None = None
    """`each_turn` makes one row for each assistant message of a conversation, with what came before
    it; `last_call` cuts a conversation after its last assistant message with a call. Omitted: rows
    as they are."""
    undeclared_calls: Literal["keep", "drop"] = "keep"
    """Rows with calls that their tools do not describe; counted either way."""
    reasoning: Literal["keep", "drop"] = "keep"
    """What assistant messages think before they speak; a model that is trained on rows without it
    is taught not to think."""
    take: Take | None = None
    """Use only some rows; omitted means all."""
    split: Split | None = None
    """Keep a dev part out of training; omitted means none."""
    max_prompt_tokens: Count | None = None
    """Rows with a longer prompt are dropped and counted, never cut."""
    min_tokens: Count | None = None
    """Rows whose whole conversation, the answer included, is shorter are dropped and counted."""
    max_tokens: Count | None = None
    """Rows whose whole conversation, the answer included, is longer are dropped and counted."""
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
        if (self.min_tokens or 0) > (self.max_tokens or float("inf")):
            problem = f"is more than max_tokens = {self.max_tokens}"
            yield refused("min_tokens", problem, "no row could be between them")
