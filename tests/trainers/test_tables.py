"""Every key of a stage is translated for every trainer, or named as different, or refused."""

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from assay.engines.environments import ask, installed
from assay.errors import InputError
from assay.experiment.stage_tables import GrpoStage, SftStage
from assay.judge.confounds import dotted
from assay.rl.presets import ELSEWHERE, PRESETS
from assay.trainers.read_back import same
from assay.trainers.register import TRAINERS, folder_texts, lines, yaml_text
from assay.trainers.settings import Settings, Translated, listed, translated
from assay.trainers.table import READ, VALUES, WHEN, table
from tests.cli.conftest import answer, call
from tests.tiny_labs import make_lab

METHODS = {"sft": SftStage, "grpo": GrpoStage}
TABLES = [(tool, method) for tool, each in TRAINERS.items() for method in each.methods]
SFT = {"data": "d", "method": "sft", "steps": 10}
GRPO = {"data": "d", "method": "grpo", "steps": 10, "prompts": 4, "group": 4, "reward": "r"}
LIMITED = {"algorithm": "lever_plus", "loss": "ppo_clip", "aggregation": "token_mean"}
NAMES = {"TRL": "trl", "verl": "verl", "ms-swift": "swift"}


ONLY_IN_FILES = {
    "processes",
    "__cached__setup_devices",
    "_n_gpu",
    "_setup_devices",
    "_val_dataset_exists",
    "distributed_state*",
    "mixed_precision",
    "fsdp_plugin_args*",
    "deepspeed_plugin*",
    "accelerator_config.use_configured_state",
    "accelerator_config.non_blocking",
    "evaluation_strategy",
    "rank",
    "hub",
    "global_world_size",
    "local_world_size",
    "model_suffix",
    "swift_version",
    "ckpt_dir",
    "model_dir",
    "model_info",
    "model_meta",
    "training_args",
    "activation_checkpointing*",
    "actor_rollout_ref.model.override_config.attn_implementation",
}
"""Keys of a configuration that only the files of a run have, beside those of the tool."""


