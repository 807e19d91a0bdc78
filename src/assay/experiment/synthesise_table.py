"""The `[synthesise.NAME]` tables: rows that a teacher makes from seeds, and what has to hold.

Only the accepted values are defined here. `assay synthesise` makes the rows, and a data set reads
them as `source = "synthesise:NAME"`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import nearest
from assay.experiment.base_table import (
    Count,
    Few,
    Many,
    RenderingSettings,
    Share,
    Table,
    refused,
)
from assay.experiment.helper_tables import HelperSpec
from assay.experiment.reward_tables import Reward, RewardSettings

SYNTHESISE = "synthesise"
"""The kind of a data source that takes made rows, and the name of the table."""
FILE = "path:"
READ = ("json", "tags")
"""How a teacher may write its rows, where no function of the user's reads them."""


class Agree(Table):
    """Independent answers to each made question, judged by the row's own reward."""

    samples: Few = 5
    """Answers to each question."""
    least: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Share of them that must earn the full reward."""
    model: str | None = None
    """The helper model that answers; omitted: the teacher."""


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
    agree: Agree | None = None
    """What a model's own answers to the made question have to earn."""
    near: Share = 0.7
    """ROUGE-L of two questions from which the later one is left out; 1: the same words."""
    disjoint_from: Many[str] = ()
    """Benchmarks and data sets that share no question with a made row, beside the file's
    evaluations."""

    @model_validator(mode="after")
    def _reads_rows(self) -> Self:
        if self.read not in READ and not self.read.startswith(FILE):
            raise refused(
                "read", f"unknown way to write rows {self.read!r}", nearest(self.read, READ)
            )
        return self


def check_teachers(
    name: str, spec: SynthesiseSpec, helpers: Mapping[str, HelperSpec]
) -> Iterator[PydanticCustomError]:
    """Teachers are declared, draw what is sampled several times, and answers that cost are kept."""
    place = f"{SYNTHESISE}.{name}"
    asked = {"teacher": (spec.teacher, spec.samples)}
    if spec.agree is not None:
        asked["agree.model"] = (spec.agree.model or spec.teacher, spec.agree.samples)
    for key, (model, samples) in asked.items():
        if model not in helpers:
            fix = nearest(model, helpers) if helpers else f"declare it as [model.{model}]"
            yield refused(f"{place}.{key}", f"no helper model {model!r}", fix)
            continue
        helper = helpers[model]
        if samples > 1 and not helper.sampling.temperature:
            what = "agree.samples" if key == "agree.model" else "samples"
            problem = f"{model!r} answers all {samples} times the same at temperature 0"
            fix = f"write sampling = {{ temperature = 1.0 }} in [model.{model}]"
            yield refused(f"{place}.{what}", problem, fix)
        if helper.cache is False:
            problem = "what a made row cost is kept until it is used"
            yield refused(f"model.{model}.cache", problem, "remove it")
