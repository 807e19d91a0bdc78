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

OTHER_NAMES: Mapping[str, str] = {
    "model": "model_name_or_path model_name model_id base_model",
    "seeds": "seed random_seed data_seed",
    "data.NAME.max_prompt_tokens": "max_prompt_length",
    "data.NAME.max_tokens": "max_length max_seq_length cutoff_len max_seq_len",
    "data.NAME.source": (
        "dataset dataset_name train_files train_dataset train_file data_path data_files "
        "dataset_path path"
    ),
    "data.NAME.split.dev": "split_dataset_ratio test_size val_size dev_size",
    "data.NAME.take.rows": (
        "max_samples first limit num_samples max_train_samples train_max_samples val_max_samples"
    ),
    "data.NAME.split.test": "test_split",
    "data.NAME.hub.config": "subset dataset_config",
    "data.NAME.hub.split": "dataset_split",
    "stage.NAME.optimizer.lr": "learning_rate lr",
    "stage.NAME.optimizer.name": "optim",
    "stage.NAME.optimizer.weight_decay": "weight_decay",
    "stage.NAME.optimizer.betas": "adam_beta1 adam_beta2",
    "stage.NAME.optimizer.schedule": "lr_scheduler_type lr_scheduler scheduler",
    "stage.NAME.optimizer.warmup": (
        "warmup_ratio lr_warmup_steps_ratio warmup_steps num_warmup_steps lr_warmup_steps"
    ),
    "stage.NAME.optimizer.clip_norm": "max_grad_norm grad_clip clip_grad gradient_clipping",
    "stage.NAME.batch": (
        "per_device_train_batch_size train_batch_size batch_size global_batch_size "
        "per_device_batch_size"
    ),
    "stage.NAME.prompts": (
        "per_device_train_batch_size train_batch_size gen_batch_size batch_size global_batch_size "
        "per_device_batch_size rollout_batch_size num_prompts"
    ),
    "stage.NAME.micro_tokens": (
        "gradient_accumulation_steps ppo_micro_batch_size_per_gpu ppo_max_token_len_per_gpu "
        "micro_batch_size"
    ),
    "stage.NAME.epochs": "num_train_epochs total_epochs num_epochs n_epochs",
    "stage.NAME.steps": "max_steps total_training_steps num_steps total_steps num_train_steps",
    "stage.NAME.checkpoint_every": "save_steps save_freq",
    "stage.NAME.group": (
        "num_generations n num_return_sequences group_size rollout_n n_samples_per_prompt"
    ),
    "stage.NAME.sampling.max_tokens": (
        "max_completion_length max_response_length max_new_tokens max_gen_toks max_response_len"
    ),
    "stage.NAME.sampling.temperature": "temperature",
    "stage.NAME.sampling.top_p": "top_p",
    "stage.NAME.sampling.top_k": "top_k",
    "stage.NAME.kl.coef": "beta kl_coef kl_loss_coef kl_beta kl_penalty init_kl_coef",
    "stage.NAME.kl.estimator": "kl_loss_type",
    "stage.NAME.kl.where": "use_kl_loss use_kl_in_reward",
    "stage.NAME.clip.low": "epsilon clip_ratio clip_ratio_low cliprange clip_range eps_clip",
    "stage.NAME.clip.high": "epsilon_high clip_ratio_high",
    "stage.NAME.clip.dual": "clip_ratio_c delta",
    "stage.NAME.entropy_coef": "entropy_coeff",
    "stage.NAME.top_entropy_share": "top_entropy_quantile",
    "stage.NAME.clip.tau_positive": "sapo_temperature_pos",
    "stage.NAME.clip.tau_negative": "sapo_temperature_neg",
    "stage.NAME.importance.mode": "vllm_importance_sampling_mode rollout_is",
    "stage.NAME.importance.high": "vllm_importance_sampling_clip_max rollout_is_threshold",
    "stage.NAME.importance.low": "vllm_importance_sampling_clip_min",
    "stage.NAME.advantage": "multi_objective_aggregation scale_rewards norm_adv_by_std_in_grpo",
    "stage.NAME.optimizer.min_lr": "min_lr_rate min_lr_ratio",
    "stage.NAME.sampling.stop": "stop_strings",
    "stage.NAME.algorithm": "adv_estimator loss_type",
    "stage.NAME.loss": "loss_mode",
    "stage.NAME.aggregation": "loss_agg_mode",
    "stage.NAME.updates.epochs": "num_iterations ppo_epochs",
    "stage.NAME.updates.minibatches": "ppo_mini_batch_size",
    "stage.NAME.mask_truncated": "mask_truncated_completions",
    "stage.NAME.dynamic.max_batches": "max_num_gen_batches",
    "stage.NAME.reward": (
        "reward_funcs reward_weights custom_reward_function reward_function reward_fn reward_func "
        "reward_model"
    ),
    "stage.NAME.loss_on": "loss_scale assistant_only_loss completion_only_loss train_on_inputs",
    "stage.NAME.rendering": "template chat_template",
    "stage.NAME.adapt.rank": "lora_r lora_rank r",
    "stage.NAME.adapt.alpha": "lora_alpha",
    "stage.NAME.adapt.dropout": "lora_dropout",
    "stage.NAME.adapt.targets": "target_modules lora_target lora_target_modules",
    "stage.NAME.adapt.kind": (
        "train_type use_peft use_lora tuner_type sft_type finetuning_type adapter"
    ),
    "stage.NAME.validation": "val_dataset eval_dataset val_files val_data",
    "stage.NAME.validation_every": "eval_steps eval_freq test_freq",
    "stage.NAME.adapt": "lora peft peft_config lora_config",
    "stage.NAME.adapt.rslora": "use_rslora",
    "stage.NAME.adapt.dora": "use_dora",
    "stage.NAME.pack_tokens": "packing sample_packing",
    "stage.NAME.method": "rlhf_type",
    "stage.NAME.dynamic": "dynamic_sample filter_groups",
    "stage.NAME.overlong": "overlong_buffer",
    "evaluate.NAME.sampling.max_tokens": "max_new_tokens max_gen_toks max_response_len",
    "evaluate.NAME.sampling.temperature": "temperature",
    "evaluate.NAME.sampling.top_p": "top_p",
    "evaluate.NAME.sampling.top_k": "top_k",
    "evaluate.NAME.sampling.stop": "stop_strings",
    "evaluate.NAME.checkpoints": "val_before_train",
    "evaluate.NAME.take.rows": (
        "first limit num_samples max_train_samples train_max_samples val_max_samples"
    ),
    "evaluate.NAME.repeats": "num_return_sequences group_size rollout_n n_samples_per_prompt",
    "evaluate.NAME.benchmark": "tasks",
}
"""Dotted key here -> the keys of other trainers for it. Of a verl key such as
`actor_rollout_ref.rollout.n` the last part counts."""
KEYS: dict[str, tuple[str, ...]] = {}
"""Their key -> the dotted keys here, the first that the table has being meant."""
for _dotted, _names in OTHER_NAMES.items():
    for _theirs in _names.split():
        KEYS[_theirs] = (*KEYS.get(_theirs, ()), _dotted)
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
        names = list(_tables_of(parts[0], path, raw))
        parts[1] = names[0] if len(names) == 1 else "NAME"
    return tuple(parts)


def _tables_of(table: str | int, path: KeyPath, raw: Mapping[str, Any]) -> Iterator[str]:
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
