"""Settings of a run that another tool made, in Assay's words: the translation tables backwards.

A key whose value a table takes over as it is is read back as it is; `READERS` has the others. What
was read back is then translated forwards again: where that gives another value than the tool's, the
setting means something that Assay has no words for, and is listed. What no key tells is unknown.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from assay.errors import InputError
from assay.experiment.stage_tables import StageSpec
from assay.trainers import swift_table, trl_table, verl_table
from assay.trainers.outputs.plain_folders import flat
from assay.trainers.scripts import nested
from assay.trainers.settings import Exported, Settings
from assay.trainers.translation import Difference, Row, listed, their_keys

Config = Mapping[str, Any]
"""A tool's configuration by its own keys, dotted where they are nested."""
Read = Callable[[Config], Any]
"""A setting's value; KeyError where the configuration does not tell it."""

ACTOR, OPTIM = verl_table.ACTOR, verl_table.OPTIM
ROLLOUT = verl_table.ROLLOUT
PROMPT = f"{ROLLOUT}.prompt_length"
IN_LOSS, IN_REWARD = f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"

LIKE = {
    "lr_scheduler_type": {
        "constant": ("constant_with_warmup", None),
        "cosine": ("cosine_with_min_lr", {"min_lr": 0.0}),
        "linear": ("polynomial", {"lr_end": 0.0, "power": 1.0}),
    },
    "optim": {
        "adamw_torch": "adamw_torch_fused",
        "adamw_hf": "adamw_torch_fused",
        "adamw_bnb_8bit": "adamw_8bit",
    },
}
"""Other names in Transformers of what exports write."""


AS_OPENED = {
    "revision": "main",
    "trust_remote_code": False,
    "attn_implementation": None,
    "dtype": "float32",
}
PASSES = "gradient_accumulation_steps"


def canonical(config: Config) -> Config:
    """A configuration of Transformers' Trainer in the words that exports write."""
    known = {key: table_of(value) for key, value in config.items()}
    kind = known.get("lr_scheduler_type")
    if kind in LIKE["lr_scheduler_type"]:
        known["lr_scheduler_type"], more = LIKE["lr_scheduler_type"][kind]
        known["lr_scheduler_kwargs"] = {**(more or {}), **(known.get("lr_scheduler_kwargs") or {})}
    if "optim" in known:
        known["optim"] = LIKE["optim"].get(known["optim"], known["optim"])
    if (known.get("max_steps") or 0) < 1:  # epochs were told, and the log counts the steps
        known.pop("max_steps", None)
    opened = known.get("model_init_kwargs") or {}
    if "model_init_kwargs" in known:  # TRL's scripts write the model's defaults there
        given = {key: value for key, value in opened.items() if AS_OPENED.get(key) != value}
        known["model_init_kwargs"] = given or None
    share = known.pop("warmup_ratio", None) or known.get("warmup_steps") or 0
    if 0 < share < 1:
        known["warmup_steps"] = (
            math.ceil(share * known["max_steps"]) if "max_steps" in known else share
        )
    if not known.get("use_vllm", True):  # what is sampled is the trainer's own
        corrected = ("vllm_importance_sampling_", "rollout_importance_sampling_")
        known = {key: value for key, value in known.items() if not key.startswith(corrected)}
    passes, each = (known.get(name) for name in (PASSES, "per_device_train_batch_size"))
    if "num_generations" in known and isinstance(passes, int) and isinstance(each, int):
        known["steps_per_generation"] = known.get("steps_per_generation") or passes
        together = each * known.get("processes", 1)
        whole = known.get("generation_batch_size") or together * known["steps_per_generation"]
        known["generation_batch_size"] = whole
    if known.get("epsilon_high") is None and "epsilon" in known:
        known["epsilon_high"] = known["epsilon"]
    return known


def table_of(value: Any) -> Any:
    """A value; of a table that a tool keeps as the text that its command was given, the table."""
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError):
            return json.loads(value)
    return value


