"""Whole runs on vLLM itself: methods, adapters, several turns, evaluations; killed and resumed.

A random model of two layers, of the smallest heads that vLLM computes on a CPU.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import torch
from transformers import PreTrainedModel

from assay.engines.environments import environment_for, installed
from assay.engines.register import MEMORY, PREFIX, EngineOpening, ProvenSampler, close_all, opened
from assay.lab.session import session
from assay.models.precision import choose_precision
from assay.rl.policy import SampleKey, Sampling
from assay.runs.run_directory import RunDirectory, runs_of
from assay.tasks import task as registry
from tests import from_files
from tests.docs.pages import as_module
from tests.forked import assay, kill
from tests.lab.run.test_kill import everything, faults, steps_done
from tests.lab.run.test_runs_of_ranks import is_over
from tests.lab.sweep.test_missing_runs import wait_for
from tests.lengths import MODULE, make_lengths_lab
from tests.models.folders import tiny_model
from tests.tiny_labs import make_lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(installed(environment_for("vllm")) is None, reason="assay engines add vllm"),
]
SHORT = ("engine.sample=vllm", "stage.sft.steps=16", "stage.rl.steps=3")
PROOF = ("engine/gap", "engine/read", "engine/proof", "engine/proof_cache", "engine/gap_sampled")


def tiny_sized(positions: int, kind: str = "llama", tied: bool = True) -> PreTrainedModel:
    """A random model whose heads vLLM computes."""
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    sizes = {"hidden_size": 64, "max_position_embeddings": positions}
    return tiny_model(kind, tied=tied, **sizes, **heads)


def head_of_32(folder: Path) -> None:
    """Such a model in place of a lab's."""
    tiny_sized(2048).save_pretrained(folder / "model")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    make_lab(tmp_path)
    head_of_32(tmp_path)
    yield tmp_path
    close_all()


def started(lab: Path, *settings: str, file: str = "tiny") -> RunDirectory:
    (run,) = from_files.start(lab / f"{file}.toml", (*SHORT[:1], *settings), root=lab, new=True)
    return run


def lines(run: RunDirectory, stage: str) -> list[dict[str, Any]]:
    read = map(json.loads, run.metrics.read_text().splitlines())
    return [line for line in read if line["stage"] == stage]


def folders(pid: int | None) -> list[Path]:
    return [*MEMORY.glob(f"{PREFIX}{pid}-*")]


def without_proofs(found: dict[str, object]) -> dict[str, object]:
    """A resumed stage draws another probe."""
    kept = cast(list[dict[str, Any]], found["metrics.jsonl"])
    lines = [{k: v for k, v in line.items() if not k.startswith("engine/")} for line in kept]
    return {**found, "metrics.jsonl": lines}


@pytest.mark.parametrize("killed", ["vLLM", "trainer"])
def test_killed_on_either_side_a_run_ends_clean_and_is_resumed_to_the_last_bit(lab, killed) -> None:
    def begun() -> Any:
        words = ["run", lab / "tiny.toml", "--or-resume", "--lab", lab]
        settings = [word for each in SHORT for word in ("--set", each)]
        return assay(*words, *settings, log=lab / "log.txt", HF_HUB_OFFLINE="1")

    def finished() -> dict[str, object]:
        process = begun()
        process.join(400)
        assert process.exitcode == 0, (lab / "log.txt").read_text()[-3000:]
        assert wait_for(lambda: not folders(process.pid), 20)
        (run,) = (lab / "runs" / "tiny").iterdir()
        return without_proofs(everything(run))

    expected = finished()
    shutil.move(lab / "runs", lab / "unbroken")
    (lab / "lab.sqlite").unlink()
    process = begun()
    assert wait_for(lambda: steps_done(lab, "rl") >= 1, 300)
    (folder,) = folders(process.pid)
    worker = psutil.Process(*children(process.pid))
    if killed == "trainer":
        kill(process)
    else:
        worker.kill()
        process.join(60)
        assert process.exitcode == 1
        assert "vLLM's process ended (signal 9)" in (lab / "log.txt").read_text()
    assert wait_for(lambda: not folder.exists() and is_over(worker), 20)
    assert faults(lab) <= {"unknown"}
    found = finished()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value, name


