"""Turns pydantic's errors into messages with places and hints that a user can act on.

Hints include the keys of TRL, verl, ms-swift and peft. Those keys are not read, because their
values may have another meaning (a batch per device, a share in percent); the hint names
Assay's key.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from assay.data.toml_text import KeyPath, unusable_values, written_path
from assay.errors import InputError, nearest
from assay.experiment.base_table import Table
from assay.experiment.experiment import Experiment
from assay.experiment.helper_tables import file_path
from assay.experiment.overrides import annotations_at, keys_at

DRAWN = ("stage.NAME.sampling", "evaluate.NAME.sampling")
SIZES = ("stage.NAME.batch", "stage.NAME.prompts")
"""Of a stage without sampling, and of one with it."""
TAKEN = ("data.NAME.take.rows", "evaluate.NAME.take.rows")
KEYS: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("stage.NAME.optimizer.lr",),
    "lr": ("stage.NAME.optimizer.lr",),
    "optim": ("stage.NAME.optimizer.name",),
    "weight_decay": ("stage.NAME.optimizer.weight_decay",),
    "adam_beta1": ("stage.NAME.optimizer.betas",),
    "adam_beta2": ("stage.NAME.optimizer.betas",),
    "lr_scheduler_type": ("stage.NAME.optimizer.schedule",),
    "warmup_ratio": ("stage.NAME.optimizer.warmup",),
    "lr_warmup_steps_ratio": ("stage.NAME.optimizer.warmup",),
    "max_grad_norm": ("stage.NAME.optimizer.clip_norm",),
    "grad_clip": ("stage.NAME.optimizer.clip_norm",),
    "per_device_train_batch_size": SIZES,
    "train_batch_size": SIZES,
    "gen_batch_size": ("stage.NAME.prompts",),
    "gradient_accumulation_steps": ("stage.NAME.micro_tokens",),
    "ppo_micro_batch_size_per_gpu": ("stage.NAME.micro_tokens",),
    "ppo_max_token_len_per_gpu": ("stage.NAME.micro_tokens",),
    "num_train_epochs": ("stage.NAME.epochs",),
    "total_epochs": ("stage.NAME.epochs",),
    "max_steps": ("stage.NAME.steps",),
    "total_training_steps": ("stage.NAME.steps",),
    "save_steps": ("stage.NAME.checkpoint_every",),
    "save_freq": ("stage.NAME.checkpoint_every",),
    "num_generations": ("stage.NAME.group",),
    "n": ("stage.NAME.group",),
    "max_completion_length": ("stage.NAME.sampling.max_tokens",),
    "max_response_length": ("stage.NAME.sampling.max_tokens",),
    "max_new_tokens": tuple(f"{table}.max_tokens" for table in DRAWN),
    "temperature": tuple(f"{table}.temperature" for table in DRAWN),
    "top_p": tuple(f"{table}.top_p" for table in DRAWN),
    "top_k": tuple(f"{table}.top_k" for table in DRAWN),
    "beta": ("stage.NAME.kl.coef",),
    "kl_coef": ("stage.NAME.kl.coef",),
    "kl_loss_coef": ("stage.NAME.kl.coef",),
    "kl_loss_type": ("stage.NAME.kl.estimator",),
    "use_kl_loss": ("stage.NAME.kl.where",),
    "use_kl_in_reward": ("stage.NAME.kl.where",),
    "epsilon": ("stage.NAME.clip.low",),
    "epsilon_high": ("stage.NAME.clip.high",),
    "clip_ratio": ("stage.NAME.clip.low",),
    "clip_ratio_low": ("stage.NAME.clip.low",),
    "clip_ratio_high": ("stage.NAME.clip.high",),
    "clip_ratio_c": ("stage.NAME.clip.dual",),
    "delta": ("stage.NAME.clip.dual",),
    "entropy_coeff": ("stage.NAME.entropy_coef",),
    "top_entropy_quantile": ("stage.NAME.top_entropy_share",),
    "sapo_temperature_pos": ("stage.NAME.clip.tau_positive",),
    "sapo_temperature_neg": ("stage.NAME.clip.tau_negative",),
    "vllm_importance_sampling_mode": ("stage.NAME.importance.mode",),
    "vllm_importance_sampling_clip_max": ("stage.NAME.importance.high",),
    "vllm_importance_sampling_clip_min": ("stage.NAME.importance.low",),
    "rollout_is": ("stage.NAME.importance.mode",),
    "rollout_is_threshold": ("stage.NAME.importance.high",),
    "multi_objective_aggregation": ("stage.NAME.advantage",),
    "min_lr_rate": ("stage.NAME.optimizer.min_lr",),
    "min_lr_ratio": ("stage.NAME.optimizer.min_lr",),
    "stop_strings": tuple(f"{table}.stop" for table in DRAWN),
    "adv_estimator": ("stage.NAME.algorithm",),
    "scale_rewards": ("stage.NAME.advantage",),
    "norm_adv_by_std_in_grpo": ("stage.NAME.advantage",),
    "loss_type": ("stage.NAME.algorithm",),
    "loss_mode": ("stage.NAME.loss",),
    "loss_agg_mode": ("stage.NAME.aggregation",),
    "num_iterations": ("stage.NAME.updates.epochs",),
    "ppo_epochs": ("stage.NAME.updates.epochs",),
    "ppo_mini_batch_size": ("stage.NAME.updates.minibatches",),
    "mask_truncated_completions": ("stage.NAME.mask_truncated",),
    "max_num_gen_batches": ("stage.NAME.dynamic.max_batches",),
    "reward_funcs": ("stage.NAME.reward",),
    "reward_weights": ("stage.NAME.reward",),
    "custom_reward_function": ("stage.NAME.reward",),
    "loss_scale": ("stage.NAME.loss_on",),
    "template": ("stage.NAME.rendering",),
    "lora_r": ("stage.NAME.adapt.rank",),
    "lora_rank": ("stage.NAME.adapt.rank",),
    "lora_alpha": ("stage.NAME.adapt.alpha",),
    "lora_dropout": ("stage.NAME.adapt.dropout",),
    "target_modules": ("stage.NAME.adapt.targets",),
    "train_type": ("stage.NAME.adapt.kind",),
    "use_peft": ("stage.NAME.adapt.kind",),
    "max_prompt_length": ("data.NAME.max_prompt_tokens",),
    "max_length": ("data.NAME.max_tokens",),
    "max_seq_length": ("data.NAME.max_tokens",),
    "dataset": ("data.NAME.source",),
    "dataset_name": ("data.NAME.source",),
    "train_files": ("data.NAME.source",),
    "val_dataset": ("stage.NAME.validation",),
    "eval_dataset": ("stage.NAME.validation",),
    "eval_steps": ("stage.NAME.validation_every",),
    "split_dataset_ratio": ("data.NAME.split.dev",),
    "test_size": ("data.NAME.split.dev",),
    "max_samples": ("data.NAME.take.rows",),
    "val_before_train": ("evaluate.NAME.checkpoints",),
    "model_name_or_path": ("model",),
    "seed": ("seeds",),
    "lora": ("stage.NAME.adapt",),
    "peft": ("stage.NAME.adapt",),
    "peft_config": ("stage.NAME.adapt",),
    "lora_config": ("stage.NAME.adapt",),
    "use_lora": ("stage.NAME.adapt.kind",),
    "tuner_type": ("stage.NAME.adapt.kind",),
    "sft_type": ("stage.NAME.adapt.kind",),
    "finetuning_type": ("stage.NAME.adapt.kind",),
    "adapter": ("stage.NAME.adapt.kind",),
    "r": ("stage.NAME.adapt.rank",),
    "use_rslora": ("stage.NAME.adapt.rslora",),
    "use_dora": ("stage.NAME.adapt.dora",),
    "lora_target": ("stage.NAME.adapt.targets",),
    "lora_target_modules": ("stage.NAME.adapt.targets",),
    "first": TAKEN,
    "limit": TAKEN,
    "num_samples": TAKEN,
    "max_train_samples": TAKEN,
    "train_max_samples": TAKEN,
    "val_max_samples": TAKEN,
    "val_size": ("data.NAME.split.dev",),
    "dev_size": ("data.NAME.split.dev",),
    "test_split": ("data.NAME.split.test",),
    "batch_size": SIZES,
    "global_batch_size": SIZES,
    "per_device_batch_size": SIZES,
    "micro_batch_size": ("stage.NAME.micro_tokens",),
    "num_epochs": ("stage.NAME.epochs",),
    "n_epochs": ("stage.NAME.epochs",),
    "num_steps": ("stage.NAME.steps",),
    "total_steps": ("stage.NAME.steps",),
    "num_train_steps": ("stage.NAME.steps",),
    "warmup_steps": ("stage.NAME.optimizer.warmup",),
    "num_warmup_steps": ("stage.NAME.optimizer.warmup",),
    "lr_warmup_steps": ("stage.NAME.optimizer.warmup",),
    "lr_scheduler": ("stage.NAME.optimizer.schedule",),
    "scheduler": ("stage.NAME.optimizer.schedule",),
    "clip_grad": ("stage.NAME.optimizer.clip_norm",),
    "gradient_clipping": ("stage.NAME.optimizer.clip_norm",),
    "num_return_sequences": ("stage.NAME.group", "evaluate.NAME.repeats"),
    "group_size": ("stage.NAME.group", "evaluate.NAME.repeats"),
    "rollout_n": ("stage.NAME.group", "evaluate.NAME.repeats"),
    "n_samples_per_prompt": ("stage.NAME.group", "evaluate.NAME.repeats"),
    "rollout_batch_size": ("stage.NAME.prompts",),
    "num_prompts": ("stage.NAME.prompts",),
    "max_gen_toks": tuple(f"{table}.max_tokens" for table in DRAWN),
    "max_response_len": tuple(f"{table}.max_tokens" for table in DRAWN),
    "cliprange": ("stage.NAME.clip.low",),
    "clip_range": ("stage.NAME.clip.low",),
    "eps_clip": ("stage.NAME.clip.low",),
    "kl_beta": ("stage.NAME.kl.coef",),
    "kl_penalty": ("stage.NAME.kl.coef",),
    "init_kl_coef": ("stage.NAME.kl.coef",),
    "reward_function": ("stage.NAME.reward",),
    "reward_fn": ("stage.NAME.reward",),
    "reward_func": ("stage.NAME.reward",),
    "reward_model": ("stage.NAME.reward",),
    "train_dataset": ("data.NAME.source",),
    "train_file": ("data.NAME.source",),
    "data_path": ("data.NAME.source",),
    "data_files": ("data.NAME.source",),
    "dataset_path": ("data.NAME.source",),
    "path": ("data.NAME.source",),
    "subset": ("data.NAME.hub.config",),
    "dataset_config": ("data.NAME.hub.config",),
    "dataset_split": ("data.NAME.hub.split",),
    "val_files": ("stage.NAME.validation",),
    "val_data": ("stage.NAME.validation",),
    "eval_freq": ("stage.NAME.validation_every",),
    "test_freq": ("stage.NAME.validation_every",),
    "model_name": ("model",),
    "model_id": ("model",),
    "base_model": ("model",),
    "random_seed": ("seeds",),
    "data_seed": ("seeds",),
    "chat_template": ("stage.NAME.rendering",),
    "cutoff_len": ("data.NAME.max_tokens",),
    "max_seq_len": ("data.NAME.max_tokens",),
    "packing": ("stage.NAME.pack_tokens",),
    "sample_packing": ("stage.NAME.pack_tokens",),
    "assistant_only_loss": ("stage.NAME.loss_on",),
    "completion_only_loss": ("stage.NAME.loss_on",),
    "train_on_inputs": ("stage.NAME.loss_on",),
    "rlhf_type": ("stage.NAME.method",),
    "trainer": ("stage.NAME.method",),
    "dynamic_sample": ("stage.NAME.dynamic",),
    "filter_groups": ("stage.NAME.dynamic",),
    "overlong_buffer": ("stage.NAME.overlong",),
    "tasks": ("evaluate.NAME.benchmark",),
}
"""Their key -> the dotted keys here, the first that the table has being meant. Of a verl key such
as `actor_rollout_ref.rollout.n` the last part counts."""
MEANINGS: Mapping[str, str] = {
    "per_device_train_batch_size": "of a whole step, on however many devices",
    "gradient_accumulation_steps": "tokens of one pass; the gradient does not depend on them",
    "ppo_micro_batch_size_per_gpu": "tokens of one pass; the gradient does not depend on them",
    "ppo_mini_batch_size": "the number of updates, not the size of one",
    "train_batch_size": "of a whole step",
    **dict.fromkeys(
        ("warmup_steps", "num_warmup_steps", "lr_warmup_steps"),
        "a share of the steps, not their number",
    ),
    "min_lr_rate": "the rate itself, not its share of the peak",
    "min_lr_ratio": "the rate itself, not its share of the peak",
}
"""What the key here means where it counts another thing than theirs."""


def foreign_keys(path: KeyPath, value: Any, raw: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
    """The keys of other trainers at `path` or in the table there, each with the hint for it."""
    inner = value.items() if isinstance(value, Mapping) else ()
    found = [one for key, each in inner for one in foreign_keys((*path, key), each, raw)]
    name = str(path[-1])
    if found:
        return found
    return [(path, hint(name, path, raw))] if name in KEYS else []


def hint(name: str, path: KeyPath, raw: Mapping[str, Any]) -> str:
    """The key of the file `raw` that another trainer calls `name`, found at `path`."""
    # A key of the table that theirs stands in comes before others.
    known = sorted(KEYS[name], key=lambda dotted: dotted.split(".")[0] != path[0])
    written = [_written(dotted, path, raw) for dotted in known]
    meant = next((p for p in written if annotations_at(p, raw, Experiment)), written[0])
    meaning = f": {MEANINGS[name]}" if name in MEANINGS else ""
    return f"its name here is {'.'.join(map(str, meant))}{meaning}"


def _written(dotted: str, path: KeyPath, raw: Mapping[str, Any]) -> KeyPath:
    """The dotted key with the name of the table that is meant, where that is certain."""
    parts: list[str | int] = [*dotted.split(".")]
    if "NAME" in parts:
        names = list(_names(parts[0], path, raw))
        parts[1] = names[0] if len(names) == 1 else "NAME"
    return tuple(parts)


def _names(table: str | int, path: KeyPath, raw: Mapping[str, Any]) -> Iterator[str]:
    """The table that `path` lies in, else all of the kind."""
    tables = raw.get(str(table), {})
    here = tables.items() if isinstance(tables, Mapping) else ()
    known = [name for name, values in here if isinstance(values, Mapping)]
    if len(path) > 2 and path[0] == table and path[1] in known:
        yield str(path[1])
    else:
        yield from known


SomeTable = TypeVar("SomeTable", bound=Table)
MISSING = "missing"
UNKNOWN = "unknown key"
EMPTY = "must not be empty"
"""Also said of an array whose elements are all wrong."""
_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_TABLES = {"dict_type", "model_type", "model_attributes_type"}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the value at `path`."""

    path: KeyPath
    problem: str
    fix: str = ""
    expected: str = ""
    """What the value should have been, where its type is wrong; members of a union add up."""


