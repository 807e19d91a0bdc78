"""Settings of runs made without Assay are read back by the tables, and what means something else is
listed; what a folder holds is read and never run."""

import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig

from assay.errors import InputError
from assay.experiment.stage_tables import GrpoStage, SftStage
from assay.models.folder import read_object
from assay.trainers.outputs.plain_folders import find, hydra_values, kept, trl_arguments
from assay.trainers.read_back import (
    CANONICAL,
    ReadBack,
    likelihood,
    read_back,
    stage_of,
    with_model,
)
from assay.trainers.register import TRAINERS, nested
from assay.trainers.table import table
from tests.models.edits import edit_json
from tests.trainers.test_tables import GRPO, SFT, TABLES, translate

LETTERS = [*zip("abcdefghijklmnopqrstuvw", "bcdefghijklmnopqrstuvwx", strict=True)]

PLAIN = Path(__file__).parent / "recorded" / "plain"
ALWAYS = {
    "sft": {"data": "d", "start": "base"},
    "grpo": {"data": "d", "start": "base", "reward": "r"},
}


def back(tool: str, method: str, config: dict[str, Any], steps: int = 10) -> ReadBack:
    known = ALWAYS[method] | {"method": method, "adapt.kind": "full"}
    return read_back(table(tool, method), CANONICAL[tool](config), known, steps)


def configured(tool: str, stage: dict[str, Any]) -> dict[str, Any]:
    """What an export writes, and what the tool adds by itself."""
    values = dict(translate(tool, stage, template={}).values)
    if stage["method"] == "sft" and tool != "verl":
        values |= {"processes": 1, "eval_strategy": "no"}
    return values | ({} if tool == "verl" else {"use_vllm": False})


@pytest.mark.parametrize(("tool", "method"), TABLES)
@given(data=st.data())
def test_what_an_export_writes_is_read_back_as_the_stage(
    tool: str, method: str, data: st.DataObject
) -> None:
    draw = data.draw
    optimizer = {
        "lr": draw(st.sampled_from([1e-6, 3e-5, 0.01])),
        "weight_decay": draw(st.sampled_from([0.0, 0.1])),
        "betas": draw(st.sampled_from([(0.9, 0.999), (0.9, 0.95)])),
        "clip_norm": draw(st.sampled_from([0.5, 1.0])),
        "warmup": draw(st.sampled_from([0.0, 0.2])),
        "schedule": draw(st.sampled_from(["constant", "cosine"])),
    }
    if optimizer["schedule"] == "cosine":
        optimizer["min_lr"] = draw(st.sampled_from([None, 1e-7]))
    stage: dict[str, Any] = {**(SFT if method == "sft" else GRPO), "start": "base"}
    stage |= {"optimizer": optimizer, "checkpoint_every": draw(st.sampled_from([2, 5]))}
    if method == "sft":
        stage |= {
            "batch": draw(st.sampled_from([4, 8])),
            "loss_on": {"trl": "last"}.get(tool, "all"),
        }
    else:
        loss, aggregation = draw(
            st.sampled_from([("ppo_clip", "token_mean"), ("gspo", "seq_mean_token_mean")])
        )
        stage |= {"advantage": draw(st.sampled_from(["grpo", "mean_only"]))}
        stage |= {"loss": loss, "aggregation": aggregation}
        stage |= {"clip": {"low": draw(st.sampled_from([0.1, 0.2])), "high": 0.3}}
        stage |= {"kl": {"coef": draw(st.sampled_from([0.0, 0.02]))}}
        stage |= {"sampling": {"temperature": 0.8, "max_tokens": draw(st.sampled_from([12, 99]))}}
        stage |= {"updates": {"minibatches": draw(st.sampled_from([1, 2]))}}
    made = back(tool, method, configured(tool, stage))
    wanted = (SftStage if method == "sft" else GrpoStage).model_validate(stage)
    apart = {"importance", "clip"} if method == "grpo" else set()
    assert made.stage.model_dump(exclude=apart) == wanted.model_dump(exclude=apart)
    if isinstance(wanted, GrpoStage) and isinstance(made.stage, GrpoStage):
        assert (made.stage.clip.low, made.stage.clip.high) == (wanted.clip.low, wanted.clip.high)
    assert made.unknown == ()
    assert not [each for each in made.differences if "where an export has" in each.what]


