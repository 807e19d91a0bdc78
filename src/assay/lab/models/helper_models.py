"""Opens the helper models of an experiment, each when it is first asked, and shares them.

Stages, evaluations and checks of a session ask the same instances; `release` lets their memory go.
What they were asked is counted here for metrics; judging is the rewards' own.
"""

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

from assay.data.renderings.image_prompts import refuse_rendering
from assay.errors import InputError, within
from assay.experiment.helper_tables import WITHOUT_EFFECT, HelperSpec
from assay.experiment.price_table import TokenPrice, nano, units
from assay.lab.models.endpoint_helper import EndpointHelper, Rounds
from assay.lab.models.language_learner import make_renderer, model_folder
from assay.lab.models.learner import drawn_by
from assay.lab.models.local_helper import FEATURE_BYTES, LocalHelper, VisionHelper, load_weights
from assay.lab.models.metering import HelperBudgets, Meter, MeteredModel
from assay.models.load import check_loadable
from assay.models.memory import model_shape
from assay.models.precision import Precision
from assay.models.supported import read_config, why_plain
from assay.models.vision_language import CACHE_BYTES as PREFILL_BYTES
from assay.models.vision_language import ROWS as PREFILL_ROWS
from assay.models.vision_language import (
    check_vision_language,
    is_vision_language,
    load_vision_language,
    parameter_count,
    position_bytes,
    read_vision_config,
)
from assay.rl.policy import Sampling
from assay.rollout.engines.cpu.sampler import CACHE_BYTES, ROWS
from assay.rollout.engines.endpoint.client import (
    DEADLINE_SECONDS,
    KEY,
    Endpoint,
    check_rendering,
    endpoint_of,
)
from assay.runs.cost_ledger import STATE, CostLedger, LedgerCall, state_text
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import write_listed
from assay.runs.run_names import run_checkpoint
from assay.tasks.helper_model import KINDS, BudgetScope, Caller, HelperModel, Model, Usage

CONCURRENCY = 8
"""Requests that an endpoint is asked at once."""
SCOPES: tuple[BudgetScope, ...] = get_args(BudgetScope)
METRIC = "helper/"
"""Begins the metrics of helper models: `helper/NAME/cost` and the like."""