def inner(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not dict:
        for each in get_args(annotation):
            yield from inner(each)


def keys_of(table: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every key of a table, dotted; schedules and rewards are values, not tables of keys."""
    for key, field in table.model_fields.items():
        tables = {*inner(field.annotation)} if key != "reward" else set()
        tables = {each for each in tables if each.__name__ not in ("ScheduleSpec", "EveryEpochs")}
        if not tables:
            yield path + key
        for each in tables:
            yield from keys_of(each, f"{path}{key}.")


def settings(stage: Mapping[str, Any], **more: Any) -> Settings:
    made = TypeAdapter(METHODS[stage["method"]]).validate_python(stage)
    given = {"model": "model", "seed": 7, "rounds": 10, "rows": 20}
    return Settings("s", made, **{**given, "longest_prompt": 30, "longest": 50, **more})


def translate(tool: str, stage: Mapping[str, Any], *allowed: str, **more: Any) -> Translated:
    return translated(table(tool, stage["method"]), settings(stage, **more), tool, allowed)


@pytest.mark.parametrize(("tool", "method"), TABLES)
def test_no_key_of_a_stage_is_forgotten_and_none_is_invented(tool: str, method: str) -> None:
    rows = [key for key in table(tool, method).cells if not key.startswith("(")]
    keys = {*keys_of(METHODS[method])}
    covered = {k: [r for r in rows if k == r or k.startswith(f"{r}.")] for k in keys}
    assert [key for key, by in covered.items() if len(by) != 1] == []
    assert [row for row in rows if not any(row in by for by in covered.values())] == []


@pytest.mark.parametrize(("tool", "method"), TABLES)
def test_a_setting_says_what_becomes_of_it(tool: str, method: str) -> None:
    made = settings(SFT if method == "sft" else GRPO)
    for key, cell in table(tool, method).cells.items():
        assert cell.keys or cell.how or cell.unlike, key
        assert not cell.written(made, key) or cell.keys, key


def test_no_conversion_is_left_without_its_setting() -> None:
    """A setting that was renamed in the file would be written as it is."""
    tools = {tool: [tool] if tool == "verl" else [tool, "hf"] for tool in TRAINERS}
    known = {
        f"{word}{key}"
        for tool, method in TABLES
        for key in table(tool, method).cells
        for word in ("", "all ", *(f"{name} " for name in tools[tool]))
    }
    assert {*VALUES, *READ, *WHEN} <= known


def test_the_keys_of_a_tool_are_printed() -> None:
    (line,) = lines("verl", "optimizer.lr")
    assert (line.theirs, line.how) == (("actor_rollout_ref.actor.optim.lr",), "as it is")
    shown = call("engines", "keys", "trl", "gradient_checkpointing_kwargs", "--json")
    (line,) = answer(shown)["result"]["keys"]
    assert line["ours"] == "(without effect)" and "memory" in line["how"]
    known = {key for tool in TRAINERS for line in lines(tool) for key in (line.ours, *line.theirs)}
    assert {"kl.coef", "learning_rate", "critic.*", "critic/score/mean", "vllm_*"} <= known


def keys_in_tool(tool: str, method: str, folder: Path) -> tuple[Mapping[str, Any], Translated]:
    """All keys of the tool's configuration, as the tool itself parses what an export writes."""
    if installed(tool) is None:
        pytest.skip(f"assay engines add {tool}")
    lab = make_lab(folder, until="[evaluate.dev]").parent
    (lab / "data").mkdir()
    (lab / "data" / "train.jsonl").write_text(json.dumps({"messages": []}) + "\n")
    template = {"model_type": "llama", "template": "chatml"} if tool == "swift" else {}
    made = settings(SFT if method == "sft" else GRPO, template=template)
    values = translated(table(tool, method), made, tool)
    written = folder_texts(tool, made, values, "x")["config.yaml"]
    (lab / "config.yaml").write_text(written)
    for name in ("reward.py", *TRAINERS[tool].loads):
        (lab / name).write_text(files("assay.trainers.in_tool").joinpath(name).read_text())
    script = Path(__file__).with_name(f"read_by_{tool}.py")
    found = ask(tool, script, {"folder": str(lab), "method": method})
    return {key: each for key, each in found.items() if each == {}} | dotted(found), values


@pytest.mark.slow
@pytest.mark.parametrize("tool", TRAINERS)
def test_every_key_of_the_tool_is_mapped_or_set_or_without_effect(
    tool: str, tmp_path: Path
) -> None:
    theirs, written, ours, switches = set[str](), set[str](), set[str](), set[str]()
    for method in TRAINERS[tool].methods:
        found, made = keys_in_tool(tool, method, tmp_path / method)
        own, values = table(tool, method), dotted(made.values)
        known = {*values, *(key for cell in own.cells.values() for key in cell.keys)}
        named = [key for key in found if listed({**own.idle, **own.gated}, key)]
        nameless = {*found} - known - {*named}
        assert not nameless, nameless
        # What an export writes is what the tool then has.
        acting = {k: v for k, v in values.items() if not own.is_idle(k)}
        assert {k: found.get(k) for k, v in acting.items() if not same(found.get(k), v)} == {}
        groups = [*own.idle.values(), *own.gated.values()]
        ours |= {key for text in groups for key in text.split()}
        theirs, written = theirs | {*found}, written | {*made.values}
        switches |= {*own.gated}
    # No key of ours is an invention, and what switches others on is itself written.
    assert switches <= written
    gone = {key for key in ours if not any(fnmatchcase(each, key) for each in theirs)}
    assert gone <= ONLY_IN_FILES, gone - ONLY_IN_FILES


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("title", "tool"), NAMES.items())
def test_a_preset_is_what_the_manual_says_in_the_words_of_the_tool(
    preset: str, title: str, tool: str
) -> None:
    """The words of each tool (`tests.docs.preset_tables` prints them) were written by hand."""
    stated = {k.lstrip("-"): v for k, v in ELSEWHERE[preset][title].items()}
    if "trainer" in stated or "fork" in stated or any("(" in v for v in stated.values()):
        pytest.skip("another trainer of the tool")
    if not stated:
        return
    stage = {**GRPO, "algorithm": preset}
    if "algorithm.filter_groups.enable" in stated or "dynamic_sample" in stated:
        stated = {k: v for k, v in stated.items() if "filter" not in k and "dynamic" not in k}
    stated.pop("actor_rollout_ref.actor.loss_scale_factor", None)
    made = translate(tool, stage).values
    for key, value in stated.items():
        assert key in made, key
        found = str(made[key])
        same = found.lower() == value.lower() or (key != "loss_type" and equal(found, value))
        assert same or (preset, title, key) in BETTER, (key, found, value)


BETTER = {
    # A ratio is never below 1 - 1, nor below 1 - 10.
    ("cispo", "verl", "actor_rollout_ref.actor.clip_ratio_low"),
    # The token form of GSPO, whose gradient is that of the sequence form.
    ("gspo", "ms-swift", "importance_sampling_level"),
    # Nothing corresponds to no lower bound.
}


def equal(found: str, value: str) -> bool:
    try:
        return float(found) == float(value)
    except ValueError:
        return False


@pytest.mark.parametrize("tool", TRAINERS)
@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("kl.adaptive", {"kl": {"coef": 0.1, "adaptive": {}}}),
        ("sampling.stop", {"sampling": {"stop": ["\n"]}}),
        ("adapt.kind", {"adapt": {"kind": "freeze", "patterns": ["a"]}}),
        ("advantage_options.ddof", {"advantage_options": {"ddof": 0}}),
        ("advantage", {"algorithm": "egpo"}),
        ("advantage", LIMITED),
        ("template_options", {"template_options": {"enable_thinking": False}}),
        ("rewards", {"rewards": "normalised"}),
    ],
)
def test_what_has_no_counterpart_is_refused_and_allowed_by_name_alone(
    tool: str, key: str, more: Mapping[str, Any]
) -> None:
    stage = {**GRPO, **more}
    with pytest.raises(InputError) as refusal:
        translate(tool, stage)
    assert refusal.value.field == f"stage.s.{key}" and f"--allow {key}" in str(refusal.value)
    made = translate(tool, stage, key)
    (listed,) = [each for each in made.differences if each.key == key and each.allowed]
    assert listed.what


