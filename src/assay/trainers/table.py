"""Reads settings.toml, the description of every setting for every tool, and has what is no data of
it: how values are converted both ways where they are not written as they are, and when a tool does
something else.

Functions are found by `TOOL KEY`, where the tool is `hf` for TRL and ms-swift, or by the key.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from assay.experiment.training_settings import FreezeAdapt
from assay.rl.advantages import ADVANTAGES, may_drop
from assay.trainers.settings import Settings, ToolCell, ToolTable, Unlike, Values, at_start, moves

A, ACTOR, ROLLOUT, MODEL = (
    "actor_rollout_ref",
    *(f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model")),
)
OPTIM = f"{ACTOR}.optim"
IN_LOSS, IN_REWARD = f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"
CORRECTION = "algorithm.rollout_correction.rollout_is"
COMMON = "optimizer length skipped template recorded adapt special micro files fixed"
ORDER = {
    "hf sft": f"{COMMON} sft",
    "hf grpo": f"{COMMON} groups validation abstained grpo rewards",
    "verl grpo": "optimizer adapt groups template special length validation micro skipped "
    "abstained grpo verl",
}
"""The parts of settings.toml in the order in which exports write them; `fixed` are the keys of one
method that are fixed."""


def updates_of(config: Values) -> int:
    """Optimizer steps of a round; 1 where the configuration does not tell."""
    try:
        return minibatches(config) * config["num_iterations"]
    except (KeyError, TypeError, ZeroDivisionError):
        return 1


def minibatches(config: Values) -> int:
    """Optimizer steps of one pass over a round's completions."""
    return config["steps_per_generation"] // config["gradient_accumulation_steps"]


SHAPES = {"constant": "constant_with_warmup", "cosine": "cosine_with_min_lr"}
SHAPES |= {"linear": "polynomial"}


def shape(settings: Settings) -> tuple[str, Values | None]:
    """The schedule of the learning rate, by Transformers' names."""
    optimizer = settings.stage.optimizer
    least = optimizer.min_lr or 0.0
    more = {"cosine": {"min_lr": least}, "linear": {"lr_end": least, "power": 1.0}}
    return SHAPES[optimizer.schedule], more.get(optimizer.schedule)


def least_rate(config: Values) -> float | None:
    """Where the schedule ends; None where that is 0."""
    kwargs = config.get("lr_scheduler_kwargs") or {}
    return kwargs.get("min_lr", kwargs.get("lr_end")) or None


def rate(settings: Settings) -> tuple[str, float, int]:
    """The schedule by verl's names, its end over the peak, and its steps."""
    optimizer = settings.stage.optimizer
    kind = "cosine" if optimizer.schedule == "cosine" else "constant"
    return kind, (optimizer.min_lr or 0.0) / optimizer.lr, settings.rounds


def by_update(settings: Settings) -> bool:
    """Whether a rate that moves does so inside a round."""
    optimizer = settings.stage.optimizer
    return settings.updates > 1 and (optimizer.schedule != "constant" or optimizer.warmup > 0)


def measuring(settings: Settings) -> Values:
    """When the loss on held-out rows is measured."""
    if settings.stage.validation is None:
        return {}
    every = settings.every(settings.stage.validation_every) * settings.updates
    return {"eval_strategy": "steps", "eval_steps": every, "per_device_eval_batch_size": 1}


def adapter(full: Values, lora: Values, names: str, settings: Settings) -> Values:
    """Full training, or the adapter; `names` are its own and the tool's keys in turn."""
    own = settings.lora
    if own is None:
        return full
    values = {
        "rank": own.rank,
        "alpha": own.alpha,
        "whole alpha": int(own.alpha),
        "dropout": own.dropout or 0.0,
        "targets": [*own.targets],
        "target": "all-linear" if own.targets == ("all-linear",) else [*own.targets],
    }
    pairs = (each.split(": ") for each in names.split(", "))
    return {**lora, **{theirs: values[key] for key, theirs in pairs}}


