"""Report 000's experiments in the tools that its authors used: the log's settings, read back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.engines.environments import ask, installed
from assay.judge.confounds import dotted
from tests.cli.conftest import answer, call
from tests.data.bfcl_handler import chat_template
from tests.few import few
from tests.tiny_labs import make_lab

ROOT = Path(__file__).parents[2]
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
INSTRUCT = "".join(
    [
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ]
)
"""What Qwen3's Instruct models write of plain messages."""
ACTOR = "actor_rollout_ref.actor."
SWIFT = {
    "tuner_type": "full",
    "weight_decay": 0.01,
    "lr_scheduler_type": "cosine_with_min_lr",
    "packing": True,
    "max_length": 10240,
    "loss_scale": "default",
    "seed": 42,
    "max_grad_norm": 1.0,
}
VERL = {
    "data.train_batch_size": 64,
    "data.max_prompt_length": 9216,
    "data.max_response_length": 1024,
    "actor_rollout_ref.rollout.n": 4,
    "actor_rollout_ref.rollout.temperature": 1.0,
    f"{ACTOR}ppo_mini_batch_size": 32,
    f"{ACTOR}optim.lr": 1e-6,
    f"{ACTOR}optim.weight_decay": 1e-4,
    f"{ACTOR}clip_ratio_low": 0.2,
    f"{ACTOR}clip_ratio_high": 0.28,
    f"{ACTOR}clip_ratio_c": 3.0,
    f"{ACTOR}use_kl_loss": True,
    f"{ACTOR}kl_loss_coef": 0.001,
    f"{ACTOR}kl_loss_type": "low_var_kl",
    f"{ACTOR}loss_agg_mode": "token-mean",
    "algorithm.adv_estimator": "grpo",
    "algorithm.norm_adv_by_std_in_grpo": True,
}
LOG: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "full1": ("swift", {**SWIFT, "learning_rate": 1e-4}, ()),
    "full4": ("swift", {**SWIFT, "learning_rate": 1e-5}, ()),
    "verl1": ("verl", VERL, ()),
    "verl4": ("verl", VERL, ()),
    # EGPO is of the authors' fork: what verl 0.9.1 trains is GRPO, and the export says so.
    "verl8": ("verl", VERL, ("--allow", "advantage")),
}
"""The tool, what zhangdw156/hardtry set in it, and what the export has to be allowed."""


def conversation(n: int) -> dict[str, Any]:
    turns = [
        {"role": "system", "tools": json.dumps([TOOL])},
        {"role": "user", "content": f"Do {n}."},
        {"role": "assistant", "content": f"[f(a={n})]"},
        {"role": "tool", "content": "[{'f': 'ok'}]"},
        {"role": "user", "content": "Again."},
        {"role": "assistant", "content": f"[f(a={n + 1})]"},
    ]
    return {"id": f"c{n}", **{str(place): turn for place, turn in enumerate(turns)}}


@pytest.fixture
def lab(tmp_path: Path, run: str) -> Path:
    """HardGen's shape, and a tiny model with such a template in place of Qwen3-4B."""
    make_lab(
        tmp_path, rows={}, template=chat_template() if run == "verl8" else INSTRUCT, positions=16384
    )
    (tmp_path / "data").mkdir()
    lines = "".join(json.dumps(conversation(n)) + "\n" for n in range(24))
    (tmp_path / "data" / "hardgen.jsonl").write_text(lines)
    return tmp_path


def exported(lab: Path, run: str, tool: str, *options: str) -> dict[str, Any]:
    file = ROOT / "experiments" / "tools" / f"{run}.toml"
    few = ("--set", "data.train.take.rows=20") if run == "verl8" else ()
    model = ("--set", "model=path:model")
    arguments = ("export", file, lab / "out", "--lab", lab, "--to", tool, "--json")
    done = call(*arguments, *model, *few, *options)
    assert done.exit_code == 0, done.stderr
    return answer(done)["result"]


@few("run", LOG)
def test_the_logs_settings_are_in_the_configuration(lab: Path, run: str) -> None:
    tool, wanted, options = LOG[run]
    made = exported(lab, run, tool, "--unproven", *options)
    assert {key: made["settings"][key] for key in wanted} == wanted
    if tool == "swift":
        each = made["settings"]["per_device_train_batch_size"]
        assert each == 1 and made["settings"]["gradient_accumulation_steps"] == 64
        assert made["settings"]["eval_steps"] == 50
    allowed = [each["key"] for each in made["differences"] if each["allowed"]]
    assert allowed == [key for key in options if key != "--allow"]


@pytest.mark.slow
@pytest.mark.parametrize("run", LOG)
def test_the_tool_reads_the_files_and_finds_the_logs_settings(lab: Path, run: str) -> None:
    tool, wanted, options = LOG[run]
    if installed(tool) is None:
        pytest.skip(f"assay engines add {tool}")
    assert exported(lab, run, tool, *options)["proof"]["difference"] == ""
    script = Path(__file__).with_name(f"read_by_{tool}.py")
    method = "sft" if tool == "swift" else "grpo"
    found = dotted(ask(tool, script, {"folder": str(lab / "out"), "method": method}))
    assert {key: found[key] for key in wanted} == wanted