class HelperModels(Mapping[str, HelperModel]):
    """The declared helper models by name."""

    def __init__(
        self,
        specs: Mapping[str, HelperSpec],
        root: Path,
        precision: Precision,
        ledger: CostLedger | None = None,
    ):
        """`root` is the lab's: relative files count from there."""
        self.specs, self.root, self.precision = specs, root, precision
        self.ledger = CostLedger() if ledger is None else ledger
        self._usage = {name: Usage() for name in specs}
        self._budgets = {name: budgets_of(name, spec) for name, spec in specs.items()}
        self._now = Caller()
        self._open: dict[str, MeteredModel] = {}
        self._lock = threading.Lock()
        self._told: dict[str, dict[str, int]] = {}
        """The totals at the last `costs`."""
        self._earlier: defaultdict[tuple[str, int], list[LedgerCall]] = defaultdict(list)
        """What earlier processes of the run asked, by stage and step."""

    def __getitem__(self, name: str) -> MeteredModel:
        """The model, opened when it is first asked for. Raises InputError, KeyError."""
        with self._lock:
            if name not in self._open:
                spec = self.specs[name]
                model = self._model(name, spec)
                counts = self.ledger, self._budgets[name], self._usage[name]
                own = spec.token_price, lambda: self._now, spec.cache
                meter = Meter(spec.source, *counts, *own)
                self._open[name] = MeteredModel(name, model, sampling_of(spec), meter)
            return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __contains__(self, name: object) -> bool:
        return name in self.specs  # without opening it

    def __len__(self) -> int:
        return len(self.specs)

    def _model(self, name: str, spec: HelperSpec) -> Model:
        kind, _, rest = spec.source.partition(":")
        if kind in KINDS:
            return KINDS[kind](name, self.root / rest)
        if kind == "openai":
            refuse_beams(name, spec)
            rounds = Rounds(self.ledger)
            return EndpointHelper(name, endpoint_for(name, spec), spec.rendering, rounds)
        with within(f"model.{name}.source"):
            folder = model_folder(spec.source, self.root, images=True)
        precision = helper_precision(spec, self.precision)
        if is_vision_language(folder):
            return VisionHelper(name, load_vision_language(folder, precision))
        refuse_beams(name, spec)
        return LocalHelper(name, load_weights(folder, precision, spec.rendering))

    def release(self) -> None:
        """Let go of the models' memory and of the run's ledger; a model that is asked again is
        opened again."""
        with self._lock:
            self._open.clear()
            self.ledger.close()

    def record_in(self, folder: Path) -> None:
        """Record in the ledger of the run in `folder`, what was asked before it was made included;
        what the ledger holds counts in the budgets, and what it holds of a step in the step's
        `costs`. Raises LedgerUnusable."""
        if not self.specs:
            return
        self.ledger.move_to(folder)
        calls = self.ledger.calls()
        for budgets in self._budgets.values():
            budgets.restart(calls)
        now = self.ledger.opening
        self._earlier.clear()
        for call in calls:
            if call.opening < now:
                self._earlier[call.stage, call.step].append(call)

    @contextmanager
    def recorded_in(self, run: RunDirectory) -> Iterator[None]:
        """`record_in` for the work on a run, which knows afterwards what its ledger holds; then the
        models' memory is let go of."""
        try:
            self.record_in(run.path)
            yield
            if self.ledger.file is not None:
                write_listed(run.path, run.path / STATE, state_text(self.ledger.state()))
        finally:
            self.release()

    def keep_costs(self, checkpoint: Path) -> None:
        """Store what the run's ledger holds in the folder of a checkpoint."""
        if self.ledger.file is not None:
            (checkpoint / STATE).write_text(state_text(self.ledger.state()), encoding="utf-8")

    def stage(self, name: str, step: int) -> None:
        """What is asked from now on is for a step of a stage."""
        self._turn_to(Caller(name, step))

    @contextmanager
    def evaluation(self, name: str, checkpoint: str) -> Iterator[None]:
        """What is asked inside is for an evaluation of a checkpoint; its step is the checkpoint's,
        0 for a model that no stage trained. It is no cost of the step that comes after it."""
        before = self._now
        step = checkpoint.rpartition(".step-")[2]
        self._turn_to(Caller(name, int(step) if step.isascii() and step.isdigit() else 0))
        try:
            yield
        finally:
            self._told = {each: counted(usage) for each, usage in self._usage.items()}
            self._turn_to(before)

    def _turn_to(self, now: Caller) -> None:
        self._now = now

    def recorded(self) -> dict[str, dict[str, str | Mapping[str, float]]]:
        """The tables with their fingerprints, for the manifest."""
        return {name: _recorded(spec, self[name], self.root) for name, spec in self.specs.items()}

    def check(self) -> None:
        """Raise InputError where a model cannot be had, or an endpoint does not answer, or not with
        its key. No weights are read."""
        for name, spec in self.specs.items():
            kind, _, rest = spec.source.partition(":")
            if kind in KINDS:
                KINDS[kind](name, self.root / rest)
            elif kind == "openai":
                refuse_beams(name, spec)
                with within(f"model.{name}"):
                    check_rendering(spec.rendering)
                    endpoint_for(name, spec).check()
            else:
                with within(f"model.{name}.source"):
                    folder = model_folder(spec.source, self.root, images=True)
                check_folder(name, spec, folder)

    def costs(self) -> dict[str, float]:
        """Requests, failures, tokens and money since the last call, as metrics of a step; no money
        where no price is known."""
        return self._costs([])

    def step_costs(self) -> dict[str, float]:
        """The `costs` of a step that has ended, with those of tries that a kill ended; the next one
        begins."""
        stage, step = self._now.stage, self._now.step
        self.stage(stage, step + 1)
        return self._costs(self._earlier.pop((stage, step), []))

    def _costs(self, tries: Sequence[LedgerCall]) -> dict[str, float]:
        costs = dict[str, float]()
        for name, spec in self.specs.items():
            total = counted(self._usage[name])
            before = self._told.get(name, {})
            since = {key: value - before.get(key, 0) for key, value in total.items()}
            self._told[name] = total
            values = spent(since, spec.token_price)
            own = [call for call in tries if call.model == name]
            earlier = recorded_costs(own)
            costs |= {f"{METRIC}{name}/{key}": values[key] + earlier[key] for key in values}
        return costs


def check_folder(name: str, spec: HelperSpec, folder: Path) -> None:
    """Raise InputError for a model that cannot be loaded or rendered for; no weights are read."""
    if is_vision_language(folder):
        with within(f"model.{name}"):
            refuse_rendering(spec.rendering)
        check_vision_language(folder)
        return
    refuse_beams(name, spec)
    _, tokenizer = check_loadable(folder)
    make_renderer(tokenizer, spec.rendering)


def refuse_beams(name: str, spec: HelperSpec) -> None:
    """Raise InputError where a model that does not read images here is to search."""
    if spec.sampling.beams > 1:
        problem = "only a model in this process that reads images decodes by beams"
        raise InputError(problem, field=f"model.{name}.sampling.beams", fix="remove it")


