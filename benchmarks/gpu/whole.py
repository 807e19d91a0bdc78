"""Sections that run Assay as its users do: a run killed and resumed, vLLM, several processes."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from assay.engines.environments import environment_for, installed
from assay.engines.register import EngineOpening, ProvenSampler, opened
from assay.models.adapt import train_all, train_lora
from assay.models.load import load_model
from assay.models.lora import LoraOptions
from assay.models.precision import choose_precision
from assay.rl.objectives import NllObjective
from assay.rl.policy import SampleKey, Sampling
from assay.rl.sampling_proof import NotAsTold
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.run_directory import runs_of
from assay.train.likelihood import likelihood_batch
from assay.train.update import make_optimizer, update
from benchmarks.families import byte_tokenizer
from benchmarks.gpu.rows import FAILED, PASSED, Row, Rows, Setup
from benchmarks.gpu.subjects import SHAPES, TINY, episodes, random_model, whole_folder

CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
EXPERIMENT = """\
name  = "NAME"
model = "path:model"
task  = "math"
seeds = [7]

[data.sums]
source = "path:sums.jsonl"
format = "messages"

[stage.sft]
method = "sft"
data   = "sums"
steps  = 20
batch  = 4
checkpoint_every = 4
optimizer = { lr = 1e-2 }

[stage.rl]
method = "grpo"
data   = "sums"
steps  = 8
prompts  = 2
group    = 8
sampling = { temperature = 1.0, max_tokens = 12 }
reward   = { accuracy = 1.0, cosine = 0.5 }
optimizer = { lr = 1e-3 }
checkpoint_every = 2
"""
STEPS, KILLED = 28, 23
"""Steps of both stages, and those after which the run is killed: a step behind a checkpoint."""


def make_lab(folder: Path) -> None:
    """A random model of bytes and sums to learn."""
    random_model("llama", small=True).save_pretrained(folder / "model")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder / "model")
    with (folder / "sums.jsonl").open("w") as stream:
        for a in range(1, 7):
            for b in range(1, 5):
                asked = {"role": "user", "content": f"{a} + {b} = ?"}
                told = {"role": "assistant", "content": f"\\boxed{{{a + b}}}"}
                row: dict[str, Any] = {"id": f"{a}+{b}", "messages": [asked, told]}
                stream.write(json.dumps(row | {"gold": str(a + b)}) + "\n")


def assay(folder: Path, device: str, *words: str) -> "subprocess.Popen[bytes]":
    """Assay's command line on the lab in a folder."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    return subprocess.Popen(
        [sys.executable, "-c", "from assay.cli.main import app; app()", *words],
        cwd=folder,
        env={**os.environ, **hidden},
        stdout=subprocess.DEVNULL,
        stderr=(folder / "errors").open("wb"),
    )


def finished(folder: Path, device: str, *words: str) -> float:
    """Seconds that a command took. Raises RuntimeError with its last words where it fails."""
    started = time.perf_counter()
    if assay(folder, device, *words).wait():
        lines = (folder / "errors").read_text(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else "assay ended without a word")
    return time.perf_counter() - started


def begun(folder: Path, name: str, *more: str) -> list[str]:
    """Write the experiment of a run; the command that begins it."""
    file = folder / f"{name}.toml"
    file.write_text(EXPERIMENT.replace("NAME", name))
    return ["run", file.name, *more]


def steps_done(folder: Path, name: str) -> int:
    """Steps that the newest run of a name recorded."""
    runs = runs_of(folder, name)
    if not runs or not runs[-1].metrics.exists():
        return 0
    return len(runs[-1].metrics.read_text().splitlines())


def last_weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """Of a run's last checkpoint."""
    (*_, newest) = sorted(runs_of(folder, name)[-1].path.glob("checkpoints/rl/*/*.safetensors"))
    return load_file(newest)


def difference(folder: Path, one: str, other: str) -> float:
    """The largest absolute difference of two runs' last weights; 0 to the last bit."""
    first, second = last_weights(folder, one), last_weights(folder, other)
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def resume(setup: Setup, rows: Rows) -> None:
    """The same run twice, and once killed and resumed: weights to the last bit."""
    with tempfile.TemporaryDirectory() as name:
        folder, device = Path(name), setup.device
        make_lab(folder)
        seconds = finished(folder, device, *begun(folder, "whole"))
        rows.measured(f"a run of {STEPS} steps, start included", f"{seconds:.1f} s")
        finished(folder, device, *begun(folder, "again"))
        rows.check("weights of the same run twice", difference(folder, "whole", "again"), 0.0)
        cut = assay(folder, device, *begun(folder, "cut"))
        while cut.poll() is None and steps_done(folder, "cut") < KILLED:
            time.sleep(0.01)
        cut.send_signal(signal.SIGKILL)
        cut.wait()
        done = steps_done(folder, "cut")
        seconds = finished(folder, device, "resume", "cut")
        rows.measured("resuming it, start included", f"{seconds:.1f} s")
        what = f"weights of the run killed after step {done} of {STEPS} and resumed"
        rows.check(what, difference(folder, "whole", "cut"), 0.0)


