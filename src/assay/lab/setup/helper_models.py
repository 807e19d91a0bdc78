"""Opens the helper models of an experiment, each when it is first asked, and shares them.

Stages, evaluations and checks of a session ask the same instances; `release` lets their memory go.
What they were asked is counted here for metrics; judging is the rewards' own.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch

from assay.data.renderings.image_prompts import refuse_rendering
from assay.data.row import Message
from assay.errors import InputError, within
from assay.experiment.helper_tables import WITHOUT_EFFECT, HelperSpec, Price
from assay.lab.setup.checkpoint_models import model_folder
from assay.lab.setup.language_learner import make_renderer
from assay.lab.setup.local_helper import LocalHelper, load_weights
from assay.lab.setup.scripted_helper import ScriptedHelper, read_script
from assay.lab.setup.vision_helper import FEATURE_BYTES, VisionHelper
from assay.models.load import check_loadable
from assay.models.memory import model_shape
from assay.models.precision import Precision
from assay.models.shared_prefill import CACHE_BYTES as PREFILL_BYTES
from assay.models.shared_prefill import ROWS as PREFILL_ROWS
from assay.models.source import EXAMPLES
from assay.models.supported import read_config, why_plain
from assay.models.vision_language import (
    check_vision_language,
    is_vision_language,
    load_vision_language,
    parameter_count,
    position_bytes,
    read_vision_config,
)
from assay.rl.policy import SampleKey, Sampling, Stop
from assay.rollout.engines.cpu.engine import CACHE_BYTES, ROWS
from assay.rollout.engines.endpoint.client import (
    DEADLINE_SECONDS,
    KEY,
    Endpoint,
    EndpointError,
    Unanswered,
    endpoint_of,
)
from assay.rollout.token_choice import key_state
from assay.runs.run_names import run_checkpoint
from assay.tasks.helper_model import HelperAnswer, HelperModel, Usage

KINDS = {**EXAMPLES, "scripted": "scripted:judge.jsonl"}
"""The kinds of a helper model's source, each with an example."""
CONCURRENCY = 8
"""Requests that an endpoint is asked at once."""
METRIC = "helper/"
"""Begins the metrics of helper models: `helper/NAME/cost` and the like."""


@dataclass(frozen=True)
class EndpointHelper:
    """See `HelperModel`: a model behind an endpoint, asked from a pool of threads."""

    name: str
    endpoint: Endpoint
    sampling: Sampling
    rendering: str
    concurrency: int
    usage: Usage = field(default_factory=Usage)

    @property
    def fingerprint(self) -> str:
        """The endpoint's URL and the model's name; what weights answer is not known."""
        return f"{self.endpoint.url} {self.endpoint.model}"

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.concurrency, thread_name_prefix=f"assay-{self.name}")

    def answer(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        keys: Sequence[SampleKey],
    ) -> list[HelperAnswer]:
        """See `HelperModel`. Raises EndpointError where no request can ever succeed."""

        def one(messages: Sequence[Message], key: SampleKey) -> HelperAnswer:
            # Servers take seeds of 31 bits.
            seed = key_state(key) >> 33
            try:
                said = self.endpoint.say(messages, (), sampling, self.rendering, seed)
            except Unanswered as error:
                return HelperAnswer("", failure=f"endpoint: {error}")
            return HelperAnswer(said.text, said.ended, said.prompt_tokens, said.completion_tokens)

        answers = list(self._threads.map(one, conversations, keys))
        self.usage.answered(answers)
        return answers

    def score(
        self,
        conversations: Sequence[Sequence[Message]],
        answers: Sequence[str],
        ended: bool = False,
    ) -> list[tuple[float, ...]]:
        """Raise InputError: an endpoint gives text alone."""
        problem = "a model behind an endpoint gives no log-probabilities"
        fix = "score with a hf:, path:, pypi: or run: model"
        raise InputError(problem, field=f"model.{self.name}.source", fix=fix)


class HelperModels(Mapping[str, HelperModel]):
    """The declared helper models by name."""

    def __init__(self, specs: Mapping[str, HelperSpec], root: Path, precision: Precision):
        """`root` is the lab's: relative files count from there."""
        self.specs, self.root, self.precision = specs, root, precision
        self._usage = {name: Usage() for name in specs}
        self._open: dict[str, HelperModel] = {}
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}
        """The totals at the last `costs`."""

    def __getitem__(self, name: str) -> HelperModel:
        """The model, opened when it is first asked for. Raises InputError, KeyError."""
        with self._lock:
            if name not in self._open:
                self._open[name] = self._opened(name, self.specs[name])
            return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __contains__(self, name: object) -> bool:
        return name in self.specs  # without opening it

    def __len__(self) -> int:
        return len(self.specs)

    def _opened(self, name: str, spec: HelperSpec) -> HelperModel:
        kind, _, rest = spec.source.partition(":")
        sampling, usage = sampling_of(spec), self._usage[name]
        if kind == "scripted":
            file = self.root / rest
            return ScriptedHelper(name, file, sampling, read_script(file), usage)
        if kind == "openai":
            endpoint = endpoint_for(name, spec)
            together = spec.concurrency or CONCURRENCY
            return EndpointHelper(name, endpoint, sampling, spec.rendering, together, usage)
        with within(f"model.{name}.source"):
            folder = model_folder(spec.source, self.root, images=True)
        precision = helper_precision(spec, self.precision)
        if is_vision_language(folder):
            return VisionHelper(name, load_vision_language(folder, precision), sampling, usage)
        weights = load_weights(folder, precision, spec.rendering)
        return LocalHelper(name, weights, sampling, usage)

    def release(self) -> None:
        """Let go of the models' memory; one that is asked again is opened again."""
        with self._lock:
            self._open.clear()

    def recorded(self) -> dict[str, dict[str, str | Mapping[str, float]]]:
        """The tables with their fingerprints, for the manifest."""
        return {name: _recorded(spec, self[name], self.root) for name, spec in self.specs.items()}

    def check(self) -> None:
        """Raise InputError for a script that cannot be read, EndpointError where an endpoint does
        not answer, or not with its key. No weights are read."""
        for name, spec in self.specs.items():
            kind, _, rest = spec.source.partition(":")
            if kind == "scripted":
                read_script(self.root / rest)
            elif kind == "openai":
                with _named(name):
                    endpoint_for(name, spec).check()
            else:
                with within(f"model.{name}.source"):
                    folder = model_folder(spec.source, self.root, images=True)
                check_folder(name, spec, folder)

    def costs(self) -> dict[str, float]:
        """Requests, failures, tokens and money since the last call, as metrics of a step."""
        total = {
            f"{METRIC}{name}/{key}": value
            for name, spec in self.specs.items()
            for key, value in spent(self._usage[name], spec.price).items()
        }
        found = {key: value - self._told.get(key, 0.0) for key, value in total.items()}
        self._told = total
        return found