def packed(settings: Settings) -> Values:
    """ms-swift's packs, which need an attention that keeps their rows apart."""
    most = settings.sft.pack_tokens
    if most is None:
        apart = {"packing": False, "packing_length": None, "packing_strategy": "binpack"}
        return {**apart, "max_length": settings.longest + 16, "attn_impl": "sdpa"}
    lengths = {"packing_length": most, "max_length": most}
    return {"packing": True, "packing_strategy": "binpack", **lengths, "attn_impl": "flash_attn"}


NEUTRAL = {"ddof": 1, "lone": "zero", "scale_by_std": True, "gamma": 1.0, "f_norm": 1.0}
OPTIONS = (*NEUTRAL, "least_std", "limit", "egpo_lambda", "egpo_alpha")
"""Numbers of the estimator that tools do not take, and values of them that change nothing where
there is no such option."""


def option_acts(option: str, settings: Settings) -> bool:
    """Whether such a number changes the advantages."""
    told = settings.value(f"advantage_options.{option}")
    return settings.algorithm.advantage in ADVANTAGES and told not in (None, NEUTRAL.get(option))


def has_limits(settings: Settings) -> bool:
    """Whether the preset's estimator has numbers of its own."""
    own = settings.algorithm.advantage_options
    plain = own.least_std == 0 and own.limit == float("inf")
    return settings.grpo.advantage_options is None and not plain


def other_epsilon(epsilon: float, settings: Settings) -> bool:
    """Whether something else is added to the deviation of a group."""
    own = settings.algorithm
    return own.advantage == "grpo" and own.advantage_options.epsilon != epsilon


Losses = Mapping[tuple[str, str], tuple[str, str]]
TRL_LOSSES: Losses = {
    ("ppo_clip", "seq_mean_token_mean"): ("token", "grpo"),
    ("ppo_clip", "token_mean"): ("token", "dapo"),
    ("ppo_clip", "seq_mean_token_sum"): ("token", "luspo"),
    ("ppo_clip", "seq_mean_token_sum_norm"): ("token", "dr_grpo"),
    ("gspo", "seq_mean_token_mean"): ("sequence", "grpo"),
    ("cispo", "token_mean"): ("token", "cispo"),
    ("sapo", "seq_mean_token_mean"): ("token", "sapo"),
}
"""Loss and aggregation, whose pair chooses `importance_sampling_level` and `loss_type`."""
SWIFT_LOSSES: Losses = {
    **{own: theirs for own, theirs in TRL_LOSSES.items() if theirs[1] != "luspo"},
    ("gspo", "seq_mean_token_mean"): ("sequence_token", "grpo"),
}


def chosen_loss(losses: Losses, settings: Settings) -> tuple[str, str] | None:
    """What a stage's pair is called there."""
    return losses.get((settings.algorithm.loss, settings.algorithm.aggregation))


def loss_of(losses: Losses, part: int, config: Values) -> str:
    """The loss (0) or the aggregation (1)."""
    told = config["importance_sampling_level"], config["loss_type"]
    return {theirs: own for own, theirs in losses.items()}[told][part]


KL = {"k3": "low_var_kl", "k1": "kl", "k2": "mse"}


def penalty(settings: Settings) -> tuple[bool, float, str, bool, float, str]:
    """KL in verl's loss or in its reward."""
    kl = settings.grpo.kl
    coef, kind = at_start(kl.coef), KL.get(kl.estimator, KL["k3"])
    in_loss, in_reward = bool(coef) and kl.where == "loss", bool(coef) and kl.where == "reward"
    return in_loss, coef if in_loss else 0.0, kind, in_reward, coef if in_reward else 0.0, kind


def verl_kl(config: Values) -> float:
    """The coefficient of the one KL that acts."""
    if config[IN_LOSS]:
        return config[f"{ACTOR}.kl_loss_coef"]
    return config["algorithm.kl_ctrl.kl_coef"] if config[IN_REWARD] else 0.0


def verl_estimator(config: Values) -> str:
    """The estimator of the KL that acts; Assay's default where none does."""
    if not config[IN_LOSS] and not config[IN_REWARD]:
        return "k3"
    told = config[f"{ACTOR}.kl_loss_type" if config[IN_LOSS] else "algorithm.kl_penalty"]
    return {theirs: own for own, theirs in KL.items()}[told]