def with_model(config: Config, model: Any) -> Config:
    """A configuration with what it takes from the model's own: the coefficient of a router's
    auxiliary loss, and what acts in training alone. `model` is Transformers' configuration."""
    known, acts = dict(config), acting_in_training(model)
    if known.get(ROUTER, 0.0) is None:
        known[ROUTER] = (
            getattr(model, ROUTER, 0.0) if hasattr(model, "output_router_logits") else 0.0
        )
    if not acts and "disable_dropout" in known:
        known["disable_dropout"] = True
    return {**known, **{f"{OF_MODEL}{key}": value for key, value in acts.items()}}


ROUTER, OF_MODEL = "router_aux_loss_coef", "config.json."


def acting_in_training(model: Any) -> dict[str, float]:
    """What a model does in training alone, by the keys of its configuration: dropout, and the noise
    of a router."""
    return {
        key: value
        for key, value in model.to_dict().items()
        if re.search("drop|jitter", key) and isinstance(value, int | float) and value
    }


def verl_canonical(config: Config) -> Config:
    """A configuration of verl without what does not act, and with what -1 stands for."""
    known = dict(config)
    steps = known.get("trainer.total_training_steps")
    if (known.get(f"{OPTIM}.total_training_steps") or -1) < 0:
        known[f"{OPTIM}.total_training_steps"] = steps
    if (known.get(f"{OPTIM}.lr_warmup_steps") or -1) < 0 and steps:
        share = known.get(f"{OPTIM}.lr_warmup_steps_ratio") or 0.0
        known[f"{OPTIM}.lr_warmup_steps"] = int(share * steps)
    known.pop(f"{OPTIM}.lr_warmup_steps_ratio", None)
    if known.get("algorithm.adv_estimator") == "gae":
        known["critic.enable"] = True
    idle = {"trainer.total_epochs"}
    if known.get(PROMPT) == known.get("data.max_prompt_length"):
        idle |= {PROMPT}
    if not steps:  # epochs were told, and the log counts the steps
        idle |= {"trainer.total_training_steps", f"{OPTIM}.total_training_steps"}
    if not known.get(IN_LOSS):
        idle |= {f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type"}
    if not known.get(IN_REWARD):
        idle |= {"algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty"}
    return {key: value for key, value in known.items() if key not in idle}


CANONICAL: Mapping[str, Callable[[Config], Config]] = {
    "trl": canonical,
    "swift": canonical,
    "verl": verl_canonical,
}
"""By tool: the configuration as exports would have written it, where that means the same."""


def updates_of(config: Config) -> int:
    """Optimizer steps of a round; 1 where the configuration does not tell."""
    try:
        return minibatches(config) * config["num_iterations"]
    except (KeyError, TypeError, ZeroDivisionError):
        return 1


def minibatches(config: Config) -> int:
    """Optimizer steps of one pass over a round's completions."""
    return config["steps_per_generation"] // config["gradient_accumulation_steps"]


def rate_shape(config: Config) -> str:
    """The schedule after the warm-up."""
    names = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}
    return {**names, "polynomial": "linear"}[config["lr_scheduler_type"]]


def least_rate(config: Config) -> float | None:
    """Where the schedule ends; None where that is 0."""
    kwargs = config.get("lr_scheduler_kwargs") or {}
    return kwargs.get("min_lr", kwargs.get("lr_end")) or None


def warmup(config: Config) -> float:
    """The share of steps over which the rate rises."""
    told = config["warmup_steps"]
    return told if told < 1 else told / config["max_steps"]


def unless(nothing: Any, *keys: str) -> Read:
    """A setting that Assay omits where the tool's has the value `nothing`, by its key in some tool
    or other."""

    def read(config: Config) -> Any:
        told = config[next((key for key in keys if key in config), keys[0])]
        return None if told == nothing else told

    return read


def always(value: Any) -> Read:
    """For what a tool knows one way of."""
    return lambda config: value


