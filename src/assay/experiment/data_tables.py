"""The `[data.NAME]` tables: where the rows of a data set come from and which of them are used.

Only the accepted values are defined here; rows are read and chosen in `lab.data.prepare`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from assay.data.csv_files import Encoding
from assay.data.row_checks import DEV_FIX, dev_problem, field_problem
from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    Refusals,
    Source,
    SpecTable,
    none_for,
    refused,
)


class Take(SpecTable):
    """Which items are used."""

    rows: Count
    """How many; more than there are is an error."""
    how: Literal["random", "first"] = "random"
    """`random` draws the same rows for every seed."""


class TakeRows(SpecTable):
    """Which rows of a source are used."""

    rows: Count | None = None
    """How many; more than there are is an error. This or `selection`."""
    how: Literal["random", "first"] = "random"
    """`random` draws the same rows for every seed."""
    selection: str | None = None
    """A file of `assay select`: the training part is its rows."""

    def _conflicts(self) -> Refusals:
        yield from self._one_of("rows", "selection")
        if self.selection is not None and "how" in self.model_fields_set:
            yield refused("how", "a selection has its rows by their ids", "remove it")

    @model_serializer(mode="wrap")
    def _how_of_rows_only(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        table = plain(self)
        if self.selection is not None:
            table.pop("how", None)
        return table


class Split(SpecTable):
    """How held-out parts are taken. A conversation's rows stay together (`by = "conversation"`)."""

    dev: float | int | None = None
    """Size of `NAME.dev`: a share of the conversations (below 1), or rows."""
    test: float | int | None = None
    """Size of `NAME.test`, likewise."""
    by: Literal["conversation"] = "conversation"
    """A conversation's rows stay together."""

    def _conflicts(self) -> Refusals:
        sizes = {"dev": self.dev, "test": self.test}
        if sizes == {"dev": None, "test": None}:
            yield refused("dev", "missing", "write split = { dev = 0.1 }, test = 0.1, or both")
        for side, size in sizes.items():
            if size is not None and (problem := dev_problem(size)):
                yield refused(side, problem, DEV_FIX)

    @model_serializer(mode="wrap")
    def _parts_that_are_there(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in plain(self).items() if value is not None}


class Csv(SpecTable):
    """How a CSV file is written; a file of any ending is then CSV."""

    delimiter: Annotated[str, Field(pattern=r"^[^\r\n]$")] | None = None
    """Omitted: a tab in `.tsv` files, else a comma."""
    quote: Annotated[str, Field(pattern=r"^[^\r\n]$")] = '"'
    """Doubled within a field."""
    header: Annotated[Many[str], Field(min_length=1)] | None = None
    """Names of the columns; omitted: the first line holds them."""
    encoding: Encoding = "utf-8"
    """How characters are stored."""


Compared = str | int | float | bool


def _no_field(key: str, name: str | None) -> Refusals:
    if name is not None and (problem := field_problem(name)):
        yield refused(key, problem, "write id, conversation, gold, gold.NAME or extra.NAME")


class Where(SpecTable):
    """A condition on a field; all comparisons have to hold, else the row is dropped and counted. A
    row without the field meets only `exists = false`."""

    field: str
    """`id`, `conversation`, `gold`, or one inside `gold` or `extra`: `extra.difficulty`."""
    at_least: float | None = None
    """Smallest number kept."""
    at_most: float | None = None
    """Largest number kept."""
    above: float | None = None
    """Larger numbers are kept."""
    below: float | None = None
    """Smaller numbers are kept."""
    equals: Compared | None = None
    """The value kept."""
    one_of: Annotated[Many[Compared], Field(min_length=1)] | None = None
    """The values kept."""
    none_of: Annotated[Many[Compared], Field(min_length=1)] | None = None
    """The values left out."""
    contains: Compared | None = None
    """A piece of a text, or a member of a list."""
    exists: bool | None = None
    """The row has the field."""

    def _conflicts(self) -> Refusals:
        compared = (getattr(self, name) for name in Where.model_fields if name != "field")
        yield from (wrong := [*_no_field("field", self.field)])
        if not wrong and all(value is None for value in compared):
            fix = 'for example at_least = 0.2 or equals = "easy"'
            yield refused("field", "nothing to compare it with", fix)


class OrderBy(SpecTable):
    """Rows sorted by a field."""

    by: str
    """The field; its values are all numbers or all text."""
    descending: bool = False
    """The largest first."""

    def _conflicts(self) -> Refusals:
        return _no_field("by", self.by)


class Recorded(SpecTable):
    """Answers that a run recorded: samples of a stage, or the record of an evaluation."""

    stage: str | None = None
    """The stage whose samples are meant; this or `evaluation`."""
    steps: Annotated[Many[Count], Field(min_length=1)] | None = None
    """Its steps; omitted: all."""
    evaluation: str | None = None
    """The evaluation meant, with `checkpoint`."""
    checkpoint: str | None = None
    """`base`, `STAGE.last`, `STAGE.best` or `STAGE.step-N`."""

    def _conflicts(self) -> Refusals:
        yield from self._one_of("stage", "evaluation")
        if (self.evaluation is None) != (self.checkpoint is None):
            problem = "an evaluation has a record for each checkpoint"
            yield refused("checkpoint", problem, "name one")
        if self.steps is not None and self.stage is None:
            yield refused("steps", "only a stage has steps", "remove it")


