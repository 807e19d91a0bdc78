"""A checkpoint answers in plain Transformers and peft as it does in the run that made it."""

import shutil
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from assay.data.renderings.checkpoint_template import chat_template
from assay.lab.models.language_learner import language_model, make_renderer, run_folder
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.runs.run_directory import runs_of
from assay.runs.run_names import experiment_of
from tests.from_files import run_from
from tests.tiny_labs import make_lab, model_at

TRAINED = 'method = "sft"\ndata = "sums"\nsteps = 1\nbatch = 4\n'
KINDS = {
    "full": "",
    "lora on full": 'adapt = { kind = "lora", rank = 4, alpha = 8 }',
    "other layers on it": (
        'adapt = { kind = "lora", rank = 2, alpha = 8, targets = ["q_proj", "up_proj"] }'
    ),
    "frozen": 'adapt = { kind = "freeze", patterns = ["*embed_tokens*"] }\nrendering = "qwen3_fc"',
    "lora after freeze": 'adapt = { kind = "lora", rank = 4, alpha = 8 }',
    "lora on base": 'start = "base"\nadapt = { kind = "lora", rank = 4, alpha = 8 }',
    "full on lora": "",
}


def stage_name(kind: str) -> str:
    return kind.replace(" ", "_")


def stages() -> str:
    """A stage of each kind; one that names no start goes on from the one above it."""
    rate = "optimizer = { lr = 5e-2 }"
    return "\n".join(
        f"[stage.{stage_name(kind)}]\n{TRAINED}{rate}\n{adapt}\n" for kind, adapt in KINDS.items()
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("elsewhere")
    run = run_from(make_lab(folder, until="[stage.sft]", tables=stages()))
    return Session(experiment_of(run), run, 7, Silent())


def folder_of(session: Session, kind: str) -> Path:
    return session.run.checkpoint(stage_name(kind), 1)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(40, 72)[None]).logits


def outsider(folder: Path) -> torch.Tensor:
    """The logits of someone who follows peft's and Transformers' first pages."""
    adapter = (folder / "adapter_config.json").is_file()
    load = AutoPeftModelForCausalLM if adapter else AutoModelForCausalLM
    return logits(load.from_pretrained(folder).eval())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_checkpoint_loads_elsewhere_as_what_was_trained(
    session: Session, kind: str
) -> None:
    own = logits(model_at(session.run, f"{stage_name(kind)}.last"))
    theirs = outsider(folder_of(session, kind))
    torch.testing.assert_close(theirs, own, rtol=1e-4, atol=1e-4)
    # Close to nothing else: each stage moved its logits by far more than that.
    assert (own - logits(model_at(session.run, "base"))).abs().max() > 0.1


def test_a_checkpoint_carries_the_template_of_its_own_stage(session: Session) -> None:
    for kind, name in (("lora on full", "hermes"), ("frozen", "qwen3_fc"), ("full", "hermes")):
        theirs = AutoTokenizer.from_pretrained(folder_of(session, kind))
        renderer = make_renderer(language_model(session.learner, "this test").base.tokenizer, name)
        assert theirs.chat_template == chat_template(renderer)


def test_one_adapter_over_two_models_is_two_merged_models(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    lab = tmp_path / "lab"
    shutil.copytree(session.run.root, lab)
    (run,) = runs_of(lab, "tiny")
    one, other = (run.checkpoint(stage_name(k), 1) for k in ("lora on base", "lora after freeze"))
    shutil.copy(one / "adapter_model.safetensors", other)
    (other / "checksums.json").unlink()  # of the adapter that was there
    merged = [run_folder(f"tiny@{folder.parent.name}.last", lab) for folder in (one, other)]
    first, second = map(outsider, merged)
    assert (first - second).abs().max() > 0.1
