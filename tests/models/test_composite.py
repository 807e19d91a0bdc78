"""The text model inside a checkpoint of several trains alone and is written back as it came.

The oracle is Transformers' own class of the whole checkpoint, given text.
"""

import json
from pathlib import Path

import pytest
import torch
from benchmarks.families import COMPOSITES, byte_tokenizer, config_of, tiny_family
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from assay.errors import InputError
from assay.models.load import load_model, text_weights, write_back
from assay.models.precision import choose_precision
from assay.models.supported import read_config
from assay.models.weight_files import in_file_names, load_weights, save_weights, whole_state

FP32 = choose_precision("fp32", "cpu")
IDS = torch.arange(40, 70)[None]
FAST = ("gemma3", "qwen3_vl", "qwen3_5_moe", "mistral3")
every = pytest.mark.parametrize(
    "family", [pytest.param(f, marks=[] if f in FAST else pytest.mark.slow) for f in COMPOSITES]
)


@pytest.fixture
def folder(family: str, tmp_path: Path) -> Path:
    """A checkpoint in two files, in bf16, with a processor's file beside them."""
    tiny_family(family).bfloat16().save_pretrained(tmp_path, max_shard_size="100KB")
    byte_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"size": 16}')
    return tmp_path


def scores(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits.log_softmax(-1)


def weights_of(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {file.name: load_file(file) for file in sorted(folder.glob("*.safetensors"))}


def write(base: Path, model: torch.nn.Module, out: Path, dtype: torch.dtype | None = None) -> None:
    out.mkdir()
    states = (whole_state(model), in_file_names(model))  # type: ignore[arg-type]
    write_back(base, read_config(base), states, out, dtype)


@every
def test_text_is_scored_as_the_whole_checkpoint_scores_it(family: str, folder: Path) -> None:
    ours = load_model(folder, FP32).model
    theirs = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    torch.testing.assert_close(scores(ours), scores(theirs), atol=1e-5, rtol=0)
    assert sum(p.numel() for p in ours.parameters()) < sum(p.numel() for p in theirs.parameters())


@every
def test_trained_weights_are_written_back_and_nothing_else_changes(
    family: str, folder: Path, tmp_path: Path
) -> None:
    model = load_model(folder, FP32).model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1).copy_(parameter.bfloat16())
    out = tmp_path / "out"
    write(folder, model, out)
    theirs = AutoModelForImageTextToText.from_pretrained(out, dtype=torch.float32).eval()
    torch.testing.assert_close(scores(theirs), scores(model), atol=1e-5, rtol=0)
    text = {name for name, _ in text_weights(folder, read_config(folder)).values()}
    before, after = weights_of(folder), weights_of(out)
    assert {f: list(t) for f, t in before.items()} == {f: list(t) for f, t in after.items()}
    changed = {n for f, held in before.items() for n, t in held.items() if not t.equal(after[f][n])}
    buffers = {name for name in text if name.endswith(".layer_scalar")}
    assert changed == text - buffers and len(text) < sum(map(len, before.values()))
    for file in folder.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            assert (out / file.name).read_bytes() == file.read_bytes(), file.name


@every
def test_a_checkpoint_of_training_is_a_plain_text_model(
    family: str, folder: Path, tmp_path: Path
) -> None:
    model = load_model(folder, FP32).model
    (out := tmp_path / "checkpoint").mkdir()
    save_weights(model, out, byte_tokenizer())
    expected = scores(model)
    for again in (load_model(out, FP32).model, AutoModelForCausalLM.from_pretrained(out)):
        torch.testing.assert_close(scores(again.eval()), expected, atol=1e-5, rtol=0)
    with torch.no_grad():
        next(model.parameters()).zero_()
    load_weights(model, out)
    torch.testing.assert_close(scores(model), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["gemma3"])
@pytest.mark.parametrize("prefix", ["language_model.", "model.text_model.", ""])
def test_the_names_of_older_files_are_kept(
    family: str, prefix: str, folder: Path, tmp_path: Path
) -> None:
    found = text_weights(folder, read_config(folder))
    names = {own: name for own, (name, _) in found.items()}
    held = {n: t for file in weights_of(folder).values() for n, t in file.items()}
    for file in (*folder.glob("*.safetensors"), folder / "model.safetensors.index.json"):
        file.unlink(missing_ok=True)
    own = {name: prefix + one for one, name in names.items()}
    tensors = {own.get(n, n.removeprefix("model.")): t.clone() for n, t in held.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write(folder, load_model(folder, FP32).model, tmp_path / "out")
    assert weights_of(tmp_path / "out")["model.safetensors"].keys() == tensors.keys()


@pytest.mark.parametrize("family", ["qwen3_vl"])
def test_a_wanted_format_is_that_of_the_text_alone(
    family: str, folder: Path, tmp_path: Path
) -> None:
    write(folder, load_model(folder, FP32).model, tmp_path / "out", torch.float32)
    text = {name for name, _ in text_weights(folder, read_config(folder)).values()}
    total = 0
    for file in weights_of(tmp_path / "out").values():
        total += sum(t.nbytes for t in file.values())
        for name, tensor in file.items():
            assert tensor.dtype == (torch.float32 if name in text else torch.bfloat16)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == total


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("paligemma", {}, "'paligemma' .*no causal language model"),
        ("glm4v", {}, r"'glm4v' \(glm4v_text\) is no causal language model"),
        ("aya_vision", {}, "aya_vision leaves out the logit_scale"),
        ("llava", {"text_config": {"model_type": "granite", "logits_scaling": 8.0}}, "logits_scal"),
    ],
)
def test_what_computes_otherwise_inside_the_whole_is_refused(
    tmp_path: Path, kind: str, changes: dict[str, object], words: str
) -> None:
    AutoConfig.for_model(kind, **changes).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=words) as caught:
        read_config(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["qwen2_5_vl"])
def test_a_config_of_before_there_was_a_text_config_is_read(family: str, tmp_path: Path) -> None:
    stated = json.loads(config_of(family).to_json_string(use_diff=False))
    text = stated.pop("text_config")
    for name in ("model_type", "architectures", "dtype"):
        text.pop(name, None)
    (tmp_path / "config.json").write_text(json.dumps(text | stated))
    found = read_config(tmp_path)
    assert (found.model_type, found.hidden_size) == ("qwen2", 32)
    assert "mrope_section" not in found.rope_parameters
