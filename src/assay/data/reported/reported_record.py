"""The record of a report: its results, settings and claims as it printed them, typed and frozen.

Numbers keep the digits they were printed with, because rounding is evidence. Readers make records,
and the rules of `judge.audit` judge them.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from assay.data.toml_text import LARGEST, KeyPath
from assay.errors import nearest

T = TypeVar("T")

MOST_DIGITS = 40
"""A number is read with this many digits before or after its point; no report prints more."""


def printed(value: Any) -> Decimal:
    """A number with the digits it was printed with; anything else is refused."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise PydanticCustomError("number", "expected a number")
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and max(abs(exponent), abs(number.adjusted())) > MOST_DIGITS:
        raise PydanticCustomError("digits", "a number of this size is no result")
    return number


def several(value: Any) -> Any:
    """One value stands for an array of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def written(value: Any) -> Any:
    """A switch as the word that stands for it; everything else as it is."""
    return str(value).lower() if isinstance(value, bool) else value


def by_cell(value: Any) -> Any:
    """Scores without cells belong to the one cell without a name."""
    return value if isinstance(value, Mapping) else {"": value}


def refused(problem: str, *path: str | int, fix: str = "") -> PydanticCustomError:
    """The error to raise from a validator about a value that `path` leads to from its table."""
    # The texts travel in the context: as a template, their braces would be filled in.
    context = {"path": path, "problem": problem, "fix": fix}
    return PydanticCustomError("refused", "{problem}", context)


Number = Annotated[Decimal, BeforeValidator(printed), Field(allow_inf_nan=False)]
Setting = Annotated[str | Number, BeforeValidator(written)]
Many = Annotated[tuple[T, ...], BeforeValidator(several)]
Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Items = Annotated[int, Field(ge=1, le=LARGEST, strict=True)]
Cells = Annotated[dict[str, Many[Number]], BeforeValidator(by_cell)]
Counts = Annotated[dict[str, Many[Count]], BeforeValidator(by_cell)]
RunName = Annotated[str, "runs"]
MetricName = Annotated[str, Field(min_length=1), "metrics"]
CellNames = Annotated[tuple[str, ...], BeforeValidator(several), "cells"]
"""Names of what is elsewhere in the record: of runs, metrics and cells."""


class Part(BaseModel):
    """A table of the record."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    line: int | None = None
    """Line of the report, where a reader knows it."""
    source: str = ""
    """Where the facts come from, when not from the report itself."""


Verdict = Literal["better", "worse", "same", "undecided"]
"""What a report says of something: "same" stands for "no effect" and "about equal", "undecided" for
"inside noise" and "cannot be told apart"."""
Meaning = Literal["score", "error rate", "loss", "policy loss", "distance", "cost", "count"]
"""What a metric measures: "distance" is a divergence from the old or reference policy."""
Reading = Literal["better", "worse", "stable", "away", "towards"]
"""What a report concludes from the course of a metric."""


class Scoring(Part):
    """What the scores of the runs are, unless a run says otherwise."""

    benchmark: str = ""
    """The benchmark's name."""
    items: Items | dict[str, Items] | None = None
    """Items of the benchmark, or of each cell."""
    unit: Literal["percent", "share"] = "percent"
    """Whether 26.5 or 0.265 is printed."""
    step: Number = Decimal(1)
    """Smallest step of one item's score: 1 where an item is right or wrong, a quarter where scores
    are means of four passes."""
    categories: Items | None = None
    """Categories that the benchmark's overall score averages."""
    control: RunName = ""
    """The run that others are compared with; empty where none is."""
    nested: bool = False
    """Whether the items of a smaller cell are among those of a larger one."""

    @property
    def highest(self) -> int:
        """The score of a run that has everything right: 100 or 1."""
        return 100 if self.unit == "percent" else 1