TRANSFORMERS: Mapping[str, Read] = {
    "optimizer.name": lambda c: {"adamw_torch_fused": "adamw", "adamw_8bit": "adamw8bit"}[
        c["optim"]
    ],
    "optimizer.lr": lambda c: c["learning_rate"],
    "optimizer.weight_decay": lambda c: c["weight_decay"],
    "optimizer.betas": lambda c: (c["adam_beta1"], c["adam_beta2"]),
    "optimizer.schedule": rate_shape,
    "optimizer.min_lr": least_rate,
    "optimizer.warmup": warmup,
    "optimizer.clip_norm": lambda c: c["max_grad_norm"],
    "steps": lambda c: c["max_steps"] // updates_of(c),
    "checkpoint_every": lambda c: {"steps": c["save_steps"] // updates_of(c)}[c["save_strategy"]],
}
SFT: Mapping[str, Read] = {
    "batch": lambda c: (
        c["per_device_train_batch_size"] * c["gradient_accumulation_steps"] * c["processes"]
    ),
    "validation": lambda c: {"no": None}[c["eval_strategy"]],
}
GATES: Mapping[str, Read] = {
    "clip.tau_positive": unless(1.0, "sapo_temperature_pos", "tau_pos", f"{ACTOR}.tau_pos"),
    "clip.tau_negative": unless(1.05, "sapo_temperature_neg", "tau_neg", f"{ACTOR}.tau_neg"),
}
GRPO: Mapping[str, Read] = {
    **GATES,
    "prompts": lambda c: c["generation_batch_size"] // c["num_generations"],
    "group": lambda c: c["num_generations"],
    "updates.minibatches": minibatches,
    "updates.epochs": lambda c: c["num_iterations"],
    "clip.low": lambda c: c["epsilon"],
    "clip.high": lambda c: c["epsilon_high"] - (c["loss_type"] == "cispo"),
    "clip.dual": lambda c: c.get("delta"),
    "kl.coef": lambda c: c["beta"],
    "top_entropy_share": unless(1.0, "top_entropy_quantile"),
    "importance": lambda c: {False: None}[c["use_vllm"]],
    "sampling.temperature": lambda c: c["temperature"],
    "sampling.top_p": lambda c: c["top_p"],
    "sampling.max_tokens": lambda c: c["max_completion_length"],
}
LEVEL = "importance_sampling_level"


def loss_of(losses: Mapping[tuple[str, str], Mapping[str, str]], part: int) -> Read:
    """The loss (0) or the aggregation (1) that the keys of a table's losses choose."""

    def read(config: Config) -> str:
        wanted = {"loss_type": config["loss_type"], LEVEL: config[LEVEL]}
        found = [own for own, keys in losses.items() if {LEVEL: "token", **keys} == wanted]
        return dict(enumerate(found[0] if found else ()))[part]

    return read


def swift_advantage(config: Config) -> str:
    """The estimator of ms-swift's keys."""
    told = (config["advantage_estimator"], config["scale_rewards"])
    return {theirs: own for own, theirs in swift_table.ESTIMATORS.items()}[told]


def verl_advantage(config: Config) -> str:
    """The estimator of verl's keys."""
    name, by_std = config["algorithm.adv_estimator"], config["algorithm.norm_adv_by_std_in_grpo"]
    known = {theirs: own for own, theirs in verl_table.ESTIMATORS.items()}
    return known[name, by_std if name == "grpo" else True]


def verl_kl(config: Config) -> float:
    """The coefficient of the one KL that acts."""
    if config[IN_LOSS]:
        return config[f"{ACTOR}.kl_loss_coef"]
    return config["algorithm.kl_ctrl.kl_coef"] if config[IN_REWARD] else 0.0


def verl_estimator(config: Config) -> str:
    """The estimator of the KL that acts; Assay's default where none does."""
    if not config[IN_LOSS] and not config[IN_REWARD]:
        return "k3"
    told = config[f"{ACTOR}.kl_loss_type" if config[IN_LOSS] else "algorithm.kl_penalty"]
    return {theirs: own for own, theirs in verl_table.KL.items()}[told]


def verl_importance(config: Config) -> Mapping[str, Any]:
    """The correction of the gap between rollout and training."""
    mode = config["algorithm.rollout_correction.rollout_is"]
    high = config["algorithm.rollout_correction.rollout_is_threshold"]
    return {"how": "off"} if mode is None else {"mode": mode, "high": high}


VERL: Mapping[str, Read] = {
    **GATES,
    "optimizer.name": lambda c: {"AdamW": "adamw", "AdamW8bit": "adamw8bit"}[
        c[f"{OPTIM}.optimizer"]
    ],
    "optimizer.betas": lambda c: tuple(c[f"{OPTIM}.betas"]),
    "optimizer.schedule": lambda c: c[f"{OPTIM}.lr_scheduler_type"],
    "optimizer.min_lr": lambda c: (c[f"{OPTIM}.min_lr_ratio"] or 0) * c[f"{OPTIM}.lr"] or None,
    "optimizer.warmup": lambda c: c[f"{OPTIM}.lr_warmup_steps"] / c["trainer.total_training_steps"],
    "optimizer.clip_norm": lambda c: c[f"{ACTOR}.grad_clip"],
    "steps": lambda c: c["trainer.total_training_steps"],
    "checkpoint_every": lambda c: c["trainer.save_freq"],
    "prompts": lambda c: c["data.train_batch_size"],
    "advantage": verl_advantage,
    "loss": lambda c: {theirs: own for own, theirs in verl_table.LOSSES.items()}[
        c[f"{ACTOR}.policy_loss.loss_mode"]
    ],
    "aggregation": lambda c: c[f"{ACTOR}.loss_agg_mode"].replace("-", "_"),
    "clip.dual": lambda c: c[f"{ACTOR}.clip_ratio_c"],
    "kl.coef": verl_kl,
    "kl.estimator": verl_estimator,
    "kl.where": lambda c: "reward" if c[IN_REWARD] and not c[IN_LOSS] else "loss",
    "updates.minibatches": lambda c: (
        c["data.train_batch_size"] // c[f"{ACTOR}.ppo_mini_batch_size"]
    ),
    "updates.epochs": lambda c: c[f"{ACTOR}.ppo_epochs"],
    "importance": verl_importance,
    "sampling.top_k": lambda c: max(c[f"{ROLLOUT}.top_k"], 0),
    "sampling.max_tokens": lambda c: c["data.max_response_length"],
}
READERS: Mapping[tuple[str, str], Mapping[str, Read]] = {
    ("trl", "sft"): {
        **TRANSFORMERS,
        **SFT,
        "pack_tokens": lambda c: {False: None}[c["packing"]],
        "loss_on": lambda c: {True: "last"}[c["completion_only_loss"]],
    },
    ("trl", "grpo"): {
        **TRANSFORMERS,
        **GRPO,
        "advantage": lambda c: {"group": "grpo", "none": "mean_only"}[c["scale_rewards"]],
        "loss": loss_of(trl_table.LOSSES, 0),
        "aggregation": loss_of(trl_table.LOSSES, 1),
        "kl.estimator": always("k3"),
        "kl.where": always("loss"),
    },
    ("swift", "sft"): {
        **TRANSFORMERS,
        **SFT,
        "pack_tokens": lambda c: c["packing_length"] if c["packing"] else None,
        "loss_on": lambda c: {"default": "all"}[c["loss_scale"]],
    },
    ("swift", "grpo"): {
        **TRANSFORMERS,
        **GRPO,
        "advantage": swift_advantage,
        "loss": loss_of(swift_table.LOSSES, 0),
        "aggregation": loss_of(swift_table.LOSSES, 1),
        "kl.estimator": always("k3"),
        "kl.where": lambda c: {False: "loss"}[c["kl_in_reward"]],
        "dynamic": lambda c: {False: None}[c["dynamic_sample"]],
        "sampling.top_k": lambda c: max(c["top_k"], 0),
        "sampling.min_p": unless(0.0, "min_p"),
    },
    ("verl", "grpo"): VERL,
}
"""By tool and method: what is not written as it is."""
ELSEWHERE = frozenset({"epochs", "validation_every", "micro_tokens", "data", "reward"})
ELSEWHERE |= {"reward_deadline", "reward_workers", "reward_concurrency", "overlong"}
ELSEWHERE |= {"adapt.kind", "adapt.rank", "adapt.alpha", "adapt.rslora", "adapt.dora"}
ELSEWHERE |= {"adapt.targets", "adapt.dropout"}
"""Keys of the tables that the configuration does not tell in Assay's words, or the checkpoint tells
better."""
OWN_GUARD = "max_abstained_share"
"""A row about rewards that Assay gives."""
LENGTHS = ("max_length", "data.max_prompt_length", PROMPT)
"""Keys of which an export's value fits its own rows."""


@dataclass(frozen=True)
class ReadBack:
    """A stage that a tool trained."""

    stage: Exported
    unknown: tuple[str, ...]
    """Keys that nothing tells, dotted; the table has Assay's default, or what it needs."""
    differences: tuple[Difference, ...]
    """By the tool's keys: what means something else than the stage's table."""


def read_back(
    tool: str, rows: Sequence[Row], config: Config, given: Mapping[str, Any], steps: int
) -> ReadBack:
    """A stage's settings from a tool's configuration; `given` are those known otherwise, by their
    dotted keys, and count for more. The log has so many steps."""
    told: dict[str, Any] = {"steps": steps}
    unknown = []
    for row in rows:
        if row.key in given or row.key in ELSEWHERE or not row.theirs or row.key.startswith("("):
            continue
        try:
            told[row.key] = read_one(READERS[tool, given["method"]].get(row.key), row, config)
        except KeyError:
            unknown.append(row.key)
    told |= given
    if given["method"] == "grpo":
        told.setdefault("prompts", 1)  # the one number that a stage must have
    stage, refused = stage_of(told)
    unknown = [key for key in unknown if key != "steps"] + refused
    return ReadBack(stage, tuple(unknown), tuple(unlike(tool, rows, config, stage)))


def read_one(read: Read | None, row: Row, config: Config) -> Any:
    """A setting. Raises KeyError where the configuration does not tell it, or tells another kind of
    value than the tool writes."""
    if read is None and (row.how.split(";")[0] != "as it is" or ", " in row.theirs):
        raise KeyError(row.key)
    try:
        return config[row.theirs] if read is None else read(config)
    except (TypeError, ZeroDivisionError, AttributeError) as error:
        raise KeyError(row.key) from error


STAGE: TypeAdapter[Any] = TypeAdapter(StageSpec)


def stage_of(told: Mapping[str, Any]) -> tuple[Exported, list[str]]:
    """The stage that dotted keys make, and the keys whose values Assay does not take. Raises
    InputError for values that contradict each other."""
    told, refused = dict(told), []
    while True:
        try:
            return STAGE.validate_python(nested(told)), refused
        except ValidationError as error:
            # The first part of a place is the method, which chose the kind of stage.
            places = {".".join(map(str, each["loc"][1:])) for each in error.errors()}
            wrong = [key for key in told if any(f"{p}.".startswith(f"{key}.") for p in places)]
            if not wrong:
                problem = "its settings together are no stage of Assay's"
                raise InputError(problem, fix=error.errors()[0]["msg"]) from error
            refused += wrong
            told = {key: value for key, value in told.items() if key not in wrong}


OTHER_LOSS = re.compile(
    r"(loss_type|loss_scale|is_binary_loss_scale|enable_dft_loss|label_smoothing_factor"
    r"|neftune_noise_alpha|average_tokens_across_devices|router_aux_loss_coef"
    r"|(config\.json|model_init_kwargs)\..*(drop|jitter|router).*)"
)
"""Keys that make a loss something else than the mean of -log p over the trained tokens."""


def likelihood(config: Config, differences: Sequence[Difference]) -> bool:
    """Whether the loss that an sft stage logs is the mean of -log p over the trained tokens: the
    configuration is there, and nothing in which it differs moves the loss, or may do so."""
    moved = (OTHER_LOSS.fullmatch(d.key) or d.what.endswith(UNKNOWN_KEY) for d in differences)
    return "learning_rate" in config and not any(moved)


def unlike(tool: str, rows: Sequence[Row], config: Config, stage: Exported) -> Iterator[Difference]:
    """What the tool's configuration says else than an export of the stage would, and what the
    tables say that the tool does else."""
    seed = seed if isinstance(seed := config.get("seed"), int) else 0
    settings = Settings("imported", stage, "", seed, stage.steps or 1, 1, 0, 1, True, {})
    yield from otherwise(rows, config, {k: v for r in rows for k, v in r.values(settings).items()})
    for row in rows:
        idle = row.key == OWN_GUARD or (
            row.key == "importance" and not config.get("use_vllm", True)
        )
        found = () if idle else row.unlike
        yield from (Difference(row.key, each.what) for each in found if each.when(settings))


def otherwise(rows: Sequence[Row], config: Config, written: Config) -> Iterator[Difference]:
    """The keys of a configuration that an export writes otherwise, that act though it switched them
    off, or that no table knows."""
    named = {key for row in rows for key in their_keys(row)}
    for key, value in config.items():
        if any(listed(row.idle, key) for row in rows):
            continue
        switch = next((by for row in rows if (by := listed(row.gated, key))), None)
        if key.startswith(OF_MODEL):
            yield Difference(key, f"is {value!r} in training, where Assay's model has none")
        elif key in LENGTHS and value is not None:
            yield Difference(key, f"is {value!r}: longer rows are cut or left out")
        elif key in written:
            yield from unlike_value(rows, key, value, written[key])
        elif switch is not None and not same(config.get(switch), written.get(switch)):
            yield Difference(key, f"is {value!r}, and {switch} is {config.get(switch)!r}")
        elif switch is None and key not in named and value is not None:
            yield Difference(key, f"is {value!r}, {UNKNOWN_KEY}")


def changed(tool: str, rows: Sequence[Row], config: Config, written: Config) -> list[Difference]:
    """What a folder's own settings were trained with else, by its configuration."""
    known = CANONICAL[tool](config)
    told = {key: value for key, value in known.items() if key not in (*LENGTHS, *BY_RUN)}
    return [*otherwise(rows, told, written)]


BY_RUN = (
    "bf16",
    "steps_per_generation",
    f"{ROLLOUT}.name",
    *(
        f"actor_rollout_ref.{part}.fsdp_config.mixed_precision.param_dtype"
        for part in ("actor", "ref")
    ),
)
"""What run.sh sets by the machine that it finds."""
UNKNOWN_KEY = "a key that the tables do not know"


def unlike_value(rows: Sequence[Row], key: str, value: Any, ours: Any) -> Iterator[Difference]:
    """A key whose value an export would not have written; of a table, each of its own keys."""
    if isinstance(value, Mapping) and value:
        theirs, own = flat(value), flat(ours or {})
        for inner in {**own, **theirs}:
            if not any(listed(row.idle, f"{key}.{inner}") for row in rows):
                yield from unlike_value(rows, f"{key}.{inner}", theirs.get(inner), own.get(inner))
    elif not same(value, ours):
        yield Difference(key, f"is {value!r}, where an export has {ours!r}")


def same(one: Any, other: Any) -> bool:
    """Whether a tool takes two values alike: none and nothing, numbers, names in any order."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other)
    if isinstance(one, list) and isinstance(other, list) and all(isinstance(n, str) for n in one):
        return sorted(one) == sorted(map(str, other))
    return one == other or (one in NOTHING and other in NOTHING)


NOTHING: tuple[Any, ...] = (None, "", [], {})