def problems_in(
    errors: list[ErrorDetails], raw: Mapping[str, Any], model: type[Table] = Experiment
) -> list[Problem]:
    """One problem per place, the branches of a union merged, in the order pydantic met them."""
    found: dict[KeyPath, Problem] = {}
    for error in errors:
        for problem in _problems(error, raw, model):
            before = found.get(problem.path)
            if before is not None and problem.expected and not before.expected:
                continue  # The branch of a union whose type fits knows more than one it does not.
            merged = problem
            if before is not None and before.expected and problem.expected:
                expected = f"{before.expected} or {problem.expected}"
                merged = _wrong_type(problem.path, expected, error["input"])
            found[problem.path] = merged
    # What is said of an element is not said of its array; the branch of a union that looked deeper
    # knows more than the one that wanted another type.
    return [p for p in found.values() if not _looked_into(p, found)]


def made(kind: type[SomeTable], values: Mapping[str, Any]) -> SomeTable:
    """A table of values that are in no file, but on the command line. Raises InputError."""
    found = [Problem(*each) for each in unusable_values(values)]
    if not found:
        try:
            return kind.model_validate(values)
        except ValidationError as invalid:
            found = problems_in(invalid.errors(include_url=False), values, kind)
    first = found[0]
    raise InputError(first.problem, field=".".join(map(str, first.path)), fix=first.fix)


