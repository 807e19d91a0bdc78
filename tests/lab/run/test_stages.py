"""Every method and adaptation runs in one experiment, and its checkpoints serve later runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import InputError
from assay.lab.session import session
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import read_status, runs_of
from assay.runs.run_names import experiment_of
from assay.sandbox.pool import WorkerPools
from assay.tasks.running import RewardRunner
from tests.from_files import start
from tests.tiny_labs import make_lab, model_at

STAGES = """
[stage.adapter]
method = "sft"
data   = "sums"
steps  = 8
batch  = 4
adapt  = { kind = "lora", rank = 4, alpha = 8 }
optimizer = { lr = 2e-2 }

[stage.kept]
method = "rft"
data   = "sums"
steps  = 2
prompts  = 4
group    = 4
sampling = { max_tokens = 12 }
reward   = "accuracy"
keep     = 0.0
adapt    = { kind = "freeze", patterns = ["*embed_tokens*"] }

[stage.weighted]
method = "rce"
degenerate = "imitate"
data   = "sums"
steps  = 2
prompts  = 2
group    = 4
sampling = { max_tokens = 12 }
reward   = "accuracy"

[stage.tuned]
method = "grpo"
data   = "sums"
steps  = 2
prompts  = 2
group    = 4
algorithm = "dapo"
sampling = { max_tokens = 12 }
reward   = "accuracy"
kl       = { coef = 0.01, reference = "base" }
updates  = { minibatches = 2, epochs = 2 }
adapt    = { kind = "lora", rank = 2, alpha = 4 }
optimizer = { lr = 1e-3 }
"""


@pytest.fixture(scope="module")
def pools() -> list[WorkerPools | None]:
    """Those of each reward that the run of `lab` asked."""
    return []


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, pools: list[WorkerPools | None]) -> Path:
    """A lab whose run went through SFT with LoRA, RFT with frozen parts, RCE and LoRA GRPO."""
    folder = tmp_path_factory.mktemp("stages")

    def noted(*reward: Any, **how: Any) -> RewardRunner:
        pools.append(how["pools"])
        return RewardRunner(*reward, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "RewardRunner", noted)
        start(make_lab(folder, until="[stage.sft]", tables=STAGES), root=folder)
    return folder


def test_all_stages_finish_and_record_what_they_did(lab: Path):
    (run,) = runs_of(lab, "tiny")
    assert read_status(run.path).status == "finished"
    lines, names = read_metrics(run.metrics), ("adapter", "kept", "weighted", "tuned")
    by_stage = {name: [x for x in lines if x["stage"] == name] for name in names}
    assert [len(found) for found in by_stage.values()] == [8, 2, 2, 2]
    assert by_stage["adapter"][-1]["nll"] < by_stage["adapter"][0]["nll"]
    assert all(line["kept_share"] == 1.0 for line in by_stage["kept"])
    assert all(line["grad_norm"] > 0 for line in by_stage["weighted"])
    assert any("kl" in line for line in by_stage["tuned"])
    checked = {name: ["self_check_logp" in x for x in found] for name, found in by_stage.items()}
    assert checked["tuned"] == [True, False], "GRPO checks itself where it starts"
    assert not any(checked["adapter"] + checked["kept"] + checked["weighted"])


def test_the_stages_of_a_run_and_its_check_share_the_workers_of_their_rewards(
    lab: Path, pools: list[WorkerPools | None]
):
    assert len(pools) == 4 and pools[0] is not None
    assert {id(each) for each in pools} == {id(pools[0])}


def test_a_run_source_takes_a_merged_adapter_and_refers_to_its_checkpoint(
    lab: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    file = lab / "next.toml"
    text = (lab / "tiny.toml").read_text().partition("[stage.adapter]")[0]
    text = text.replace('"tiny"', '"next"').replace("path:model", "run:tiny@tuned.last")
    file.write_text(text + '[stage.sft]\nmethod = "sft"\ndata = "sums"\nsteps = 1\n')
    (run,) = start(file, root=lab)
    manifest = json.loads(run.manifest.read_text())
    assert manifest["base_weights"]["checkpoint"].endswith("checkpoints/tuned/step-000002")
    (tiny,) = runs_of(lab, "tiny")
    merged, again = model_at(tiny, "tuned.last"), model_at(run, "base")
    for a, b in zip(merged.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    begin = experiment_of(tiny).stage["tuned"].starts_from
    assert begin is not None and begin.stage == "weighted"
    (cached,) = tmp_path.glob("merged/*/model.safetensors")
    content = cached.read_bytes()
    cached.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="is damaged"):
        load_model(cached.parent, choose_precision())