def test_what_the_tool_does_else_is_listed_by_its_own_key() -> None:
    _, values = trl_arguments(PLAIN / "trl" / "grpo.bin")
    made = back("trl", "grpo", values | {"max_steps": 4}, 4)
    stage = made.stage
    assert isinstance(stage, GrpoStage)
    # The arguments of the script that made it, and TRL's own defaults.
    assert (stage.optimizer.lr, stage.optimizer.schedule, stage.kl.coef) == (1e-3, "cosine", 0.02)
    assert (stage.prompts, stage.group, stage.sampling.temperature) == (2, 4, 0.9)
    assert (stage.loss, stage.aggregation, stage.checkpoint_every) == ("ppo_clip", "token_mean", 2)
    told = {each.key: each.what for each in made.differences}
    assert told["use_bias_correction_kl"] == "is True, where an export has False"
    assert "shuffle_dataset" in told and "learning_rate" not in told


RECORDED: Mapping[tuple[str, str], Callable[[], dict[str, Any]]] = {
    ("trl", "sft"): lambda: trl_arguments(PLAIN / "trl" / "sft.bin")[1],
    ("trl", "grpo"): lambda: trl_arguments(PLAIN / "trl" / "grpo.bin")[1],
    ("swift", "sft"): lambda: kept(read_object(PLAIN / "swift" / "args.json")),
    ("verl", "grpo"): lambda: hydra_values(PLAIN / "verl" / "config.yaml"),
}
ROLL = "actor_rollout_ref.rollout"


@pytest.mark.parametrize(
    ("tool", "method", "key", "value"),
    [
        ("trl", "sft", "neftune_noise_alpha", 5.0),
        ("trl", "sft", "label_smoothing_factor", 0.1),
        ("trl", "sft", "loss_type", "dft"),
        ("trl", "sft", "deepspeed.zero_optimization.stage", 3),
        ("trl", "sft", "a_key_of_another_version", 0.5),
        ("trl", "grpo", "repetition_penalty", 1.3),
        ("trl", "grpo", "generation_kwargs.no_repeat_ngram_size", 2),
        ("trl", "grpo", "off_policy_mask_threshold", 0.5),
        ("trl", "grpo", "sync_ref_model", True),
        ("swift", "sft", "enable_dft_loss", True),
        ("verl", "grpo", "algorithm.rollout_correction.rollout_rs", "token"),
        ("verl", "grpo", f"{ROLL}.engine_kwargs.vllm.repetition_penalty", 1.3),
    ],
)
def test_a_setting_without_counterpart_is_listed_with_its_value(
    tool: str, method: str, key: str, value: Any
) -> None:
    config = RECORDED[tool, method]()
    usual = {each.key for each in back(tool, method, config).differences}
    assert key not in usual
    name, _, inner = key.partition(".") if tool != "verl" else (key, "", "")
    new = nested({inner: value}) if inner else value
    old = config.get(name)
    changed = {**config, name: old | new if isinstance(old, dict) else new}
    told = {each.key: each.what for each in back(tool, method, changed).differences}
    assert key in told and f"is {value!r}" in told[key]


def test_what_is_off_is_listed_once_its_switch_is_on() -> None:
    config = RECORDED["trl", "grpo"]()
    for on in (False, True):
        made = back("trl", "grpo", {**config, "sync_ref_model": on, "ref_model_sync_steps": 64})
        assert ("ref_model_sync_steps" in {each.key for each in made.differences}) == on


def test_what_a_model_does_in_training_alone_is_listed() -> None:
    config = RECORDED["trl", "sft"]()
    for dropout, router in ((0.0, None), (0.1, 0.02)):
        moe = {"router_aux_loss_coef": router, "output_router_logits": False}
        extra: dict[str, Any] = {} if router is None else moe
        model = LlamaConfig(attention_dropout=dropout, **extra)
        made = back("trl", "sft", dict(with_model(config, model)))
        told = {each.key for each in made.differences}
        acts = {"config.json.attention_dropout", "router_aux_loss_coef"}
        assert told & acts == (acts if dropout else set())
        assert likelihood(config, made.differences) == (not dropout)


@pytest.mark.parametrize(
    ("changed", "is_one"),
    [
        ({}, True),
        ({"assistant_only_loss": True}, True),
        ({"loss_type": "dft"}, False),
        ({"model_init_kwargs": {"attention_dropout": 0.1}}, False),
        ({"a_key_of_another_version": 1}, False),
    ],
)
def test_a_loss_is_a_likelihood_only_where_nothing_moves_it(
    changed: dict[str, Any], is_one: bool
) -> None:
    config = {**RECORDED["trl", "sft"](), "router_aux_loss_coef": 0.0, **changed}
    assert likelihood(config, back("trl", "sft", config).differences) == is_one
    assert not likelihood({"max_steps": 4}, ())


def test_a_setting_that_assay_has_no_words_for_is_unknown() -> None:
    _, values = trl_arguments(PLAIN / "trl" / "grpo.bin")
    made = back("trl", "grpo", {**values, "loss_type": "bnpo", "scale_rewards": "batch"}, 4)
    assert {"loss", "aggregation", "advantage"} <= {*made.unknown}
    del values["beta"]
    assert "kl.coef" in back("trl", "grpo", values, 4).unknown