def _looked_into(problem: Problem, found: Mapping[KeyPath, Problem]) -> bool:
    size = len(problem.path)
    deeper = (path for path in found if len(path) > size and path[:size] == problem.path)
    return bool(problem.expected or problem.problem == EMPTY) and any(deeper)


def _problems(error: ErrorDetails, raw: Mapping[str, Any], model: type[Table]) -> Iterator[Problem]:
    """What one error of pydantic says: a validator's may hold several, as may a table of unknown
    keys.
    """
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    location = file_path(error["loc"], raw) if model is Experiment else error["loc"]
    path = written_path(location, raw, missing=kind == MISSING)
    if kind == "refused":
        for each in context.get("all", [context]):
            yield Problem(
                (*path, *filter(None, each["field"].split("."))), each["problem"], each["fix"]
            )
        return
    foreign = foreign_keys(path, value, raw) if model is Experiment else []
    if kind == "extra_forbidden":
        keys = keys_at(path[:-1], raw, model)
        unknown = Problem(path, UNKNOWN, nearest(str(path[-1]), keys))
        yield from [Problem(at, UNKNOWN, fix) for at, fix in foreign] or [unknown]
    elif foreign and kind in _TABLES and str(path[-1]) not in keys_at(path[:-1], raw, model):
        yield from (Problem(at, UNKNOWN, fix) for at, fix in foreign)
    else:
        yield _problem(error, path, raw, model)