def handover(setup: Setup, rows: Rows) -> None:
    """vLLM samples; each update is proven to have arrived; old weights are not taken for new."""
    if installed(environment_for("vllm")) is None:
        rows.left_out("vLLM", "needs `assay engines add vllm`")
        return
    names = [TINY] if setup.small else list(SHAPES)
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            folder = whole_folder(name, Path(place), setup)
            for adapter in (False, True):
                what = f"{name}, LoRA" if adapter else name
                with rows.guarded(what):
                    prove(folder, what, adapter, setup, rows)


def prove(folder: Path, what: str, adapter: bool, setup: Setup, rows: Rows) -> None:
    """Two updates that go over, then one that does not."""
    dtype = "fp32" if adapter or setup.device == "cpu" else "bf16"
    precision = choose_precision(dtype, setup.device)  # type: ignore[arg-type]
    loaded = load_model(folder, precision)
    torch.manual_seed(0)
    lora = LoraOptions(16, 32.0)
    module = train_lora(loaded.model, lora)[0] if adapter else train_all(loaded.model)[0]
    kind = str(precision.compute).removeprefix("torch.")
    start = partial(opened, EngineOpening(str(folder), kind, setup.device))
    sampler = ProvenSampler(start, module, frozenset([1]), precision.compute)
    policy = LanguagePolicy(module.train(), precision, frozenset([1]), sampler=sampler)
    step = partial(sampled_and_trained, policy, adapter)
    began = time.perf_counter()
    step()
    rows.measured(f"{what}, opened and first batch", f"{time.perf_counter() - began:.1f} s")
    for _ in range(2):
        step()
    found = sampler.measured
    rows.add(Row(f"{what}, share of the update that arrived", PASSED, proof_of(found)))
    rows.measured(f"{what}, hand-over", f"{found['engine/load_seconds']:.2f} s")
    rows.measured(f"{what}, proof", f"{found['engine/proof_seconds']:.2f} s")
    with stale(start()):
        try:
            step()
            status, text = FAILED, "old weights were not noticed"
        except NotAsTold as error:
            status, text = PASSED, str(error)[:80]
    rows.add(Row(f"{what}, old weights are noticed", status, text))


def proof_of(found: dict[str, float]) -> str:
    """The share with its standard error."""
    share = found.get("engine/proof", float("nan"))
    return f"{share:.3f} ± {found.get('engine/proof_error', float('nan')):.3f}"


def sampled_and_trained(policy: LanguagePolicy, adapter: bool) -> None:
    """A batch, and an update that is large enough to be seen."""
    draw = random.Random(0)
    contexts = [tuple(draw.randrange(5, 200) for _ in range(24)) for _ in range(8)]
    keys = [SampleKey(0, str(n), 0) for n in range(8)]
    policy.sample(contexts, keys, Sampling(1.0, 32))
    optimizer = make_optimizer(policy.module.parameters(), lr=1e-2 if adapter else 1e-3)
    packed = likelihood_batch(episodes(200))
    update(policy, packed, NllObjective(), optimizer, micro_tokens=1024, clip_norm=1.0)


@contextmanager
def stale(engine: Any) -> Iterator[None]:
    """Inside, the engine keeps the weights that it has."""
    engine.load = lambda state: None
    try:
        yield
    finally:
        del engine.load


def ranks(setup: Setup, rows: Rows) -> None:
    """Two processes train what one trains, by nccl."""
    count = torch.cuda.device_count() if setup.device == "cuda" else 0
    if count < 2:
        rows.left_out("two ranks, nccl", "one GPU: not run" if count else "no GPU: not run")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_lab(folder)
        alone = finished(folder, setup.device, *begun(folder, "one"))
        two = begun(folder, "two", "--set", "engine.ranks=2")
        together = finished(folder, setup.device, *two)
        rows.measured("one process and two, start included", f"{alone:.1f} s, {together:.1f} s")
        rows.check("weights of two processes", difference(folder, "one", "two"), 1e-2)