class RunSamples(Recorded):
    """Which answers of a `run:` source are rows."""

    each: Literal["completion", "group"] = "completion"
    """One row a completion, or one a group with its `candidates`."""


class PassRate(Recorded):
    """The share of a row's answers that passed in a run, as `extra.pass_rate`."""

    run: str
    """As in `run:NAME`."""
    passes: float = 1.0
    """The smallest reward that passes."""


class Examples(Recorded):
    """Worked examples in `extra.examples`: the best answers that a run gave to other rows."""

    run: str
    """As in `run:NAME`."""
    shots: Few = 2
    """Examples of a row."""
    least: float = 1.0
    """The smallest reward of an example."""
    same: str | None = None
    """A field that an example shares with its row."""

    def _conflicts(self) -> Refusals:
        yield from super()._conflicts()
        yield from _no_field("same", self.same)


WHOLE = 1e-6
"""How far from 1 the weights of a mixture may add up."""


class Hub(SpecTable):
    """Which part of an `hf:` source is read."""

    config: str | None = None
    """Configuration or subset; omitted: the default one."""
    split: str | None = None
    """Such as `train`; omitted where there is only one."""
    revision: str | None = None
    """A commit, tag or branch; omitted: the newest. The manifest records the commit."""


class DataSpec(SpecTable):
    """A data set. Stages name it as `NAME`, its dev part as `NAME.dev`."""

    source: Source | None = None
    """`path:FILE`, `hf:NAME` or `OWNER/NAME` (of the hub, or a folder that `datasets` saved),
    `run:NAME` (its answers), `selections:NAME`, `synthesise:NAME`, or the task's, such as
    `bfcl:live_simple`; this or `mix`."""
    hub: Hub | None = None
    options: dict[str, Any] | None = None
    """Options of a task's source, such as `{ pool = 16 }`."""
    samples: RunSamples | None = None
    mix: dict[str, Annotated[float, Field(gt=0, le=1)]] | None = None
    """Other data sets with their shares, `{ easy = 0.7, hard = 0.3 }`."""
    epoch_rows: Count | None = None
    """Of a mixture; omitted: as many as come without repeating a row."""
    format: str | None = None
    """Such as `messages`; required for `path:` and `hf:`."""
    columns: dict[str, str] | None = None
    """The file's names for columns: `{ prompt = "question" }`."""
    csv: Csv | None = None
    expand: Literal["each_turn", "last_call"] | None = None
    """A row for each assistant message, or the conversation up to its last call."""
    pass_rate: PassRate | None = None
    examples: Examples | None = None
    where: Annotated[Many[Where], Field(min_length=1)] | None = None
    order: Annotated[Literal["shuffled", "given"] | OrderBy | None, none_for("shuffled")] = None
    """`shuffled` anew each epoch (default), `given`, or sorted, `{ by = "extra.difficulty" }`."""
    undeclared_calls: Literal["keep", "drop"] = "keep"
    """Rows with calls that their tools do not describe."""
    nulls: Literal["keep", "drop"] = "keep"
    """Null keys of JSON lines."""
    reasoning: Literal["keep", "drop"] = "keep"
    """Reasoning in assistant messages."""
    cut_end: str | None = None
    """Text cut off the end of assistant messages, such as `<|im_end|>`."""
    template_options: dict[str, Any] | None = None
    """Variables of the chat template for these rows."""
    take: TakeRows | None = None
    split: Split | None = None
    max_prompt_tokens: Count | None = None
    """Longer prompts are dropped and counted."""
    min_tokens: Count | None = None
    """Shorter conversations are dropped and counted."""
    max_tokens: Count | None = None
    """Longer conversations are dropped and counted."""
    disjoint_from: Many[str] = ()
    """Benchmarks; rows that share a question or a function name are dropped."""

    def _conflicts(self) -> Refusals:
        return self._of_a_source() if self.mix is None else self._of_a_mixture()

    @property
    def origin(self) -> str:
        """The source, or the sets of a mixture with their weights, in words."""
        if self.mix is None:
            return self.source or ""
        return "mix of " + ", ".join(f"{name} {weight:g}" for name, weight in self.mix.items())

    def _of_a_mixture(self) -> Refusals:
        weights = self.mix or {}
        if len(weights) < 2:
            yield refused("mix", "a mixture has at least two data sets", "name another one")
        elif abs(sum(weights.values()) - 1) > WHOLE:
            terms = " + ".join(f"{weight:g}" for weight in weights.values())
            problem = f"the weights {terms} add up to {sum(weights.values()):g}, not to 1"
            yield refused("mix", problem, "write shares of 1")
        if self.order == "given":
            fix = 'leave it out, or write order = { by = "extra.NAME" }'
            yield refused("order", "the sets of a mixture stand in no order", fix)
        others = [key for key in DataSpec.model_fields if key not in ("mix", "epoch_rows", "order")]
        fix = "write it in the tables of the sets that are mixed"
        yield from self._unread(others, "a mixture takes the rows of its sets as they are", fix)

    def _of_a_source(self) -> Refusals:
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