def _problem(
    error: ErrorDetails, path: KeyPath, raw: Mapping[str, Any], model: type[Table]
) -> Problem:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == MISSING:
        return _missing(path, raw, model)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _wrong_tag(path, kind, context)
    if kind == "literal_error":
        return _wrong_choice(path, value, context["expected"])
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = context[key]
        limit = f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
        return Problem(path, f"must be {words} {limit}, not {value}")
    if kind in _EXPECTED:
        return _wrong_type(path, _EXPECTED[kind], value)
    return _other(path, kind, value, error["msg"])


def _other(path: KeyPath, kind: str, value: Any, message: str) -> Problem:
    if kind == "string_pattern_mismatch":
        fix = "start with a letter or digit and use letters, digits, '_' and '-'"
        return Problem(path, f"{value!r} cannot be a name", fix)
    if kind == "too_short":
        return Problem(path, EMPTY)
    if kind == "finite_number":
        return Problem(path, f"must be a finite number, not {value}")
    if kind == "too_long":
        return Problem(path, "has too many elements")
    return Problem(path, message[:1].lower() + message[1:])


def _missing(path: KeyPath, raw: Mapping[str, Any], model: type[Table]) -> Problem:
    if isinstance(path[-1], int):
        return Problem(path[:-1], "has too few elements")
    meaning = keys_at(path[:-1], raw, model)[str(path[-1])].description or ""
    return Problem(path, MISSING, f"add it: {_first_sentence(meaning)}")


def _first_sentence(text: str) -> str:
    sentence = re.split(r"\.\s|\.$", " ".join(text.split()))[0]
    return sentence[:1].lower() + sentence[1:]


def _wrong_tag(path: KeyPath, kind: str, context: Mapping[str, Any]) -> Problem:
    path = (*path, context["discriminator"].strip("'"))
    if kind == "union_tag_not_found":
        return Problem(path, MISSING, "add it")
    return _wrong_choice(path, context["tag"], context["expected_tags"])


def _wrong_choice(path: KeyPath, value: Any, expected: str) -> Problem:
    if not isinstance(value, str):
        return _wrong_type(path, expected, value)
    choices = re.findall(r"'([^']*)'", expected)
    return Problem(path, f"unknown value {value!r}", nearest(value, choices), expected)


def _wrong_type(path: KeyPath, expected: str, value: Any) -> Problem:
    problem = f"expected {expected}, got {_described(value)}"
    return Problem(path, problem, expected=expected)


def _described(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "an array"
    kinds = {str: "the string ", int: "the integer ", float: "the number "}
    return kinds.get(type(value), "") + repr(value)
