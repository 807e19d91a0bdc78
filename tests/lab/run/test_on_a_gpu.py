"""Whole runs on a pretended GPU: SFT, GRPO, RCE and DPO, choosing and reporting."""

import json
from pathlib import Path

import pytest

from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory
from tests.from_files import run_from
from tests.lab.run.test_dpo_runs import DPO, write_groups
from tests.pretended_cuda import pretended_cuda
from tests.tiny_labs import make_lab

RCE = """
[stage.rce]
method = "rce"
data   = "groups"
candidates = "stored"
steps  = 2
prompts = 2
adapt  = { kind = "lora", rank = 4 }
optimizer = { lr = 1e-3 }
"""


def finished(run: RunDirectory) -> dict[str, int]:
    """Steps by stage."""
    return {line["stage"]: line["step"] for line in read_metrics(run.metrics)}


@pytest.mark.slow
def test_a_run_trains_chooses_and_reports_on_a_gpu(tmp_path: Path) -> None:
    with pretended_cuda():
        run = run_from(make_lab(tmp_path))
    assert finished(run) == {"sft": 40, "rl": 4}
    machine = json.loads(run.manifest.read_text())["machine"]
    assert machine["precision"]["device"] == "cuda"
    assert machine["gpus"] == ["pretended"]


@pytest.mark.slow
def test_the_other_methods_and_an_adapter_run_on_a_gpu(tmp_path: Path) -> None:
    file = make_lab(tmp_path, until="[stage.sft]", tables=DPO + RCE)
    write_groups(tmp_path / "groups.jsonl")
    with pretended_cuda():
        assert set(finished(run_from(file))) == {"prefer", "rce"}
