"""Registers who samples completions, by the names that `[engine] sample` has; samples with an
engine of somebody else's, and proves each hand-over of weights to it.

`own` are the engines of `rollout`. To add an engine, open it in `sampler_of`, and enter its name in
`experiment.tables`.

The engine takes over the trained weights before the first sample that follows an update, so that
several updates of a step cost one hand-over. Then weights are read back from it, and
log-probs compared (`handover`): of a probe, which is drawn from the first turns, and of some of the
turns that are sampled next. Those prove how they were drawn, too (`rl.sampling_proof`). An engine
may serve several samplers in turn, such as a stage and its evaluations.

vLLM runs `vllm_worker` in a process of its own, started with the interpreter of its environment,
which ends with this one, however this one ends. On a CPU weights go over as a safetensors file in
memory (/dev/shm), on CUDA as handles of the tensors themselves (vLLM's weight transfer, `ipc`).
Adapters are merged: vLLM's CPU kernels sample six times slower with one apart, and cannot score.
"""

import atexit
import base64
import json
import os
import pickle
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from threading import TIMEOUT_MAX, Event, Timer
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.multiprocessing.reductions import reduce_tensor  # type: ignore[attr-defined]

from assay.data.episode import Context, Turn, tokens_of
from assay.engines import environments, handover
from assay.engines.environments import ENVIRONMENTS, TORCH, need_vllm
from assay.engines.handover import Columns, HandedOver
from assay.errors import RunFailure
from assay.experiment.experiment import Experiment
from assay.experiment.tables import patience_seconds
from assay.experiment.training_settings import LoraAdapt
from assay.models.folder import WEIGHTS
from assay.models.precision import Precision
from assay.models.weight_files import (
    State,
    bare,
    by_file_names,
    drawn_moments,
    logps_of,
    rounded,
    whole_weights,
)
from assay.rl.policy import SampleKey, Sampling
from assay.rl.sampling_proof import NotAsTold, SamplingProof, Sums, drawn_sums, wrong_end
from assay.rollout.engines.register import Sampler, sampler_here
from assay.rollout.episodes import turn_finished
from assay.rollout.token_choice import key_state
from assay.train.metric_names import ENGINE

SCRIPT = Path(__file__).with_name("vllm_worker.py")
MEMORY = Path("/dev/shm")
PREFIX = "assay-engine-"
CACHE_GIB = 2.0
"""Keys and values held on a CPU."""


@dataclass(frozen=True, slots=True)
class EngineOpening:
    """All that an engine is opened with; samplers that agree in it share one."""

    folder: str
    """A whole model of the same shape, whose weights are replaced, with its tokenizer."""
    dtype: str
    device: str
    patience: float = inf
    """Seconds for which the process may say nothing."""