class ReportedRun(Part):
    """One condition with its scores."""

    name: str
    """The report's name for it."""
    settings: Mapping[str, Setting] = {}
    """What was set: data, base, learning rate; keys in words of your own, the same in all runs."""
    scores: Cells = Field(default_factory=dict)
    """Cell (a benchmark, a subset) -> the printed values of its repeats."""
    items: Items | dict[str, Items] | None = None
    """Items, where they differ from those of `[scoring]`."""
    right: Counts = Field(default_factory=dict)
    """Cell -> right items of each repeat; scores without a percentage are these over the items."""
    trained: bool = True
    """False for a base model: what a run was trained with is then what a comparison is about."""
    control: Annotated[str | None, "runs"] = None
    """The run it is compared with, where that is not the one of `[scoring]`; "" for none."""
    says: Verdict | None = None
    """What the report says of the whole run, against its control; of single cells a comparison
    says it."""
    finished: bool = True
    """Whether the report has its results."""

    @model_validator(mode="after")
    def _a_count_for_each_score(self) -> "ReportedRun":
        for cell, counts in self.right.items():
            scores = self.scores.get(cell, ())
            if scores and len(scores) != len(counts):
                raise refused(f"{len(counts)} counts for {len(scores)} scores of {cell!r}", "right")
        return self


class Mention(Part):
    """What another place says of something: a run, or a file."""

    of: str
    """The run or the thing."""
    place: str = ""
    """Where it is said."""
    settings: Mapping[str, Setting] = {}
    """What is said of it."""


class ReportedComparison(Part):
    """A comparison that the report draws."""

    run: str
    control: str
    says: Verdict | None = None
    """What the report says of `run` against `control`."""
    cells: CellNames = ()
    """The cells that it is said of; none where it is said of the whole."""
    vary: Many[str] = ()
    """The settings that the comparison is about."""
    points: Many[Number] = ()
    """Smallest and largest difference in percentage points, where scores are not printed."""
    items: Many[Items] = ()
    """Items of the differences, all sizes that occur."""
    score: Number | None = None
    """A score near which the differences lie, in percent."""
    paired: bool = False
    """Whether the report compares item by item."""
    p: Number | None = None
    """The p-value that the report prints."""
    interval: tuple[Number, Number] | None = None
    """The limits of the difference that the report prints, in points."""


class ReportedMetric(Part):
    """Readings of one quantity while a run trained."""

    name: str
    steps: Many[Count] = ()
    values: Many[Number] = ()
    """The printed readings, percentages as they are."""
    counts: Many[Count] = ()
    """What was counted, where the reading is a rate: it is counts / totals."""
    totals: Many[Items] = ()
    cumulative: bool = False
    """Whether each reading counts from the start."""
    meaning: Meaning | None = None
    reads: Reading | None = None
    """What the report concludes from its course."""

    @model_validator(mode="after")
    def _one_reading_a_step(self) -> "ReportedMetric":
        rows = {"values": self.values, "counts": self.counts, "totals": self.totals}
        for key, row in rows.items():
            if row and len(row) != len(self.steps):
                raise refused(f"{len(row)} of them for {len(self.steps)} steps", key)
        if any(count > total for count, total in zip(self.counts, self.totals, strict=False)):
            raise refused("a count is larger than its total", "counts")
        return self


class Change(Part):
    """A printed change, beside the two numbers that it is the change of."""

    of: str
    before: Number
    after: Number
    says: Number
    """In points, or in percent of `before`."""
    relative: bool = False


class Identity(Part):
    """Metrics that must add up, row by row: loss = part + coefficient x term."""

    loss: MetricName
    part: MetricName
    coefficient: Number
    term: MetricName


class Quotient(Part):
    """Metrics of which one is another over a third: average = total / count."""

    value: MetricName
    total: MetricName
    count: MetricName


class Cause(Part):
    """Something of which the report says that it leads to another thing, both of them counted."""

    cause: MetricName
    effect: MetricName


class ReportedForecast(Part):
    """A total that the report foretells for a later step."""

    metric: MetricName
    """A metric with totals since the start."""
    step: Count
    says: Number