def other_kl(known: Iterable[str], settings: Settings) -> bool:
    """Whether there is KL, estimated otherwise."""
    return bool(settings.grpo.kl.coef) and settings.grpo.kl.estimator not in known


def drops(settings: Settings) -> bool:
    """Whether the stage leaves groups without signal out."""
    stage = settings.grpo
    if stage.drop_without_signal != "auto":
        return stage.drop_without_signal
    kl = stage.kl.coef
    return may_drop(
        advantage=settings.algorithm.advantage,
        kl_coef=kl if isinstance(kl, float | int) else max(kl.start, kl.end or 0.0),
        entropy_coef=stage.entropy_coef,
        lone=settings.algorithm.advantage_options.lone,
    )


def importance_mode(settings: Settings) -> str:
    """The correction as `token_truncate`, `sequence_mask` and the like."""
    own = settings.importance
    return f"{own.mode}_{'mask' if own.how == 'mask' else 'truncate'}"


def verl_importance(config: Values) -> Values:
    """The correction of the gap between rollout and training."""
    mode, high = config[CORRECTION], config[f"{CORRECTION}_threshold"]
    return {"how": "off"} if mode is None else {"mode": mode, "high": high}


VALUES: Mapping[str, Callable[[Settings], Any]] = {
    "hf optimizer.schedule": shape,
    "verl optimizer.schedule": rate,
    "hf optimizer.warmup": lambda s: s.warmup,
    "verl optimizer.warmup": lambda s: round(s.rounds * s.stage.optimizer.warmup),
    "verl data": lambda s: (
        *("data/train.parquet", "data/train.parquet", False, s.seed),
        *(s.longest_prompt, s.longest_prompt, "error"),
    ),
    "hf steps": lambda s: s.rounds * s.updates,
    "verl steps": lambda s: (s.rounds, 1),
    "hf checkpoint_every": lambda s: ("steps", s.every(s.stage.checkpoint_every) * s.updates),
    "verl checkpoint_every": lambda s: s.every(s.stage.checkpoint_every),
    "hf validation_every": measuring,
    "(seed)": lambda s: s.seed,
    "(data seed)": lambda s: s.seed,
    "(model)": lambda s: s.model,
    "(name)": lambda s: s.name,
    "(template)": lambda s: {**(s.template or {}), "add_non_thinking_prefix": False},
    "trl adapt.kind": partial(
        adapter,
        {"use_peft": False},
        {"use_peft": True},
        "rank: lora_r, whole alpha: lora_alpha, dropout: lora_dropout, "
        "targets: lora_target_modules",
    ),
    "swift adapt.kind": partial(
        adapter,
        {"tuner_type": "full"},
        {"tuner_type": "lora"},
        "rank: lora_rank, alpha: lora_alpha, dropout: lora_dropout, targets: target_modules",
    ),
    "verl adapt.kind": partial(
        adapter,
        {f"{MODEL}.lora_rank": 0},
        {},
        f"rank: {MODEL}.lora_rank, alpha: {MODEL}.lora_alpha, target: {MODEL}.target_modules",
    ),
    "hf micro_tokens": lambda s: (s.together, s.batch // s.together),
    "verl micro_tokens": lambda s: (True, max(s.stage.micro_tokens, s.longest)),
    "swift pack_tokens": packed,
    "trl validation": lambda s: {"dataset_test_split": "test"} if s.stage.validation else {},
    "swift validation": lambda s: (
        {"val_dataset": ["data/test.jsonl"]} if s.stage.validation else {}
    ),
    "trl loss": lambda s: chosen_loss(TRL_LOSSES, s) or ("token", "grpo"),
    "swift loss": lambda s: chosen_loss(SWIFT_LOSSES, s) or ("token", "grpo"),
    "verl aggregation": lambda s: (
        s.algorithm.aggregation.replace("_", "-"),
        s.grpo.sampling.max_tokens
        if s.algorithm.aggregation == "seq_mean_token_sum_norm"
        else None,
    ),
    "verl clip.low": lambda s: (s.algorithm.clip.high, s.algorithm.clip.low),
    "hf clip.high": lambda s: s.algorithm.clip.high + (s.algorithm.loss == "cispo"),
    "hf kl.coef": lambda s: 0.0 if s.grpo.kl.where == "reward" else at_start(s.grpo.kl.coef),
    "verl kl.coef": penalty,
    "hf updates.minibatches": lambda s: s.grpo.updates.minibatches * (s.batch // s.together),
    "verl updates.minibatches": lambda s: (
        s.grpo.prompts // s.grpo.updates.minibatches,
        s.grpo.updates.minibatches == 1,
    ),
    "verl updates.epochs": lambda s: (s.grpo.updates.epochs, False),
    "swift dynamic": lambda s: (
        (True, max(s.grpo.dynamic.max_batches - 1, 1)) if s.grpo.dynamic else (False, 3)
    ),
    "trl importance": lambda s: (
        s.importance.how != "off",
        importance_mode(s),
        s.importance.low,
        s.importance.high,
    ),
    "swift importance": lambda s: (
        None if s.importance.how == "off" else importance_mode(s),
        s.importance.high,
    ),
    "verl importance": lambda s: (
        s.importance.mode if s.importance.how == "truncate" else None,
        s.importance.high,
    ),
    "swift sampling.top_k": lambda s: s.grpo.sampling.top_k or -1,
    "verl sampling.top_k": lambda s: s.grpo.sampling.top_k or -1,
    "swift sampling.max_tokens": lambda s: (s.grpo.sampling.max_tokens, s.longest_prompt + 16),
}
"""What an export writes where it is not the setting's own value."""
READ: Mapping[str, Callable[[Values], Any]] = {
    "hf optimizer.betas": lambda c: (c["adam_beta1"], c["adam_beta2"]),
    "hf optimizer.schedule": lambda c: {v: k for k, v in SHAPES.items()}[c["lr_scheduler_type"]],
    "verl optimizer.schedule": lambda c: c[f"{OPTIM}.lr_scheduler_type"],
    "hf optimizer.min_lr": least_rate,
    "verl optimizer.min_lr": lambda c: (c[f"{OPTIM}.min_lr_ratio"] or 0) * c[f"{OPTIM}.lr"] or None,
    "hf optimizer.warmup": lambda c: (
        told if (told := c["warmup_steps"]) < 1 else told / c["max_steps"]
    ),
    "verl optimizer.warmup": lambda c: (
        c[f"{OPTIM}.lr_warmup_steps"] / c["trainer.total_training_steps"]
    ),
    "hf steps": lambda c: c["max_steps"] // updates_of(c),
    "verl steps": lambda c: c["trainer.total_training_steps"],
    "hf checkpoint_every": lambda c: {"steps": c["save_steps"] // updates_of(c)}[
        c["save_strategy"]
    ],
    "verl checkpoint_every": lambda c: c["trainer.save_freq"],
    "hf batch": lambda c: (
        c["per_device_train_batch_size"] * c["gradient_accumulation_steps"] * c["processes"]
    ),
    "trl pack_tokens": lambda c: {False: None}[c["packing"]],
    "swift pack_tokens": lambda c: c["packing_length"] if c["packing"] else None,
    "trl loss_on": lambda c: {True: "last"}[c["completion_only_loss"]],
    "swift loss_on": lambda c: {"default": "all"}[c["loss_scale"]],
    "hf validation": lambda c: {"no": None}[c["eval_strategy"]],
    "hf prompts": lambda c: c["generation_batch_size"] // c["num_generations"],
    "trl loss": partial(loss_of, TRL_LOSSES, 0),
    "trl aggregation": partial(loss_of, TRL_LOSSES, 1),
    "swift loss": partial(loss_of, SWIFT_LOSSES, 0),
    "swift aggregation": partial(loss_of, SWIFT_LOSSES, 1),
    "verl aggregation": lambda c: c[f"{ACTOR}.loss_agg_mode"].replace("-", "_"),
    "verl clip.low": lambda c: c[f"{ACTOR}.clip_ratio_low"],
    "hf clip.high": lambda c: c["epsilon_high"] - (c["loss_type"] == "cispo"),
    "hf clip.dual": lambda c: c.get("delta"),
    "verl clip.dual": lambda c: c[f"{ACTOR}.clip_ratio_c"],
    "hf kl.coef": lambda c: c["beta"],
    "verl kl.coef": verl_kl,
    "verl kl.estimator": verl_estimator,
    "swift kl.where": lambda c: {False: "loss"}[c["kl_in_reward"]],
    "verl kl.where": lambda c: "reward" if c[IN_REWARD] and not c[IN_LOSS] else "loss",
    "hf updates.minibatches": minibatches,
    "verl updates.minibatches": lambda c: (
        c["data.train_batch_size"] // c[f"{ACTOR}.ppo_mini_batch_size"]
    ),
    "verl updates.epochs": lambda c: c[f"{ACTOR}.ppo_epochs"],
    "swift dynamic": lambda c: {False: None}[c["dynamic_sample"]],
    "hf importance": lambda c: {False: None}[c["use_vllm"]],
    "verl importance": verl_importance,
    "swift sampling.top_k": lambda c: max(c["top_k"], 0),
    "verl sampling.top_k": lambda c: max(c[f"{ROLLOUT}.top_k"], 0),
    "swift sampling.max_tokens": lambda c: c["max_completion_length"],
}
"""How a configuration tells a setting that is not written as it is; KeyError where it does not."""
WHEN: Mapping[str, Callable[[Settings], bool]] = {
    "hf optimizer.schedule": by_update,
    "verl optimizer.schedule": lambda s: s.stage.optimizer.schedule == "linear",
    "optimizer.warmup": lambda s: s.warmup > 0,
    "adapt.kind": lambda s: isinstance(s.stage.adapt, FreezeAdapt),
    "adapt.alpha": lambda s: s.lora is not None and s.lora.alpha != int(s.lora.alpha),
    "candidates": lambda s: s.grpo.stored,
    "rewards": lambda s: s.grpo.rewards == "normalised",
    **{f"advantage_options.{each}": partial(option_acts, each) for each in OPTIONS},
    "advantage": has_limits,
    "hf advantage_options.epsilon": partial(other_epsilon, 1e-4),
    "verl advantage_options.epsilon": partial(other_epsilon, 1e-6),
    "group": lambda s: s.grpo.group < 2,
    "trl loss": lambda s: chosen_loss(TRL_LOSSES, s) is None,
    "swift loss": lambda s: chosen_loss(SWIFT_LOSSES, s) is None,
    "hf clip.low": lambda s: s.algorithm.loss == "cispo" and s.algorithm.clip.low < 1,
    "clip.low": lambda s: moves(s.grpo.clip.low),
    "clip.high": lambda s: moves(s.grpo.clip.high),
    "kl.coef": lambda s: moves(s.grpo.kl.coef),
    "sampling.temperature": lambda s: moves(s.grpo.sampling.temperature),
    "hf kl.estimator": partial(other_kl, ("k3",)),
    "verl kl.estimator": partial(other_kl, KL),
    "kl.where": lambda s: bool(s.grpo.kl.coef) and s.grpo.kl.where == "reward",
    "kl.reference": lambda s: (
        bool(s.grpo.kl.coef) and s.grpo.kl.reference == "base" and not s.from_base
    ),
    "trl updates.minibatches": lambda s: s.grpo.updates.minibatches > 1,
    "swift updates.minibatches": lambda s: (
        s.grpo.updates.minibatches > 1 and s.algorithm.aggregation == "token_mean"
    ),
    "verl updates.minibatches": lambda s: s.grpo.prompts % s.grpo.updates.minibatches != 0,
    "all drop_without_signal": drops,
    "drop_without_signal": lambda s: drops(s) and not s.algorithm.keep_dropped_in_denominator,
    "swift importance": lambda s: s.importance.low is not None,
    "verl importance": lambda s: s.importance.how == "mask" or s.importance.low is not None,
}
"""When a tool does something else, where that is not whenever the setting is set, or has a value
that the tool has no name for."""


@cache
def table(tool: str, method: str) -> ToolTable:
    """What a tool has for the stages of a method."""
    rows, keys = contents("settings"), contents("keys")
    kind = "verl" if tool == "verl" else "hf"
    tools, groups = [tool, kind, "all"], [kind, tool, f"{tool} {method}"]
    groups = groups[1:] if tool == "verl" else groups
    cells = {"(nothing else)": fixed(keys["fixed"], groups[:-1])}
    for part in ORDER[f"{kind} {method}"].split():
        if part == "fixed":
            cells[f"(nothing else in {method})"] = fixed(keys["fixed"], groups[-1:])
        for key, told in rows.get(part, {}).items():
            own = next((told[name] for name in tools if name in told), None)
            if own is not None or not key.startswith("("):
                cells[key] = cell(key, tools, own, told)
    return ToolTable(cells, *(joined(keys[each], groups) for each in ("idle", "gated")))


@cache
def contents(name: str) -> Mapping[str, Any]:
    """One of the files, in which "null" stands for none."""
    file = Path(__file__).with_name(f"{name}.toml")
    return without_nulls(tomllib.loads(file.read_text(encoding="utf-8")))


def without_nulls(value: Any) -> Any:
    """A value of TOML, which has no null."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items()}
    return None if value == "null" else value


def fixed(groups: Mapping[str, Values], names: Iterable[str]) -> ToolCell:
    """The keys that every export sets."""
    values = {key: value for name in names for key, value in groups.get(name, {}).items()}
    return ToolCell(tuple(values), "what Assay does, or does not do", value=lambda s: values)


def joined(groups: Mapping[str, Mapping[str, str]], names: Iterable[str]) -> Mapping[str, str]:
    """The keys of several groups by the reason, or by the switch."""
    parts: dict[str, str] = {}
    for name in names:
        for by, keys in groups.get(name, {}).items():
            parts[by] = f"{parts.get(by, '')} {keys}"
    return parts


def cell(key: str, tools: Iterable[str], own: str | Values | None, told: Values) -> ToolCell:
    """The cell of a row that is `told`, of which `own` is the tool's."""
    own = {"keys": own} if isinstance(own, str) else own or {}
    places = [*(f"{tool} {key}" for tool in tools), key]
    names = {k: tuple(v) if isinstance(v, list) else v for k, v in own.get("names", {}).items()}
    values, constant = first(VALUES, places), own.get("set")
    if constant is not None:
        values = lambda s: constant  # noqa: E731
    when = first(WHEN, places[:-1] if names else places)
    if names and when is None:
        when = lambda s: s.value(key) not in names  # noqa: E731
    return ToolCell(
        keys=tuple(constant or full(own.get("keys", ""))),
        how=own.get("how", told.get("how", "")) or ("fixed" if constant else ""),
        names=names or None,
        none=own.get("none"),
        value=values if own else None,
        read=first(READ, places) if own else None,
        unlike=(*unlike(told, WHEN.get(key)), *unlike(own, when)),
    )


def first(register: Mapping[str, Any], places: Iterable[str]) -> Any:
    """What is registered under the first of several names; None where nothing is."""
    return next((register[place] for place in places if place in register), None)


def full(keys: str) -> Iterator[str]:
    """Keys in full, of which one that begins with a dot has the parents of the one before it."""
    parent = ""
    for key in keys.split(", ") if keys else ():
        yield (path := parent + key if key.startswith(".") else key)
        parent = path.rpartition(".")[0]


def unlike(told: Values, when: Callable[[Settings], bool] | None) -> Iterator[Unlike]:
    """What a row, or a cell, says of differences."""
    for kind in ("lacks", "differs"):
        if kind in told:
            yield Unlike(told[kind], when, refused=kind == "lacks")
    if "always" in told:
        yield Unlike(told["always"], lambda s: True)
