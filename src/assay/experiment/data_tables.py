"""The `[data.NAME]` tables: where the rows of a data set come from and which of them are used.

Only the accepted values are defined here; rows are read and chosen in `lab.setup.prepare`.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from assay.data.csv_files import Encoding
from assay.data.row_fields import field_problem
from assay.data.splits import DEV_FIX, dev_problem
from assay.experiment.base_table import Count, Few, Many, Source, Table, raise_all, refused


class Take(Table):
    """Which items of a benchmark or a data set are used."""

    rows: Count
    """How many; more than there are is an error."""
    how: Literal["random", "first"] = "random"
    """`random` draws the same rows for every seed; `first` takes them in file order."""


class TakeRows(Table):
    """Which rows of a source are used: a number of them, or those of a selection."""

    rows: Count | None = None
    """How many; more than there are is an error. This or `selection`."""
    how: Literal["random", "first"] = "random"
    """Of `rows`: `random` draws the same for every seed; `first` takes them in file order."""
    selection: str | None = None
    """A file that `assay select` wrote, such as `selections/limr.json` (relative to the lab's
    root): the training part is its rows. A dev part of `split` stays as it is without it."""

    @model_validator(mode="after")
    def _a_number_or_a_selection(self) -> Self:
        if (self.rows is None) == (self.selection is None):
            found = "neither" if self.rows is None else "both"
            raise refused("rows", f"{found} of 'rows' and 'selection' given", "write one")
        if self.selection is not None and "how" in self.model_fields_set:
            raise refused("how", "a selection has its rows by their ids", "remove it")
        return self

    @model_serializer(mode="wrap")
    def _how_of_rows_only(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found = plain(self)
        if self.selection is not None:
            found.pop("how", None)
        return found


class Split(Table):
    """How rows are divided into a training part and held-out parts that never meet it."""

    dev: float | int | None = None
    """Size of the dev part `NAME.dev`, for choosing: a share of the conversations (below 1) or a
    number of rows (2 or more); conversations stay whole."""
    test: float | int | None = None
    """Size of the test part `NAME.test`, for reporting, in the same way; the dev part does not
    depend on it."""
    by: Literal["conversation"] = "conversation"
    """Rows of one conversation always fall on the same side."""

    @model_validator(mode="after")
    def _dev_is_a_share_or_a_number_of_rows(self) -> Self:
        sizes = {"dev": self.dev, "test": self.test}
        if sizes == {"dev": None, "test": None}:
            raise refused("dev", "missing", "write split = { dev = 0.1 }, test = 0.1, or both")
        wrong = {side: dev_problem(size) for side, size in sizes.items() if size is not None}
        raise_all(refused(side, problem, DEV_FIX) for side, problem in wrong.items() if problem)
        return self

    @model_serializer(mode="wrap")
    def _parts_that_are_there(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in plain(self).items() if value is not None}


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


Compared = str | int | float | bool


class Where(Table):
    """A condition on a field of a row. All comparisons that are given have to hold; a row without
    the field meets only `exists = false`."""

    field: str
    """`id`, `conversation`, `gold`, or one inside `gold` or `extra`: `extra.difficulty`."""
    at_least: float | None = None
    """The smallest number that is kept; text that is a number counts as one."""
    at_most: float | None = None
    """The largest number that is kept."""
    above: float | None = None
    """Larger numbers are kept."""
    below: float | None = None
    """Smaller numbers are kept."""
    equals: Compared | None = None
    """The value that is kept."""
    one_of: Annotated[Many[Compared], Field(min_length=1)] | None = None
    """The values that are kept."""
    none_of: Annotated[Many[Compared], Field(min_length=1)] | None = None
    """The values that are left out."""
    contains: Compared | None = None
    """A piece of the text, or a member of the list, that is there in what is kept."""
    exists: bool | None = None
    """Whether the row has the field."""

    @model_validator(mode="after")
    def _compares_a_field(self) -> Self:
        if problem := field_problem(self.field):
            raise refused("field", problem, FIELD_FIX)
        given = [name for name in Where.model_fields if getattr(self, name) is not None]
        if given == ["field"]:
            fix = 'for example at_least = 0.2 or equals = "easy"'
            raise refused("field", "nothing to compare it with", fix)
        return self


class OrderBy(Table):
    """Rows sorted by a field, the same way in every epoch."""

    by: str
    """The field, as for `where`: all of its values are numbers, or all are text."""
    descending: bool = False
    """The largest first."""

    @model_validator(mode="after")
    def _by_a_field(self) -> Self:
        if problem := field_problem(self.by):
            raise refused("by", problem, FIELD_FIX)
        return self


class Recorded(Table):
    """Answers that a run recorded: samples of a stage, or the record of an evaluation."""

    stage: str | None = None
    """The stage whose samples are meant; this or `evaluation`."""
    steps: Annotated[Many[Count], Field(min_length=1)] | None = None
    """Its steps; omitted: all."""
    evaluation: str | None = None
    """The evaluation whose record is meant, with `checkpoint`."""
    checkpoint: str | None = None
    """The checkpoint that it measured: `base`, `STAGE.last`, `STAGE.best` or `STAGE.step-N`."""

    @model_validator(mode="after")
    def _names_one_record(self) -> Self:
        if (self.stage is None) == (self.evaluation is None):
            found = "neither" if self.stage is None else "both"
            raise refused("stage", f"{found} of 'stage' and 'evaluation' given", "write one")
        if (self.evaluation is None) != (self.checkpoint is None):
            raise refused(
                "checkpoint", "an evaluation has a record for each checkpoint", "name one"
            )
        if self.steps is not None and self.stage is None:
            raise refused("steps", "only a stage has steps", "remove it")
        return self


class RunSamples(Recorded):
    """What a run answered, as rows."""

    each: Literal["completion", "group"] = "completion"
    """`completion`: one row for each, which ends with it; `group`: one row for each group, with its
    completions as `candidates` for `rce`."""


class PassRate(Recorded):
    """The share of a row's answers that passed in a run, as its field `extra.pass_rate`."""

    run: str
    """The run, as in `run:NAME`."""
    passes: float = 1.0
    """The smallest reward that passes."""