@dataclass
class VllmEngine:
    """One model in vLLM's process, whose weights are replaced again and again."""

    opening: EngineOpening
    process: "subprocess.Popen[str]"
    log: Path
    folder: Path
    """In memory, for what is handed over."""
    owner: object = None
    """The sampler whose weights it has."""
    held: HandedOver = field(default_factory=HandedOver)
    """What it was handed over last."""
    asleep: bool = False

    def load(self, state: State) -> None:
        """Take over weights by the names of files, and forget keys and values of earlier ones."""
        if self.opening.device != "cpu":
            # First the weights' memory alone, because the trainer's copy is held meanwhile.
            self._wake("weights")
            self._transfer(state)
            self._wake("kv_cache")
            self.asleep = False
            return
        file = self.folder / WEIGHTS
        try:
            save_file(state, file, metadata={"format": "pt"})
            self.ask("load", folder=str(self.folder))
        finally:
            file.unlink(missing_ok=True)

    def _transfer(self, state: State) -> None:
        """By CUDA's handles, which the process opens while `state` is held here."""
        torch.cuda.synchronize()
        gpu = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handles = [{gpu: reduce_tensor(tensor)[1]} for tensor in state.values()]
        update = {
            "names": list(state),
            "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in state.values()],
            "shapes": [list(tensor.shape) for tensor in state.values()],
            "ipc_handles_pickled": base64.b64encode(pickle.dumps(handles)).decode(),
        }
        self.ask("receive", update=update)
        torch.cuda.ipc_collect()

    def sleep(self) -> None:
        """Give memory back where the trainer needs it; weights come before it is asked again."""
        if self.opening.device != "cpu" and not self.asleep:
            self.ask("sleep")
            self.owner, self.asleep = None, True

    def _wake(self, part: str) -> None:
        if self.asleep:
            torch.cuda.empty_cache()
            self.ask("wake", part=part)

    def read(self, columns: Columns) -> State:
        """Columns of the weights that it computes with; none of those that it cannot give."""
        file = self.folder / "read.safetensors"
        try:
            self.ask("read", columns=columns, file=str(file))
            return load_file(file)
        finally:
            file.unlink(missing_ok=True)

    def reused(self, prompt: list[int]) -> int:
        """How many tokens of a prompt its prefix cache holds."""
        return self.ask("reused", prompt=prompt)

    def sample(
        self,
        prompts: list[list[int]],
        seeds: list[int],
        ends: list[int],
        settings: Mapping[str, Any],
    ) -> list[tuple[list[int], list[float], bool]]:
        """Tokens, their log-probs, and whether an end or a stop string was met, of each prompt."""
        return self.ask("sample", prompts=prompts, seeds=seeds, ends=ends, settings=settings)

    def score(self, contexts: list[list[int]], actions: list[list[int]]) -> list[list[float]]:
        """Log-probs of all actions at temperature 1."""
        return self.ask("score", contexts=contexts, actions=actions)

    def score_cached(
        self, contexts: list[list[int]], actions: list[list[int]]
    ) -> list[list[float]]:
        """Of each last action, by way of the prefix cache."""
        return self.ask("score_cached", contexts=contexts, actions=actions)

    def ask(self, do: str, **request: Any) -> Any:
        """What the process answers. Raises RunFailure where it fails, is gone or says nothing."""
        assert self.process.stdin is not None and self.process.stdout is not None
        late, patience = Event(), self.opening.patience
        # It may stop in the middle of a line, so that reading one would never end.
        timer = Timer(min(patience, TIMEOUT_MAX), lambda: (late.set(), self.process.kill()))
        timer.start()
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            limit = f"{patience / 60:g} minutes (engine.patience)"
            raise RunFailure(f"vLLM's process was asked to {do} and said nothing for {limit}")
        if not line:
            how = environments.how_ended(self.process.wait())
            words = environments.last_words_in(self.log)
            raise RunFailure(f"vLLM's process ended ({how}): {words}")
        reply = json.loads(line)
        if "error" in reply:
            raise RunFailure(f"vLLM failed to {do}: {reply['error'][-environments.LAST_WORDS :]}")
        return reply["answer"]

    def close(self) -> None:
        """End the process and remove its folder."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_open: list[VllmEngine] = []
"""At most one: its weights fill memory."""


def opened(opening: EngineOpening) -> VllmEngine:
    """The engine that is opened so; another one that is open is closed first.

    Raises InputError where vLLM is not installed, RunFailure where it does not start.
    """
    for engine in list(_open):
        if engine.opening == opening and engine.process.poll() is None:
            return engine
        close_all()
    _open.append(_started(opening))
    return _open[0]


@atexit.register
def close_all() -> None:
    """End what is open."""
    while _open:
        _open.pop().close()


def _started(opening: EngineOpening) -> VllmEngine:
    python = environments.python_of(environments.need_vllm())
    environments.remove_abandoned(MEMORY, PREFIX)
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
    log = folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [str(python), "-I", str(SCRIPT), str(os.getpid()), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=_surroundings(opening.device),
        )
    engine = VllmEngine(opening, process, log, folder)
    try:
        engine.ask(
            "open",
            folder=opening.folder,
            dtype=opening.dtype,
            device=opening.device,
            memory_gib=CACHE_GIB,
        )
    except BaseException:
        engine.close()
        raise
    return engine


def _surroundings(device: str) -> dict[str, str]:
    # One process, so that nothing is left when it is killed. Threads wait without spinning: the
    # trainer's run on the same cores.
    clean = environments.surroundings()
    if device != "cpu":  # handles of tensors are opened on the GPU that holds them
        place = torch.cuda.current_device()
        visible = clean.get("CUDA_VISIBLE_DEVICES", "")
        clean["CUDA_VISIBLE_DEVICES"] = visible.split(",")[place] if visible else str(place)
    return clean | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
    }


PROBES, PROBE_TOKENS, PROBE_ACTIONS = 8, 768, 64
"""Sequences of the probe at most, their tokens in all, and actions of each."""
PROBE_CONTEXT = 256
"""Tokens of a context that the probe keeps, the last ones: all scores of a prompt are computed."""
POINTS = 4
"""Actions of each sequence that are also scored by way of the prefix cache."""
OWN, OWN_CONTEXT = 256, 2048
"""Sampled tokens of each step that are scored as well, about, and tokens of their contexts at most:
they are read whole."""
SEED_BITS = (1 << 63) - 1

Sequences = tuple[list[list[int]], list[list[int]]]
"""Contexts and the actions that follow each."""


class ProvenSampler:
    """See `rollout.engines.register.Sampler`."""

    def __init__(
        self,
        opened: Callable[[], Any],
        module: nn.Module,
        end_tokens: frozenset[int],
        compute: torch.dtype | None = None,
    ):
        """`opened` gives a `VllmEngine`, which is started at the first sample, or what answers as
        one does; `compute` is the type of
        its weights: float32 where there is an adapter, whose small changes bf16 would lose."""
        self.module = module
        self.end_tokens = end_tokens
        self.compute = compute or next(module.parameters()).dtype
        self.numerics = handover.ROUGH if self.compute == torch.bfloat16 else handover.FULL
        self.measured: dict[str, float] = {}
        """Metrics of the last hand-over."""
        self.proof = SamplingProof()
        self._opened = opened
        self._engine: VllmEngine | None = None
        self._due = True
        self._unseen = True
        """No turn of these weights was scored yet."""
        self._earlier: list[int] = []
        """Tokens that a prefix cache of earlier weights would hold."""
        self._probe: Sequences | None = None
        self._first: handover.ProbeReading | None = None
        self._before: handover.ProbeReading | None = None

    def refresh(self, module: nn.Module) -> None:
        """The weights changed: the next sample hands them over."""
        self.module = module
        self._due = True

    def sleep(self) -> None:
        """The engine gives its memory back, where it has any that the trainer needs."""
        if self._engine is not None:
            self._engine.sleep()

    def conversations(self) -> AbstractContextManager[None]:
        """The engine keeps prefixes by itself."""
        return nullcontext()

    def sample(
        self,
        contexts: Sequence[Context],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
    ) -> list[Turn]:
        """One turn per context. Raises NotAsTold, and RunFailure where the engine ends."""
        if not contexts:
            return []
        engine = self._engine = self._opened()
        self._hand_over(engine)
        prompts = [list(tokens_of(context)) for context in contexts]
        seeds = [key_state(key) & SEED_BITS for key in keys]
        ends = sorted(self.end_tokens)
        sampled = engine.sample(prompts, seeds, ends, settings_of(sampling))
        turns = []
        for prompt, (tokens, logps, ended) in zip(prompts, sampled, strict=True):
            if not ended and len(tokens) < sampling.max_tokens:
                raise RunFailure(
                    f"the engine cut a completion after {len(tokens)} of {sampling.max_tokens} "
                    f"tokens, behind a prompt of {len(prompt)}: it holds no more at once"
                )
            mask = (True,) * len(tokens)
            how = "stop" if ended else "length"
            turn = Turn(tuple(prompt), tuple(tokens), mask, tuple(logps), how, policy_version)
            turns.append(turn)
            turn_finished()
        self._earlier = [*prompts[0], *turns[0].actions][:PROBE_CONTEXT]
        if self._probe is None and (probe := chosen(turns)):
            self._probe = probe
            self._prove(engine)
        self._watch(turns, seeds, sampling)
        return turns

    def _hand_over(self, engine: VllmEngine) -> None:
        if engine.owner is self and not self._due:
            return
        started = time.perf_counter()
        engine.owner = None  # of nobody, should this fail in between
        state = by_file_names(self.module, whole_weights(self.module, self.compute))
        engine.load(state)
        loaded = time.perf_counter()
        before, columns = engine.held, handover.chosen_columns(state, engine.held)
        engine.held = handover.kept(state, before)
        metrics = handover.compare(state, before, columns, engine.read(columns))
        if self._earlier and (cached := engine.reused(self._earlier)):
            raise NotAsTold(f"{handover.STALE_CACHE}: {cached} tokens of what was sampled before")
        engine.owner, updated, self._due, self._unseen = self, self._due, False, True
        if updated:
            seconds = {"engine/load_seconds": loaded - started}
            self.measured = (
                seconds | metrics | {"engine/read_seconds": time.perf_counter() - loaded}
            )
        if self._probe is not None:
            self._prove(engine)

    def _prove(self, engine: VllmEngine) -> None:
        started = time.perf_counter()
        assert self._probe is not None
        with rounded(self.module, self.compute):
            now = reading(self.module, engine, *self._probe)
        if self._first is None or self._before is None:
            with bare(self.module) as without:
                bare_S = logps_of(self.module, *self._probe).numpy() if without else None
            metrics = handover.judge_first(now, self.numerics, bare_S)
            self._first = now
        else:
            metrics = handover.judge(now, self._before, self._first, self.numerics)
        self._before = now
        self.measured |= {**metrics, "engine/proof_seconds": time.perf_counter() - started}

    def _watch(self, turns: Sequence[Turn], seeds: Sequence[int], sampling: Sampling) -> None:
        """Prove how turns were drawn, some of those that these weights sampled first by their
        scores. Raises NotAsTold."""
        if problem := wrong_end(turns, self.end_tokens, sampling.stop):
            raise NotAsTold(problem)
        sums = self._score_own(turns, sampling) if self._unseen and self._probe else {}
        if not sampling.temperature:
            return  # the likeliest tokens are not drawn
        different = {(t.context, seed): t for t, seed in zip(turns, seeds, strict=True)}.values()
        metrics = self.proof.add(
            sums, [(t.context, t.actions, sum(t.behaviour_logps or ())) for t in different]
        )
        self.measured |= {ENGINE + name: value for name, value in metrics.items()}
        if self.proof.broken:
            raise NotAsTold(self.proof.broken)

    def _score_own(self, turns: Sequence[Turn], sampling: Sampling) -> Sums:
        """What the scores of some turns add to the proof. Raises NotAsTold."""
        started = time.perf_counter()
        own = scored_turns(turns)
        if not own or (sampling.top_p, sampling.top_k, sampling.min_p) != (1.0, 0, 0.0):
            return {}
        assert self._before is not None and self._first is not None
        self._unseen = False
        warmth = sampling.temperature or 1.0  # the likeliest tokens are told at 1
        contexts, actions = [[*tokens_of(t.context)] for t in own], [[*t.actions] for t in own]
        with rounded(self.module, self.compute):
            moments = drawn_moments(self.module, contexts, actions, warmth)
        logps_S, entropies_S, variances_S = (each_S.numpy() for each_S in moments)
        told_S = np.array([logp for turn in own for logp in turn.behaviour_logps or ()])
        at_one = min(warmth, 1.0)  # differences of logits count the more the colder it is
        logps = told_S * at_one, logps_S * at_one
        metrics = handover.judge_sampled(*logps, self._before, self._first, self.numerics)
        self.measured |= metrics
        self.measured["engine/proof_seconds"] += time.perf_counter() - started
        if not sampling.temperature:
            return {}
        return drawn_sums(logps_S, entropies_S, variances_S, told_S)


def scored_turns(turns: Sequence[Turn]) -> list[Turn]:
    """The first tokens of turns, of the shortest contexts, until there are enough: which, must not
    depend on what was drawn after."""
    chosen, drawn, read = list[Turn](), 0, dict[Context, int]()
    for turn in sorted(turns, key=lambda turn: len(tokens_of(turn.context))):
        read[turn.context] = len(tokens_of(turn.context))
        if drawn >= OWN or sum(read.values()) > OWN_CONTEXT:
            break
        logps = (turn.behaviour_logps or ())[:OWN]
        chosen.append(replace(turn, actions=turn.actions[:OWN], behaviour_logps=logps))
        drawn += len(logps)
    return chosen


def settings_of(sampling: Sampling) -> dict[str, Any]:
    """Sampling settings by vLLM's names."""
    names = ("temperature", "max_tokens", "top_p", "top_k", "min_p")
    settings = {name: getattr(sampling, name) for name in names}
    return settings | ({"stop": list(sampling.stop.strings)} if sampling.stop else {})


