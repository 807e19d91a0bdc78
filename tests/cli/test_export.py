"""An exported checkpoint is one whole model for other programs, or nothing at all."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import httpx
import numpy as np
import pytest
import torch
from huggingface_hub.errors import OfflineModeIsEnabled
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from assay.lab.run import merged_export as exporting
from assay.models import gguf_file
from assay.runs.run_directory import runs_of
from tests.cli.conftest import answer, assert_one_line, call
from tests.few import few
from tests.from_files import start
from tests.tiny_labs import make_lab, model_at

STAGES = """
[stage.low]
method = "sft"
data   = "sums"
steps  = 2
batch  = 4
adapt  = { kind = "lora", rank = 4, alpha = 8 }
optimizer = { lr = 5e-2 }

[stage.lower]
method = "sft"
data   = "sums"
steps  = 2
batch  = 4
rendering = "qwen3_fc"
adapt  = { kind = "lora", rank = 2, alpha = 8 }
optimizer = { lr = 5e-2 }
"""


@pytest.fixture(scope="module")
def stacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab whose run has two LoRA stages, one upon the other."""
    root = tmp_path_factory.mktemp("stacked")
    start(make_lab(root, until="[stage.sft]", tables=STAGES), root=root)
    return root


def export(root: Path, *arguments: object):
    return call("export", "--lab", root, *arguments)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(40, 72)[None]).logits.float()


def own_model(root: Path, checkpoint: str) -> Any:
    (run,) = runs_of(root, "tiny")
    return model_at(run, checkpoint)


@few("dtype, given", [("fp32", ["--dtype", "fp32"]), ("bf16", [])], fast=1)
def test_the_whole_chain_is_one_model_with_template_and_ends(
    stacked: Path, tmp_path: Path, dtype: str, given: list[str]
) -> None:
    folder = tmp_path / "out"
    result = export(stacked, "tiny@lower.last", folder, *given)
    assert result.exit_code == 0, result.stderr
    expected = exporting.DTYPES[dtype]
    assert {t.dtype for t in load_file(folder / "model.safetensors").values()} == {expected}
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    assert theirs.dtype == expected
    own = own_model(stacked, "lower.last")
    assert theirs.generation_config.eos_token_id == own.generation_config.eos_token_id
    tolerance = 1e-5 if dtype == "fp32" else 0.1
    torch.testing.assert_close(logits(theirs), logits(own), rtol=tolerance, atol=tolerance)
    assert (logits(own) - logits(own_model(stacked, "low.last"))).abs().max() > 0.3
    template = AutoTokenizer.from_pretrained(folder).chat_template
    assert "qwen3_fc" in template and (folder / "chat_template.jinja").read_text() == template
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert all(p.stat().st_mode & 0o044 for p in folder.iterdir()), "a server is another user"


def test_the_card_says_what_the_records_say(finished_lab: Path, tmp_path: Path) -> None:
    result = export(finished_lab, "tiny@rl.last", tmp_path / "out", "--json")
    told = answer(result)["result"]
    card = (tmp_path / "out" / "README.md").read_text()
    (run,) = runs_of(finished_lab, "tiny")
    for text in (
        'tags: ["assay", "math"]',
        "path:model",
        "licence of the base is not known",
        "tried with Transformers 4.57.6 and 5.23.0",
        f"run {run}, checkpoint rl · step 4, seed 7",
        "**sft (sft)**: ",
        "**rl (grpo)**: ",
        "Rendering hermes",
        told["weights_sha256"],
        "sampled: 4 items of math/gsm8k, 2 repeats",
        "8 × 1",
        "4 × 2",
        "rl · step 4 against base",
    ):
        assert text in card, text
    assert "machine.platform" not in card, "no hash"
    assert card.startswith("---\nlibrary_name: transformers\n")