class Examples(Recorded):
    """Worked examples in `extra.examples`, which a task may put into its prompts: the best answers
    that a run gave to other rows, never of the row's own conversation or question."""

    run: str
    """The run, as in `run:NAME`."""
    shots: Few = 2
    """Examples of a row."""
    least: float = 1.0
    """The smallest reward of an example."""
    same: str | None = None
    """A field in which an example is like its row, such as `extra.problem_type`."""

    @model_validator(mode="after")
    def _like_a_field(self) -> Self:
        if self.same is not None and (problem := field_problem(self.same)):
            raise refused("same", problem, FIELD_FIX)
        return self


FIELD_FIX = "write id, conversation, gold, gold.NAME or extra.NAME"
WHOLE = 1e-6
"""How far from 1 the weights of a mixture may add up."""


class Hub(Table):
    """Which part of a data set of the Hugging Face hub is read."""

    config: str | None = None
    """Its configuration, also called subset; omitted: the default one."""
    split: str | None = None
    """Its split, such as `train`; omitted where there is only one."""
    revision: str | None = None
    """A commit, tag or branch; omitted: the newest. The manifest says which commit that was."""


class DataSpec(Table):
    """A data set. Stages name it as `NAME`, its dev part as `NAME.dev`."""

    source: Source | None = None
    """`path:FILE` (relative to the lab's root), `hf:NAME` (a data set of the Hugging Face hub, also
    as a bare `OWNER/NAME`, or a folder that `datasets` saved), `run:NAME` for what a run answered,
    `selections:NAME` for queries with stored selections, or a source of the task such
    as `bfcl:live_simple`; this or `mix`."""
    hub: Hub | None = None
    """Configuration, split and revision of an `hf:` source."""
    options: dict[str, Any] | None = None
    """Options of a source of the task, such as `{ pool = 16, shots = 2 }` of the demos task."""
    samples: RunSamples | None = None
    """Which answers of a `run:` source are rows. They have `extra.reward`, `extra.parts` and
    `extra.step`."""
    mix: dict[str, Annotated[float, Field(gt=0, le=1)]] | None = None
    """A mixture of other data sets with their weights, `{ easy = 0.7, hard = 0.3 }`: every epoch
    has exactly these shares. Dev parts stay apart, and are together `NAME.dev`."""
    epoch_rows: Count | None = None
    """Rows of one epoch of a mixture; the rows of a set that is smaller than its share are visited
    again. Omitted: the longest epoch in which no row is visited twice."""
    format: str | None = None
    """Format of the rows, such as `messages`; required for `path:` and `hf:`, implied otherwise."""
    columns: dict[str, str] | None = None
    """Columns of the format and what the file calls them: `{ prompt = "question" }`."""
    csv: Csv | None = None
    """How a CSV file is written; a file with another ending than `.csv` or `.tsv` is read as CSV
    where this is given."""
    expand: Literal["each_turn", "last_call"] | None = None
    """`each_turn`: one row for each assistant message, with what came before it; `last_call`: the
    conversation up to its last call."""
    pass_rate: PassRate | None = None
    """A run that measured these rows: its pass rates are there for `where` and `order` as
    `extra.pass_rate`."""
    examples: Examples | None = None
    """Examples of what earned a high reward in a run, for prompts of a few shots."""
    where: Annotated[Many[Where], Field(min_length=1)] | None = None
    """Conditions that rows have to meet; the others are dropped and counted."""
    order: Literal["shuffled", "given"] | OrderBy | None = None
    """Order in which a stage visits the rows: `shuffled` anew each epoch (the default), as `given`
    in the source, or sorted, `{ by = "extra.difficulty" }`."""
    undeclared_calls: Literal["keep", "drop"] = "keep"
    """Rows with calls that their tools do not describe; counted either way."""
    nulls: Literal["keep", "drop"] = "keep"
    """Keys whose value is null, in JSON lines that were written from Arrow fillers of absent keys;
    parquet is always read without them."""
    reasoning: Literal["keep", "drop"] = "keep"
    """Reasoning in assistant messages; a model trained without it learns not to think."""
    cut_end: str | None = None
    """A text, such as `<|im_end|>`, that is taken off the end of assistant messages: rendering
    writes the token that ends them."""
    template_options: dict[str, Any] | None = None
    """Variables of the chat template for these rows, such as `{ enable_thinking = false }`."""
    take: TakeRows | None = None
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

    @field_validator("order")
    @classmethod
    def _shuffled_is_none(cls, value: str | OrderBy | None) -> str | OrderBy | None:
        return None if value == "shuffled" else value

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        raise_all(self._of_a_mixture() if self.mix is not None else self._of_a_source())
        return self

    @property
    def origin(self) -> str:
        """The source, or the sets of a mixture with their weights, in words."""
        if self.mix is None:
            return self.source or ""
        return "mix of " + ", ".join(f"{name} {weight:g}" for name, weight in self.mix.items())

    def _of_a_mixture(self) -> Iterator[PydanticCustomError]:
        weights = self.mix or {}
        if len(weights) < 2:
            yield refused("mix", "a mixture has at least two data sets", "name another one")
        elif abs(sum(weights.values()) - 1) > WHOLE:
            said = " + ".join(f"{weight:g}" for weight in weights.values())
            problem = f"the weights {said} add up to {sum(weights.values()):g}, not to 1"
            yield refused("mix", problem, "write shares of 1")
        if self.order == "given":
            fix = 'leave it out, or write order = { by = "extra.NAME" }'
            yield refused("order", "the sets of a mixture stand in no order", fix)
        own = {"mix", "epoch_rows", "order"}
        for key in self.model_fields_set - own:
            if getattr(self, key) != DataSpec.model_fields[key].default:
                fix = "write it in the tables of the sets that are mixed"
                yield refused(key, "a mixture takes the rows of its sets as they are", fix)

    def _of_a_source(self) -> Iterator[PydanticCustomError]:
        kind, colon, rest = (self.source or "").partition(":")
        if self.epoch_rows is not None:
            yield refused("epoch_rows", "only a mixture has it", "use take, or steps of the stage")
        if self.source is None:
            yield refused("source", "missing", "write path:FILE, or mix = { NAME = 0.7, ... }")
        elif not (kind and colon and rest):
            fix = "write path:FILE or a source of the task, such as bfcl:live_simple"
            yield refused("source", f"{self.source!r} is not a source", fix)
        elif (kind == "run") != (self.samples is not None):
            fix = 'for example samples = { stage = "rl" }'
            problem = "a run needs the samples that are meant" if kind == "run" else "only of a run"
            yield refused("samples", problem, fix if kind == "run" else "remove it")
        elif kind in ("path", "hf") and self.format is None:
            fix = 'for example format = "messages"'
            yield refused("format", "a file needs its format", fix)
        if self.options is not None and kind in ("path", "hf", "run", "selections"):
            yield refused("options", "only a source of the task has options", "remove it")
        for key, kinds in (("columns", "path hf"), ("csv", "path"), ("hub", "hf")):
            if getattr(self, key) is not None and kind not in kinds.split():
                what = " and ".join(f"{one}:" for one in kinds.split())
                yield refused(key, f"only {what} sources have it", "remove it")
        if (self.min_tokens or 0) > (self.max_tokens or float("inf")):
            problem = f"is more than max_tokens = {self.max_tokens}"
            yield refused("min_tokens", problem, "no row could be between them")
