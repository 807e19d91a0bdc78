"""A checkpoint that also reads images is trained on text, sampled, and exported as it came."""

from pathlib import Path

import pytest
import torch
from benchmarks.families import byte_tokenizer, tiny_family
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoTokenizer

from assay.lab.run.merged_export import export
from assay.runs.run_directory import runs_of
from tests.data.renderings.test_template_options import PARTS
from tests.from_files import start
from tests.models.folders import CHAT
from tests.tiny_labs import make_lab, model_at

STAGES = """
[stage.full]
method = "sft"
data   = "sums"
rendering = "template"
steps  = 2
batch  = 4
optimizer = { lr = 1e-2 }

[stage.rl]
method = "grpo"
data   = "sums"
rendering = "template"
steps  = 1
prompts  = 2
group    = 2
sampling = { temperature = 1.0, max_tokens = 6 }
reward   = { cosine = 0.5, accuracy = 1.0 }

[stage.lora]
method = "sft"
data   = "sums"
rendering = "template"
steps  = 2
batch  = 4
adapt  = { kind = "lora", rank = 2, alpha = 8 }
optimizer = { lr = 1e-2 }
"""
TRAINED_ON = """
name  = "further"
model = "run:tiny@lora.last"
task  = "math"
seeds = [7]

[data.sums]
source = "path:sums.jsonl"
format = "messages"

[stage.more]
method = "sft"
data   = "sums"
rendering = "template"
steps  = 1
batch  = 4
"""


def make_composite(root: Path, family: str, template: str) -> Path:
    """A lab whose model is a tiny checkpoint of several models, in bf16."""
    file = make_lab(root, until="[stage.sft]", tables=STAGES)
    base = root / "model"
    for old in base.iterdir():
        old.unlink()
    tiny_family(family).bfloat16().save_pretrained(base)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(base)
    (base / "preprocessor_config.json").write_text("{}")
    return file


@pytest.mark.parametrize(
    ("family", "template"),
    [
        ("smolvlm", PARTS),
        pytest.param("qwen3_5", CHAT, marks=pytest.mark.slow),
        pytest.param("mistral3", CHAT, marks=pytest.mark.slow),
    ],
)
def test_text_trains_and_is_exported_as_it_came(tmp_path: Path, family: str, template: str) -> None:
    start(make_composite(tmp_path, family, template), root=tmp_path)
    made_of = [("tiny", "full.last"), ("tiny", "lora.last")]
    if family != "smolvlm":
        (tmp_path / "further.toml").write_text(TRAINED_ON)
        start(tmp_path / "further.toml", root=tmp_path)
        made_of.append(("further", "more.last"))
    for name, checkpoint in made_of:
        out = tmp_path / checkpoint
        made = export(tmp_path, f"{name}@{checkpoint}", out, lambda exported: exported.dtype)
        assert made.dtype == "bf16"
        own = model_at(runs_of(tmp_path, name)[0], checkpoint)
        theirs = AutoModelForImageTextToText.from_pretrained(out, dtype=torch.float32).eval()
        ids = torch.arange(40, 72)[None]
        with torch.no_grad():
            one, other = (m(input_ids=ids).logits.log_softmax(-1) for m in (own, theirs))
        torch.testing.assert_close(one, other, atol=0.1, rtol=0)
        before, after = (load_file(d / "model.safetensors") for d in (tmp_path / "model", out))
        same = {name for name, tensor in before.items() if tensor.equal(after[name])}
        assert same and all(
            "vision" in n or "visual" in n or "project" in n or "connector" in n for n in same
        )
        assert AutoTokenizer.from_pretrained(out).chat_template == template
        for file in ("config.json", "preprocessor_config.json", "tokenizer.json"):
            assert (out / file).read_bytes() == (tmp_path / "model" / file).read_bytes()