def chosen(turns: Sequence[Turn]) -> Sequences | None:
    """The last tokens of contexts, and actions, of turns of different contexts, at least one; None
    where none has two actions."""
    contexts: list[list[int]] = []
    actions: list[list[int]] = []
    spent = 0
    for turn in turns:
        context, tail = [*tokens_of(turn.context)[-PROBE_CONTEXT:]], [*turn.actions[:PROBE_ACTIONS]]
        size = len(context) + len(tail)
        if context in contexts or len(tail) < 2 or (contexts and spent + size > PROBE_TOKENS):
            continue
        contexts.append(context)
        actions.append(tail)
        spent += size
        if len(contexts) == PROBES:
            break
    return (contexts, actions) if contexts else None


def reading(
    module: nn.Module, engine: VllmEngine, contexts: list[list[int]], actions: list[list[int]]
) -> handover.ProbeReading:
    """The probe scored by both. The cache is asked first: scoring anew might put right what it
    holds."""
    starts = np.cumsum([0, *map(len, actions)])
    points = [
        (row, place)
        for row, tail in enumerate(actions)
        for place in sorted({len(tail) * (n + 1) // POINTS - 1 for n in range(POINTS)} - {-1})
    ]
    heads = [actions[row][: place + 1] for row, place in points]
    cached = engine.score_cached([contexts[row] for row, _ in points], heads)
    scored = engine.score(contexts, actions)
    return handover.ProbeReading(
        trainer_S=logps_of(module, contexts, actions).numpy(),
        engine_S=np.array([logp for row in scored for logp in row]),
        cached_K=np.array([logp for (logp,) in cached]),
        places_K=np.array([starts[row] + place for row, place in points]),
    )


def vllm_compute(experiment: Experiment, precision: Precision) -> torch.dtype:
    """The type that vLLM computes in: merged into bf16 weights, most of an adapter's small changes
    would be rounded away."""
    adapts = [stage.adapt for stage in experiment.stage.values()]
    adapted = any(isinstance(adapt, LoraAdapt) for adapt in adapts)
    return precision.master if adapted else precision.compute


def name_of(experiment: Experiment) -> str:
    """Who samples the completions of an experiment."""
    return "own" if experiment.engine is None else experiment.engine.sample


def sampler_of(
    module: nn.Module,
    end_tokens: frozenset[int],
    experiment: Experiment,
    precision: Precision,
    base: Path,
    processes: int = 1,
) -> Sampler:
    """The sampler that an experiment asks for: the engine of `rollout` that computes such a model,
    where so many processes may share a batch, or vLLM, which is started on the folder of the base
    model at the first sample, and shared."""
    if name_of(experiment) == "own":
        return sampler_here(module, end_tokens, precision.compute, processes)
    compute = vllm_compute(experiment, precision)
    kind = str(compute).removeprefix("torch.")
    opening = EngineOpening(str(base), kind, precision.device, patience_seconds(experiment.engine))
    return ProvenSampler(partial(opened, opening), module, end_tokens, compute)


def recorded(experiment: Experiment, precision: Precision) -> dict[str, Any]:
    """What a manifest says of an engine that is not `own`."""
    if name_of(experiment) == "own":
        return {}
    compute = str(vllm_compute(experiment, precision)).removeprefix("torch.")
    return {"engine": {"sample": name_of(experiment), "compute": compute}}


def packages_of(experiment: Experiment) -> dict[str, str]:
    """The engine's package and its version, which stand in no environment of Assay's."""
    if name_of(experiment) == "own":
        return {}
    pins = ENVIRONMENTS[need_vllm()].requirements
    return dict(pin.split("==") for pin in pins if pin != TORCH)  # type: ignore[misc]