def children(pid: int | None) -> Sequence[int]:
    """vLLM's processes of this one."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    found = [int(p) for t in threads for p in (t / "children").read_text().split()]
    return [p for p in found if b"vllm_worker" in Path(f"/proc/{p}/cmdline").read_bytes()]


ADAPTERS = ('stage.rl.adapt={kind="lora",rank=2}', "stage.rl.optimizer.lr=0.01")


@pytest.mark.parametrize(
    ("method", "settings"),
    [("grpo", ADAPTERS), ("rce", ()), ("rft", ("stage.rl.keep=-9.0", "stage.rl.batch=4"))],
)
def test_every_method_and_adapter_learns_from_what_vllm_samples(lab, method, settings) -> None:
    file = lab / "tiny.toml"
    text = file.read_text().replace('method = "grpo"', f'method = "{method}"')
    file.write_text(text if method == "grpo" else text.replace("checkpoint_every = 2", "tau = 1.0"))
    if method == "rft":
        file.write_text(file.read_text().replace("tau = 1.0", ""))
    run = started(lab, *SHORT[1:], *settings)
    found = lines(run, "rl")
    print(method, {name: found[-1].get(name) for name in PROOF})
    assert len(found) == 3 and all(line["engine/read"] == 1 for line in found)
    arrived, error = found[-1]["engine/proof_stage"], found[-1]["engine/proof_stage_error"]
    assert error > 0.2 or abs(arrived - 1) < 0.1 + 4 * error


def test_what_vllm_answers_in_an_evaluation_is_what_the_own_engine_answers(
    lab, monkeypatch
) -> None:
    monkeypatch.setattr(session, "choose_precision", lambda: choose_precision("fp32", "cpu"))
    both = [
        everything(started(lab, *SHORT[1:2], "stage.rl.steps=1", engine).path)
        for engine in ("engine.sample=vllm", "engine.sample=own")
    ]
    vllm, own = ({n: v for n, v in f.items() if is_greedy(n)} for f in both)
    names = [name for name in vllm if "/base" in name or "/sft." in name]
    assert len(names) > 3
    for name in names:
        answers = [[row["output"] for row in found[name]] for found in (vllm, own)]  # type: ignore
        assert answers[0] == answers[1] and len(answers[0]) >= 4


def is_greedy(name: str) -> bool:
    return name.endswith(".parquet") and name.startswith(("evaluations/dev", "evaluations/test"))


def test_prompts_longer_than_a_step_of_vllm_are_drawn_from_their_seeds(lab) -> None:
    """4096 tokens by vLLM's default, which cuts prompts in two, and fails on a CPU then."""
    opening = EngineOpening(str(lab / "model"), "float32", "cpu")
    module = tiny_sized(2048)
    sampler = ProvenSampler(partial(opened, opening), module, frozenset({256}))
    contexts = [tuple((7 * n + 3 * i) % 256 for i in range(900)) for n in range(10)]
    keys = [SampleKey(7, "row", n) for n in range(10)]
    turns = sampler.sample(contexts, keys, Sampling(max_tokens=6))
    for context, key, turn in zip(contexts, keys, turns, strict=True):
        (alone,) = sampler.sample([context], [key], Sampling(max_tokens=6))
        assert alone.actions == turn.actions
    assert len({turn.actions for turn in turns}) > 5


@pytest.mark.parametrize(("kind", "tied"), [("qwen2", True), ("qwen3", False)])
def test_every_tensor_of_other_families_is_read_back(lab, kind, tied) -> None:
    """Biases, norms of queries and keys, a head of its own."""
    module = tiny_sized(2048, kind, tied)
    module.save_pretrained(lab / "model")
    opening = EngineOpening(str(lab / "model"), "float32", "cpu")
    sampler = ProvenSampler(partial(opened, opening), module, frozenset({256}))
    asked = [tuple(range(40 + n)) for n in range(4)], [SampleKey(7, "row", n) for n in range(4)]
    sampler.sample(*asked, Sampling(max_tokens=8))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1e-3 * torch.randn_like(parameter))
    sampler.refresh(module)
    sampler.sample(*asked, Sampling(max_tokens=8))
    assert sampler.measured["engine/read"] == sampler.measured["engine/read_moved"] == 1
    assert abs(sampler.measured["engine/proof"] - 1) < 0.01


def test_dialogues_of_several_turns_are_played_on_vllm(tmp_path, monkeypatch) -> None:
    as_module("episodes.md", MODULE, tmp_path, monkeypatch)
    monkeypatch.setitem(cast(dict[str, str], registry.TASKS), "lengths", MODULE)
    make_lengths_lab(tmp_path)
    head_of_32(tmp_path)
    (run,) = from_files.start(tmp_path / "lengths.toml", ("engine.sample=vllm",), root=tmp_path)
    close_all()
    found = lines(run, "rl")
    print({name: found[-1].get(name) for name in PROOF})
    assert all(line["engine/read"] == 1 for line in found) and runs_of(tmp_path, "lengths") == [run]
