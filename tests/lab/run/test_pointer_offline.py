"""The pointer learns from stored selections: dropout never moves a ratio unless a report is
repeated."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from assay.lab.run.runner import start
from assay.runs.run_directory import RunDirectory
from tests.lab.selector_task import HEAD, make_colours_lab, use_words

OFFLINE = """
[stage.weigh]
method = "rce"
data   = "train"
candidates = "stored"
epochs = 2
prompts = 4
tau    = { start = 2.0, end = 0.5 }
validation = "train.dev"
validation_every = { epochs = 1 }
optimizer = { lr = 1e-2 }

[stage.rl]
method = "grpo"
algorithm = "lever_plus"
data   = "train"
candidates = "stored"
epochs = 2
prompts = 4
kl     = { coef = 0.12, estimator = "k3_sequence_reverse" }
adapt  = { kind = "freeze", patterns = ["backbone"] }
checkpoint_every = 4
optimizer = { lr = 1e-3 }
"""


@pytest.fixture(autouse=True)
def words(monkeypatch, tmp_path) -> None:
    use_words(monkeypatch, tmp_path)


def trained(folder: Path, *parts: str) -> RunDirectory:
    (run,) = start(make_colours_lab(folder, *parts), root=folder)
    return run


def steps_of(run: RunDirectory, stage: str) -> list[dict[str, Any]]:
    every = map(json.loads, run.metrics.read_text().splitlines())
    return [line for line in every if line["stage"] == stage]


@pytest.mark.slow
def test_the_first_ratio_is_1_and_the_first_kl_0_though_the_selector_has_dropout(tmp_path):
    run = trained(tmp_path, HEAD, OFFLINE)
    first, *others = steps_of(run, "rl")
    assert (
        abs(first["kl_loss"]) < 1e-12 and first["clip_low_share"] == first["clip_high_share"] == 0
    )
    assert others[-1]["kl_loss"] > 0
    before, after = (
        load_file(run.checkpoint(stage, step) / "module.safetensors")
        for stage, step in (("weigh", 12), ("rl", 12))
    )
    moved = {name for name in before if not before[name].equal(after[name])}
    assert moved and all(name.startswith(("cross_attn", "attn_norm")) for name in moved)
    measured = [line["step"] for line in steps_of(run, "weigh") if "validation_loss" in line]
    assert measured == [6, 12]