class Threshold(Part):
    """A rate that the report calls, or foretells to be, above or below a limit in percent."""

    metric: MetricName
    above: Number | None = None
    below: Number | None = None
    step: Count | None = None
    """The step it is foretold for; none where it is said to be reached."""


class Rating(Part):
    """Marks or scores, and the overall one that is printed with them as their mean."""

    name: str = ""
    marks: Annotated[Many[Number], Field(min_length=1)]
    rounded: bool = False
    """Whether they are scores, printed with some of their digits; marks are exact."""
    says: Number


class Search(Part):
    """A choice of the best of several points: checkpoints, seeds, prompts or settings."""

    chosen: Annotated[str, Field(min_length=1), "runs"]
    """The run that was reported."""
    on: Literal["test", "dev"] = "test"
    """Whether the scores that chose it are the reported ones, or those of items apart."""
    points: Items | None = None
    """How many were tried."""
    baseline: RunName = ""
    """The run whose scores the others are divided by, where points were ranked so."""
    says: Number | None = None
    """The printed harmonic mean of ratios to the baseline."""


class Effect(Part):
    """A claim that something has an effect, or none."""

    what: str
    says: Verdict
    control: str = ""
    """The run without it, where there is one."""


class Open(Part):
    """What the report left to be filled in."""

    place: str
    count: Items = 1


class Reported(Part):
    """All that one report says."""

    about: str = ""
    """What the report is, in a line."""
    scoring: Scoring = Scoring()
    runs: tuple[ReportedRun, ...] = ()
    mentions: tuple[Mention, ...] = ()
    comparisons: tuple[ReportedComparison, ...] = ()
    metrics: tuple[ReportedMetric, ...] = ()
    changes: tuple[Change, ...] = ()
    identities: tuple[Identity, ...] = ()
    quotients: tuple[Quotient, ...] = ()
    causes: tuple[Cause, ...] = ()
    forecasts: tuple[ReportedForecast, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    ratings: tuple[Rating, ...] = ()
    searches: tuple[Search, ...] = ()
    effects: tuple[Effect, ...] = ()
    open: tuple[Open, ...] = ()

    @model_validator(mode="after")
    def _scores_are_on_their_scale(self) -> "Reported":
        for index, run in enumerate(self.runs):
            for value in (value for values in run.scores.values() for value in values):
                if not 0 <= value <= self.scoring.highest:
                    problem = f"{value} is outside 0 to {self.scoring.highest}"
                    fix = 'scores are percentages, or shares with scoring.unit = "share"'
                    raise refused(problem, "runs", index, "scores", fix=fix)
        return self

    @model_validator(mode="after")
    def _names_lead_somewhere(self) -> "Reported":
        """A comparison may name runs without a result; all other names are of the record."""
        runs, metrics = ([part.name for part in parts] for parts in (self.runs, self.metrics))
        cells = [cell for run in self.runs for cell in (*run.scores, *run.right)]
        known = {"runs": runs, "metrics": metrics, "cells": cells}
        places: list[tuple[KeyPath, Part]] = [(("scoring",), self.scoring)]
        for table, parts in self:
            if isinstance(parts, tuple):
                places += [((table, index), part) for index, part in enumerate(parts)]
        for place, part in places:
            for key, described in type(part).model_fields.items():
                names, value = known.get(["", *described.metadata][-1]), getattr(part, key)
                if names is None or not value:
                    continue
                for name in (value,) if isinstance(value, str) else value:
                    if name not in names:
                        problem = f"nothing is named {name!r}"
                        raise refused(problem, *place, key, fix=nearest(name, names))
        for kind, names in (("metrics", metrics), ("runs", runs)):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise refused(f"{twice!r} occurs twice", kind)
        return self

    @property
    def subject(self) -> str:
        """What a finding about all scores is about."""
        return self.scoring.benchmark or self.about

    def run(self, name: str) -> ReportedRun | None:
        """The run of that name."""
        return next((run for run in self.runs if run.name == name), None)

    def metric(self, name: str) -> ReportedMetric:
        """The metric of that name."""
        return next(metric for metric in self.metrics if metric.name == name)
