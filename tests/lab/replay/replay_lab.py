"""A tiny lab whose one run has every kind of stage that samples, for tests of replays."""

from collections.abc import Sequence
from pathlib import Path

from assay.lab.monitor.observer import Silent
from assay.lab.replay import Replay, replay
from assay.runs.run_directory import RunDirectory, runs_of
from tests.from_files import run_from
from tests.tiny_labs import make_lab

GROUP = 8
"""Completions of a prompt in the stage rl."""
# So many steps and members that every step of rl has signal, in bf16 and in fp32.
STAGES = """
[stage.sft]
method = "sft"
data   = "sums"
steps  = 32
batch  = 4
optimizer = { lr = 1e-2 }

[stage.rl]
method = "grpo"
data   = "sums"
steps  = 4
prompts  = 3
group    = 8
sampling = { max_tokens = 9 }
reward   = { accuracy = 1.0, repetition = 0.5 }
optimizer = { lr = 1e-3 }
checkpoint_every = 2

[stage.tuned]
method = "grpo"
data   = "sums"
start  = "sft.last"
steps  = 2
prompts  = 2
group    = 4
algorithm = "dapo"
sampling = { max_tokens = 12 }
reward   = "accuracy"
kl       = { coef = 0.1 }
overlong = { buffer = 4, factor = 0.25 }
dynamic  = { max_batches = 3 }
updates  = { minibatches = 2, epochs = 2 }
adapt    = { kind = "lora", rank = 2, alpha = 4 }
optimizer = { lr = 1e-3 }

[stage.crowded]
method = "grpo"
data   = "sums"
start  = "sft.last"
steps  = 1
prompts  = 20
group    = 3
sampling = { max_tokens = 6 }
reward   = { accuracy = 1.0, repetition = 0.5 }

"""


def make_replay_lab(folder: Path) -> RunDirectory:
    """Run all stages in `folder`."""
    return run_from(make_lab(folder, until="[stage.sft]", tables=STAGES))


def only_run(lab: Path) -> RunDirectory:
    """The run of a lab that may have been copied."""
    (run,) = runs_of(lab, "tiny")
    return run


def again(run: RunDirectory, step: int, *settings: str, stage: str = "rl") -> Replay:
    """A replay of the run."""
    return replay(run, step, settings, stage=stage, observer=Silent())


def pulls(done: Replay, side: str) -> list[float | None]:
    """What each sample was given on one side."""
    return [getattr(sample, f"advantage_{side}") for sample in done.samples]


def known(values: Sequence[float | None]) -> list[float]:
    """The values that are known."""
    return [value for value in values if value is not None]