def in_process(spec: HelperSpec) -> bool:
    """Whether the model's weights are in this process."""
    return spec.source.partition(":")[0] not in ("openai", *KINDS)


def helper_precision(spec: HelperSpec, precision: Precision) -> Precision:
    """The run's precision with the number format that a table asks for."""
    if spec.dtype is None:
        return precision
    compute = getattr(torch, spec.dtype)
    return replace(precision, compute=compute, reason="the helper model's table asks for it")


def memory_bytes(spec: HelperSpec, root: Path, precision: Precision, tokens: int) -> float:
    """Bytes of the weights, and of keys and values of a full batch of questions of `tokens` tokens,
    of a model in this process."""
    folder = model_folder(spec.source, root, images=True)
    width = helper_precision(spec, precision).compute.itemsize
    if is_vision_language(folder):
        return vision_bytes(folder, width, tokens + spec.sampling.max_tokens)
    config = read_config(folder)
    shape = model_shape(config)
    weights = 4.0 * shape.parameters
    if not why_plain(config):
        weights = width * shape.parameters + 4.0 * shape.vocabulary * shape.hidden
    cache = ROWS * (tokens + spec.sampling.max_tokens) * 2 * shape.layers * shape.key * width
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
    return replace(drawn_by(table, table.temperature), beams=table.beams)


def counted(usage: Usage) -> dict[str, int]:
    """What a helper model was asked so far, by metric."""
    read, wrote = usage.prompt_tokens, usage.completion_tokens
    return {
        "requests": usage.requests,
        "failures": usage.failures,
        "uncounted": usage.uncounted,
        "remembered": usage.remembered,
        "prompt_tokens": read,
        "completion_tokens": wrote,
        "tokens": read + wrote,
    }


def recorded_costs(calls: Sequence[LedgerCall]) -> dict[str, float]:
    """`spent` of calls in a ledger; the tokens of scores are not recorded, and what a teacher told
    is read again."""
    calls = [call for call in calls if call.kind != "read"]
    requests = [call for call in calls if call.status != "remembered"]
    usage = Usage(
        requests=sum(call.attempts if call.kind == "score" else 1 for call in requests),
        failures=sum(call.status == "failed" for call in requests),
        uncounted=sum(
            call.status == "answered" and call.kind == "answer" and call.prompt_tokens is None
            for call in requests
        ),
        prompt_tokens=sum(call.prompt_tokens or 0 for call in requests),
        completion_tokens=sum(call.completion_tokens or 0 for call in requests),
        remembered=len(calls) - len(requests),
    )
    return {**counted(usage), "cost": units(sum(call.cost or 0 for call in requests))}


def spent(counts: Mapping[str, int], price: TokenPrice | None) -> dict[str, float]:
    """Counts as metrics, with their cost where a price is known."""
    metrics = {key: float(count) for key, count in counts.items()}
    if price is not None:
        tokens = counts["prompt_tokens"], counts["completion_tokens"]
        metrics["cost"] = units(price.of(*tokens))
    return metrics


def budgets_of(name: str, spec: HelperSpec) -> HelperBudgets:
    """The budgets of a model, nothing of which is spent."""
    amounts = [getattr(spec.budget, scope, None) for scope in SCOPES]
    limits = zip(SCOPES, amounts, strict=True)
    return HelperBudgets(name, {scope: nano(a) for scope, a in limits if a is not None})


def endpoint_for(name: str, spec: HelperSpec) -> Endpoint:
    """The client of an `openai:` model. Raises InputError."""
    with within(f"model.{name}"):
        if spec.key is not None and not os.environ.get(spec.key):
            problem = f"the environment has no {spec.key}"
            raise InputError(problem, field="key", fix=f"export {spec.key}=...")
        endpoint = endpoint_of(spec.source, spec.endpoint, spec.key or KEY)
    deadline = spec.deadline or DEADLINE_SECONDS
    turns = asyncio.Semaphore(spec.concurrency or CONCURRENCY)
    timeout = spec.timeout or deadline / 2
    return replace(endpoint, deadline=deadline, timeout=timeout, turns=turns)


def _recorded(
    spec: HelperSpec, model: HelperModel, root: Path
) -> dict[str, str | Mapping[str, float]]:
    """A file or folder is known by what it holds, not by where it lies."""
    table = spec.model_dump(mode="json", exclude_none=True, exclude=WITHOUT_EFFECT)
    kind, _, rest = spec.source.partition(":")
    if kind == "path" or kind in KINDS:
        table["source"] = kind
    if kind == "run":
        # A name may come to mean a later run; the folder says which checkpoint it was.
        table["checkpoint"] = run_checkpoint(rest, root)[2].relative_to(root).as_posix()
    return {**table, "fingerprint": model.fingerprint}