def test_ms_swifts_and_verls_own_files_are_read() -> None:
    args = kept(read_object(PLAIN / "swift" / "args.json")) | {"processes": 1}
    made = back("swift", "sft", args | {"gradient_accumulation_steps": 4}, 4)
    assert isinstance(made.stage, SftStage)
    assert (made.stage.batch, made.stage.optimizer.betas) == (16, (0.9, 0.95))
    config = hydra_values(PLAIN / "verl" / "config.yaml")
    assert config["trainer.default_local_dir"] == "checkpoints/sums/tiny"
    stage = back("verl", "grpo", config, 3).stage
    assert isinstance(stage, GrpoStage)
    assert (stage.prompts, stage.group, stage.kl.coef, stage.steps) == (2, 4, 0.01, 3)
    assert stage.updates.minibatches == 1 and stage.sampling.max_tokens == 12


@pytest.mark.parametrize("tool", ["swift", "verl"])
def test_a_training_that_was_told_epochs_has_the_steps_of_its_log(tool: str) -> None:
    if tool == "swift":
        told = kept(read_object(PLAIN / "swift" / "args.json")) | {"max_steps": -1}
        made = back("swift", "sft", told, 7)
    else:
        told = hydra_values(PLAIN / "verl" / "config.yaml") | {"trainer.total_training_steps": None}
        made = back("verl", "grpo", told, 7)
    assert made.stage.steps == 7 and "steps" not in made.unknown
    told = {each.key: each.what for each in made.differences}
    assert not {"max_steps", "trainer.total_training_steps"} & told.keys(), told


def test_settings_that_contradict_each_other_are_one_line() -> None:
    told = ALWAYS["grpo"] | {"method": "grpo", "steps": 2, "prompts": 2}
    with pytest.raises(InputError, match="no stage of Assay's"):
        stage_of(told | {"epochs": 2})


class Bomb:
    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.file), "w"))


def test_arguments_are_read_and_nothing_of_them_is_run(tmp_path: Path) -> None:
    spoilt, file = tmp_path / "ran", tmp_path / "training_args.bin"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({"bomb": Bomb(spoilt)}))
    with pytest.raises(InputError, match="holds no arguments of TRL"):
        trl_arguments(file)
    assert not spoilt.exists()
    pickle.loads(zipfile.ZipFile(file).read("x/data.pkl"))["bomb"].close()
    assert spoilt.exists()  # the control: Python's own reader runs it


def test_secrets_are_not_kept() -> None:
    given = {"hub_token": "hf_x", "api_key": "k", "training_args": "X(hub_token='hf_x')" * 99}
    plain = {"lr": 1.0, "tokenizer": "t", "max_tokens": 3, "eos_token": "<e>"}
    deep = {"model_init_kwargs": {"token": "hf_x", "dtype": "float32"}}
    assert kept({**given, **plain, **deep}) == {**plain, "model_init_kwargs": {"dtype": "float32"}}


def test_a_long_setting_is_kept_as_its_sha256() -> None:
    one, other = (kept({"template": each * 400})["template"] for each in "ab")
    assert one != other and "sha256" in one and len(one) < 100


@pytest.mark.parametrize("tool", TRAINERS)
def test_a_folder_that_the_tool_did_not_write_is_refused(tmp_path: Path, tool: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds nothing of"):
        find(tool, tmp_path)


def test_another_kind_of_training_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(PLAIN / "swift", tmp_path / "out")
    edit_json(folder / "args.json", rlhf_type="dpo")
    with pytest.raises(InputError, match="trained with dpo"):
        find("swift", folder)
    with pytest.raises(InputError, match="--from swift"):
        find("trl", folder)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {x: 1, y: 2}\n" + "".join(f"{k}: &{k} {{x: *{j}, y: *{j}}}\n" for j, k in LETTERS),
        "a: " + "[" * 2000,
    ],
)
def test_a_configuration_that_grows_without_end_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match="is no YAML"):
        hydra_values(file)


def test_arguments_that_grow_beyond_their_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "training_args.bin"
    for content, packed in (
        (b"X" + struct.pack("<I", 1 << 20) + bytes(1 << 20), zipfile.ZIP_DEFLATED),
        (b"]r" + struct.pack("<I", (1 << 31) - 1), zipfile.ZIP_STORED),
    ):
        with zipfile.ZipFile(file, "w", packed) as archive:
            archive.writestr("t/data.pkl", b"\x80\x02" + content + b".")
        with pytest.raises(InputError, match="no arguments of TRL: ValueError"):
            trl_arguments(file)