def test_nothing_is_allowed_that_needs_no_permission() -> None:
    with pytest.raises(InputError, match="needs no permission"):
        translate("trl", GRPO, "kl.coef")


@pytest.mark.parametrize("tool", ["trl", "swift"])
def test_what_a_round_is_divided_into_comes_to_the_batch(tool: str) -> None:
    stage = {**GRPO, "prompts": 6, "updates": {"minibatches": 2, "epochs": 3}, "micro_tokens": 260}
    made = translate(tool, stage).values
    each, passes = made["per_device_train_batch_size"], made["gradient_accumulation_steps"]
    assert each * 50 <= 260 and each * passes == 6 * 4 // 2
    assert made["steps_per_generation"] * each == 6 * 4 and made["num_iterations"] == 3
    assert made["max_steps"] == 10 * 2 * 3


@pytest.mark.parametrize(("tool", "method"), TABLES)
def test_defaults_of_assay_differ_by_guards_and_fixed_constants_alone(
    tool: str, method: str
) -> None:
    """Nothing that moves the weights differs by default but the 1e-4 of TRL and ms-swift, steps
    without signal, and number formats on a CPU."""
    made = translate(tool, SFT if method == "sft" else GRPO)
    guards = {"max_skipped_steps", "max_rollout_gap", "max_steps_without_bonus"}
    guards |= {"max_abstained_share", "(number formats)"}
    rest = {each.key for each in made.differences} - guards
    fixed = {"advantage_options.epsilon"} if tool != "verl" else set()
    assert rest == ({"drop_without_signal", *fixed} if method == "grpo" else set())
    kept = {**GRPO, "drop_without_signal": False}
    assert method == "sft" or "drop_without_signal" not in {
        each.key for each in translate(tool, kept).differences
    }


def test_another_definition_is_listed_without_being_asked() -> None:
    more = {"optimizer": {"warmup": 0.2}, "updates": {"minibatches": 2}, "algorithm": "dapo"}
    made = translate("trl", {**GRPO, **more})
    listed = {each.key for each in made.differences if not each.allowed}
    assert {"optimizer.warmup", "updates.minibatches", "drop_without_signal"} <= listed


def test_minima_of_the_rate_are_written_as_each_tool_takes_them() -> None:
    optimizer = {"lr": 1e-3, "min_lr": 1e-4, "schedule": "cosine"}
    stage = {**GRPO, "optimizer": optimizer}
    assert translate("trl", stage).values["lr_scheduler_kwargs"] == {"min_lr": 1e-4}
    ratio = translate("verl", stage).values["actor_rollout_ref.actor.optim.min_lr_ratio"]
    assert ratio == pytest.approx(0.1)
    linear = {**stage, "optimizer": {**optimizer, "schedule": "linear"}}
    with pytest.raises(InputError, match="has no linear schedule"):
        translate("verl", linear)


@pytest.mark.parametrize(
    "value", [1e-06, 3e-4, 1e9, 0.5, 10, True, None, "a b", [1e-6, "x"], "1e-6"]
)
def test_numbers_of_the_configuration_stay_numbers_and_texts_texts(value: Any) -> None:
    """YAML 1.1 takes 1e-06 for text, OmegaConf for a number."""
    text = yaml_text({"key": value})
    assert yaml.safe_load(text) == {"key": value}
    if isinstance(value, float):
        assert "." in text
    assert (value == "1e-6") == ("'" in text)