def test_a_folder_with_something_in_it_is_left_as_it_is(stacked: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    refused = export(stacked, "tiny@low.last", taken)
    assert_one_line(refused, "taken: is not empty", "name a folder that does not exist")
    assert [p.name for p in taken.iterdir()] == ["mine.txt"]
    assert_one_line(export(stacked, "tiny@low.last", taken / "mine.txt"), "is no folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert export(stacked, "tiny@low.last", empty).exit_code == 0
    assert (empty / "model.safetensors").is_file()


def test_an_export_that_is_interrupted_leaves_nothing(
    stacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "save_tokenizer", stop)
    assert export(stacked, "tiny@low.last", tmp_path / "out").exit_code == 130
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_seen_before_anything_is_written(
    stacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=1000)
    monkeypatch.setattr(exporting.shutil, "disk_usage", lambda path: usage)
    assert_one_line(export(stacked, "tiny@low.last", tmp_path / "out"), "MB are free")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_checkpoint_is_refused(stacked: Path, tmp_path: Path) -> None:
    none = export(stacked, "tiny", tmp_path / "out")
    assert_one_line(none, "'tiny' names no checkpoint", "tiny@low.last")
    assert_one_line(export(stacked, "tiny@base", tmp_path / "out"), "'base' has no folder")
    assert list(tmp_path.iterdir()) == []


def test_a_base_that_changed_since_is_refused(stacked: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(stacked, tmp_path / "changed"))
    model = AutoModelForCausalLM.from_pretrained(root / "model")
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    model.save_pretrained(root / "model")
    assert_one_line(export(root, "tiny@low.last", tmp_path / "out"), "other weights")


class FakeHub:
    """What is asked of the hub's client."""

    calls: list[tuple[str, dict]]
    error: Exception | None

    def __init__(self, token: str | None = None):
        FakeHub.calls.append(("token", {"token": token}))

    def create_repo(self, repository: str, **options: object) -> SimpleNamespace:
        FakeHub.calls.append(("create", {"repository": repository, **options}))
        return SimpleNamespace(repo_id=repository)

    def upload_folder(self, **options: object) -> None:
        FakeHub.calls.append(("upload", options))
        if FakeHub.error is not None:
            raise FakeHub.error


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> type[FakeHub]:
    FakeHub.calls, FakeHub.error = [], None
    monkeypatch.setattr("huggingface_hub.HfApi", FakeHub)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    return FakeHub


def test_a_push_makes_a_private_repository_of_the_finished_folder(
    stacked: Path, tmp_path: Path, fake_hub: type[FakeHub]
) -> None:
    folder = tmp_path / "out"
    result = export(stacked, "tiny@low.last", folder, "--push", "me/tiny")
    assert result.exit_code == 0, result.stderr
    (_, token), (_, made), (_, sent) = fake_hub.calls
    assert token == {"token": "hf_secret"}
    assert made == {"repository": "me/tiny", "private": True, "exist_ok": False}
    assert sent["repo_id"] == "me/tiny" and Path(sent["folder_path"]) == folder
    assert (folder / "README.md").is_file() and "hf_secret" not in result.stdout


@pytest.mark.parametrize(
    "error",
    [
        httpx.ReadTimeout("timed out"),
        OfflineModeIsEnabled("offline mode is enabled"),
        RuntimeError("409 Conflict:\nalready there"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_push_that_fails_leaves_the_folder_whole_and_says_how_to_go_on(
    stacked: Path, tmp_path: Path, fake_hub: type[FakeHub], error: Exception
) -> None:
    fake_hub.error = error
    result = export(stacked, "tiny@low.last", tmp_path / "out", "--push", "me/tiny")
    assert_one_line(result, " ".join(str(error).split()), "hf upload me/tiny", code=1)
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_a_push_without_token_or_name_is_refused_before_any_work(
    stacked: Path, tmp_path: Path, fake_hub: type[FakeHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (stacked, "tiny@low.last", tmp_path / "out", "--push")
    assert_one_line(export(*given, "a/b/c"), "--push", "OWNER/NAME")
    monkeypatch.delenv("HF_TOKEN")
    assert_one_line(export(*given, "me/tiny"), "HF_TOKEN is not set")
    assert list(tmp_path.iterdir()) == [] and fake_hub.calls == []


def test_a_gguf_file_lies_beside_the_weights_with_the_template(
    stacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    assert_one_line(export(stacked, "tiny@lower.last", folder, "--gguf"), "has no merges")
    assert not folder.exists()
    monkeypatch.setattr(gguf_file, "splitter", lambda tokenizer: "gpt-2")
    result = export(stacked, "tiny@lower.last", folder, "--gguf")
    assert result.exit_code == 0, result.stderr
    reader = gguf.GGUFReader(folder / "model-bf16.gguf")
    field = reader.get_field("tokenizer.chat_template")
    assert field and field.contents() == (folder / "chat_template.jinja").read_text()
    (embedding,) = [t for t in reader.tensors if t.name == "token_embd.weight"]
    stored = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    values = gguf.quants.dequantize(np.asarray(embedding.data), embedding.tensor_type)
    assert np.array_equal(values.reshape(stored.shape), stored.float().numpy())
    assert "model-bf16.gguf" in (folder / "README.md").read_text()