def check_folder(name: str, spec: HelperSpec, folder: Path) -> None:
    """Raise InputError for a model that cannot be loaded or rendered for; no weights are read."""
    if is_vision_language(folder):
        with within(f"model.{name}"):
            refuse_rendering(spec.rendering)
        check_vision_language(folder)
        return
    _, tokenizer = check_loadable(folder)
    make_renderer(tokenizer, spec.rendering)


def in_process(spec: HelperSpec) -> bool:
    """Whether the model's weights are in this process."""
    return spec.source.partition(":")[0] not in ("openai", "scripted")


def helper_precision(spec: HelperSpec, precision: Precision) -> Precision:
    """The run's precision with the number format that a table asks for."""
    if spec.dtype is None:
        return precision
    compute = {"float32": torch.float32, "bfloat16": torch.bfloat16}[spec.dtype]
    return replace(precision, compute=compute, reason="the helper model's table asks for it")


def memory_bytes(spec: HelperSpec, root: Path, precision: Precision, asked: int) -> float:
    """Bytes of the weights, and of keys and values of a full batch of questions of `asked` tokens,
    of a model in this process."""
    folder = model_folder(spec.source, root, images=True)
    width = helper_precision(spec, precision).compute.itemsize
    if is_vision_language(folder):
        return vision_bytes(folder, width, asked + spec.sampling.max_tokens)
    config = read_config(folder)
    shape = model_shape(config)
    weights = 4.0 * shape.parameters
    if not why_plain(config):
        weights = width * shape.parameters + 4.0 * shape.vocabulary * shape.hidden
    cache = ROWS * (asked + spec.sampling.max_tokens) * 2 * shape.layers * shape.key * width
    return weights + min(cache, CACHE_BYTES)


def vision_bytes(folder: Path, width: int, tokens: int) -> float:
    """Bytes of a model that reads images: all its weights in fp32 while it is loaded or then in
    numbers of `width` bytes, and caches of a full batch before and after a step."""
    config = read_vision_config(folder)
    cache = min(PREFILL_ROWS * tokens * position_bytes(config, width), PREFILL_BYTES)
    return 4.0 * parameter_count(config) + 2 * cache + FEATURE_BYTES


def sampling_of(spec: HelperSpec) -> Sampling:
    """The sampling settings of a table."""
    table = spec.sampling
    stop = None if table.stop is None else Stop(table.stop)
    return Sampling(
        table.temperature, table.max_tokens, table.top_p, table.top_k, table.min_p or 0.0, stop
    )


def spent(usage: Usage, price: Price | None) -> dict[str, float]:
    """What a helper model was asked; its cost is 0 without a price."""
    each = price or Price()
    cost = usage.prompt_tokens * each.prompt + usage.completion_tokens * each.completion
    return {
        "requests": float(usage.requests),
        "failures": float(usage.failures),
        "uncounted": float(usage.uncounted),
        "remembered": float(usage.remembered),
        "prompt_tokens": float(usage.prompt_tokens),
        "completion_tokens": float(usage.completion_tokens),
        "tokens": float(usage.prompt_tokens + usage.completion_tokens),
        "cost": cost / 1e6,
    }


def endpoint_for(name: str, spec: HelperSpec) -> Endpoint:
    """The client of an `openai:` model. Raises EndpointError."""
    with _named(name):
        if spec.key is not None and not os.environ.get(spec.key):
            problem = f"the environment has no {spec.key}"
            raise EndpointError(problem, field="key", fix=f"export {spec.key}=...")
        endpoint = endpoint_of(spec.source, spec.endpoint, spec.key or KEY)
    return replace(endpoint, deadline=spec.deadline or DEADLINE_SECONDS)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Inside, an endpoint's error names the helper model's table."""
    try:
        yield
    except EndpointError as error:
        if (error.field or "").startswith("model."):
            raise
        field = f"model.{name}.{error.field}"
        raise EndpointError(error.problem, field=field, fix=error.fix) from error


def _recorded(
    spec: HelperSpec, model: HelperModel, root: Path
) -> dict[str, str | Mapping[str, float]]:
    """A file or folder is known by what it holds, not by where it lies."""
    table = spec.model_dump(mode="json", exclude_none=True, exclude=WITHOUT_EFFECT)
    kind, _, rest = spec.source.partition(":")
    if kind in ("path", "scripted"):
        table["source"] = kind
    if kind == "run":
        # A name may come to mean a later run; the folder says which checkpoint it was.
        table["checkpoint"] = run_checkpoint(rest, root)[2].relative_to(root).as_posix()
    return {**table, "fingerprint": model.fingerprint}
