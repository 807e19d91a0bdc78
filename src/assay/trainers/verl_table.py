"""What Assay's settings are called in verl 0.9.1 (`ppo_trainer`, composed by Hydra).

Read from the package's configuration and code, and held by tests that compose and train with them.
"""

from collections.abc import Mapping
from typing import Any

from assay.trainers.grpo_parts import ADVANTAGE_ROWS, DROPPED_ROW, other_estimator, other_kl
from assay.trainers.settings import Settings, at_start
from assay.trainers.transformers_rows import (
    ADAPTIVE_KL,
    GUARDS,
    MOVING_HIGH,
    MOVING_KL,
    MOVING_LOW,
    MOVING_TEMPERATURE,
    OTHER_REFERENCE,
    REWARD,
    STORED,
    TEMPLATE,
    is_frozen,
    keep_special,
)
from assay.trainers.translation import FLOAT32, Row, Unlike, always, fixed
from assay.trainers.verl_keys import ACTOR, GATED, IDLE, MODEL, OFF, OPTIM, ROLLOUT

NO_DUAL = 1e9
"""verl's dual clip cannot be left out, and a ratio is never so large."""

ESTIMATORS = {
    "grpo": ("grpo", True),
    "mean_only": ("grpo", False),
    "rloo": ("rloo", True),
    "reinforce_pp": ("reinforce_plus_plus", True),
    "reinforce_pp_baseline": ("reinforce_plus_plus_baseline", True),
    "opo": ("opo", True),
}
"""Assay's estimator to `adv_estimator` and `norm_adv_by_std_in_grpo`."""
LOSSES = {"ppo_clip": "vanilla", "gspo": "gspo", "cispo": "cispo", "sapo": "sapo"}
KL = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}


def estimator(settings: Settings) -> Mapping[str, Any]:
    """The advantage's keys; grpo's where nothing corresponds."""
    name, by_std = ESTIMATORS.get(settings.algorithm.advantage, ("grpo", True))
    return {"algorithm.adv_estimator": name, "algorithm.norm_adv_by_std_in_grpo": by_std}


def penalty(settings: Settings) -> Mapping[str, Any]:
    """KL in the loss or in the reward."""
    kl = settings.grpo.kl
    coef, kind = at_start(kl.coef), KL.get(kl.estimator, "low_var_kl")
    in_loss, in_reward = bool(coef) and kl.where == "loss", bool(coef) and kl.where == "reward"
    return {
        f"{ACTOR}.use_kl_loss": in_loss,
        f"{ACTOR}.kl_loss_coef": coef if in_loss else 0.0,
        f"{ACTOR}.kl_loss_type": kind,
        "algorithm.use_kl_in_reward": in_reward,
        "algorithm.kl_ctrl.kl_coef": coef if in_reward else 0.0,
        "algorithm.kl_penalty": kind,
    }


def clip(settings: Settings) -> Mapping[str, Any]:
    """The bounds of the ratio; a cispo weight is bounded alike."""
    own = settings.algorithm
    return {
        f"{ACTOR}.clip_ratio": own.high,
        f"{ACTOR}.clip_ratio_low": own.low,
        f"{ACTOR}.clip_ratio_high": own.high,
        f"{ACTOR}.clip_ratio_c": NO_DUAL if own.dual is None else own.dual,
    }


def adapter(settings: Settings) -> Mapping[str, Any]:
    """LoRA, by verl's names."""
    lora = settings.lora
    if lora is None:
        return {f"{MODEL}.lora_rank": 0}
    whole = lora.targets == ("all-linear",)
    return {
        f"{MODEL}.lora_rank": lora.rank,
        f"{MODEL}.lora_alpha": lora.alpha,
        f"{MODEL}.target_modules": "all-linear" if whole else list(lora.targets),
    }


def correction(settings: Settings) -> Mapping[str, Any]:
    """Weights of the gap between rollout and training."""
    own = settings.importance
    mode = own.mode if own.how == "truncate" else None
    place = "algorithm.rollout_correction"
    return {f"{place}.rollout_is": mode, f"{place}.rollout_is_threshold": own.high}


def optimizer_class(settings: Settings) -> Mapping[str, Any]:
    """The optimizer's class and where it is from."""
    if settings.stage.optimizer.name == "adamw":
        return {f"{OPTIM}.optimizer": "AdamW", f"{OPTIM}.optimizer_impl": "torch.optim"}
    return {f"{OPTIM}.optimizer": "AdamW8bit", f"{OPTIM}.optimizer_impl": "bitsandbytes.optim"}


def rate(settings: Settings) -> Mapping[str, Any]:
    """The schedule, as constant or cosine."""
    optimizer = settings.stage.optimizer
    cosine = optimizer.schedule == "cosine"
    return {
        f"{OPTIM}.lr_scheduler_type": "cosine" if cosine else "constant",
        f"{OPTIM}.min_lr_ratio": (optimizer.min_lr or 0.0) / optimizer.lr,
        f"{OPTIM}.total_training_steps": settings.rounds,
    }


def lora_of(settings: Settings, key: str) -> bool:
    """Whether an adapter has a setting."""
    return settings.lora is not None and bool(getattr(settings.lora, key))


OPTIMIZER: tuple[Row, ...] = (
    Row(
        "optimizer.name",
        f"{OPTIM}.optimizer, .optimizer_impl",
        "adamw: AdamW of torch.optim; adamw8bit: AdamW8bit of bitsandbytes.optim",
        optimizer_class,
    ),
    Row("optimizer.lr", f"{OPTIM}.lr", "as it is", lambda s: {f"{OPTIM}.lr": s.stage.optimizer.lr}),
    Row(
        "optimizer.weight_decay",
        f"{OPTIM}.weight_decay",
        "as it is",
        lambda s: {f"{OPTIM}.weight_decay": s.stage.optimizer.weight_decay},
        (
            Unlike(
                "decays norms and biases too, where Assay decays matrices alone",
                lambda s: s.stage.optimizer.weight_decay > 0,
            ),
        ),
    ),
    Row(
        "optimizer.betas",
        f"{OPTIM}.betas",
        "as they are",
        lambda s: {f"{OPTIM}.betas": list(s.stage.optimizer.betas)},
    ),
    Row(
        "optimizer.schedule",
        f"{OPTIM}.lr_scheduler_type, .total_training_steps",
        "constant or cosine; moves once a round, as in Assay",
        rate,
        (
            Unlike(
                "has no linear schedule",
                lambda s: s.stage.optimizer.schedule == "linear",
                refused=True,
            ),
        ),
    ),
    Row("optimizer.min_lr", f"{OPTIM}.min_lr_ratio", "over the peak rate"),
    Row(
        "optimizer.warmup",
        f"{OPTIM}.lr_warmup_steps",
        "round(steps x share)",
        lambda s: {f"{OPTIM}.lr_warmup_steps": round(s.rounds * s.stage.optimizer.warmup)},
        (
            Unlike(
                "begins the warm-up at a rate of 0, so that each rate of it comes a round later",
                lambda s: s.warmup > 0,
            ),
        ),
    ),
    Row(
        "optimizer.clip_norm",
        f"{ACTOR}.grad_clip, {OPTIM}.clip_grad",
        "as it is",
        lambda s: {
            f"{ACTOR}.grad_clip": s.stage.optimizer.clip_norm,
            f"{OPTIM}.clip_grad": s.stage.optimizer.clip_norm,
        },
    ),
)

ADAPT: tuple[Row, ...] = (
    Row(
        "adapt.kind",
        f"{MODEL}.lora_rank",
        "full: 0",
        adapter,
        (Unlike("freezes no weights by their names", is_frozen, refused=True),),
    ),
    Row("adapt.rank", f"{MODEL}.lora_rank", "as it is"),
    Row("adapt.alpha", f"{MODEL}.lora_alpha", "as it is"),
    Row("adapt.targets", f"{MODEL}.target_modules", "as they are"),
    *(
        Row(
            f"adapt.{key}",
            unlike=(
                Unlike(
                    f"trains no adapter with {key}", lambda s, k=key: lora_of(s, k), refused=True
                ),
            ),
        )
        for key in ("rslora", "dora", "dropout")
    ),
    Row("adapt.patterns", "", "see adapt.kind"),
)

GRPO: tuple[Row, ...] = (
    Row("(without effect)", idle=IDLE, gated=GATED),
    fixed(OFF),
    *OPTIMIZER,
    *ADAPT,
    *STORED,
    *REWARD,
    *GUARDS,
    ADAPTIVE_KL,
    *ADVANTAGE_ROWS,
    *TEMPLATE,
    keep_special(),
    Row("method", "", "chooses the command"),
    Row("start", "", "the model of the export: the hub's name of it, or the folder `model`"),
    Row(
        "data",
        "data.train_files, data.shuffle, data.max_prompt_length",
        "the rows in the order of Assay's visits, not shuffled again; the length is the data set's "
        "max_prompt_tokens, else the longest prompt's",
        lambda s: {
            "data.train_files": "data/train.parquet",
            "data.val_files": "data/train.parquet",
            "data.shuffle": False,
            "data.seed": s.seed,
            "data.max_prompt_length": s.longest_prompt,
            f"{ROLLOUT}.prompt_length": s.longest_prompt,
            "data.truncation": "error",
        },
    ),
    Row(
        "steps",
        "trainer.total_training_steps",
        "as they are: a step is a round in verl too",
        lambda s: {"trainer.total_training_steps": s.rounds, "trainer.total_epochs": 1},
    ),
    Row("epochs", "trainer.total_training_steps", "the steps that the epochs come to"),
    Row(
        "checkpoint_every",
        "trainer.save_freq",
        "in steps; omitted: after the last",
        lambda s: {"trainer.save_freq": s.every(s.stage.checkpoint_every)},
    ),
    Row(
        "validation",
        unlike=(
            Unlike(
                "measures no loss on held-out answers",
                lambda s: s.stage.validation is not None,
                refused=True,
            ),
        ),
    ),
    Row("validation_every", "", "see validation"),
    Row(
        "micro_tokens",
        f"{ACTOR}.ppo_max_token_len_per_gpu, .use_dynamic_bsz",
        "as it is, or the longest sequence where that is longer",
        lambda s: {
            f"{ACTOR}.use_dynamic_bsz": True,
            f"{ACTOR}.ppo_max_token_len_per_gpu": max(s.stage.micro_tokens, s.longest),
        },
    ),
    Row(
        "max_skipped_steps",
        "",
        "an update with a gradient that is not finite is skipped in verl",
        unlike=(Unlike("goes on however many updates are skipped", always),),
    ),
    Row(
        "max_abstained_share",
        unlike=(Unlike("knows no abstention: the first stops the run", always),),
    ),
    Row(
        "prompts",
        "data.train_batch_size",
        "prompts, not completions, as in Assay",
        lambda s: {"data.train_batch_size": s.grpo.prompts},
    ),
    Row("group", f"{ROLLOUT}.n", "as it is", lambda s: {f"{ROLLOUT}.n": s.grpo.group}),
    Row("algorithm", "", "its advantage, loss, aggregation and clip are translated"),
    Row(
        "advantage",
        "algorithm.adv_estimator, .norm_adv_by_std_in_grpo",
        "; ".join(
            f"{own}: {name}" + ("" if by_std else ", not divided by the deviation")
            for own, (name, by_std) in ESTIMATORS.items()
        ),
        estimator,
        (Unlike("has no such advantage estimator", other_estimator(*ESTIMATORS), refused=True),),
    ),
    Row(
        "advantage_options.epsilon",
        "",
        "fixed at 1e-6, Assay's default",
        unlike=(
            Unlike(
                "adds 1e-06 to the deviation of a group",
                lambda s: s.algorithm.advantage == "grpo" and s.algorithm.options.epsilon != 1e-6,
            ),
        ),
    ),
    Row(
        "loss",
        f"{ACTOR}.policy_loss.loss_mode",
        "; ".join(f"{own}: {name}" for own, name in LOSSES.items()),
        lambda s: {f"{ACTOR}.policy_loss.loss_mode": LOSSES.get(s.algorithm.loss, "vanilla")},
        (Unlike("has no such loss", lambda s: s.algorithm.loss not in LOSSES, refused=True),),
    ),
    Row(
        "aggregation",
        f"{ACTOR}.loss_agg_mode, .loss_scale_factor",
        "with hyphens; seq_mean_token_sum_norm divides by sampling.max_tokens and the episodes",
        lambda s: {
            f"{ACTOR}.loss_agg_mode": s.algorithm.aggregation.replace("_", "-"),
            f"{ACTOR}.loss_scale_factor": s.grpo.sampling.max_tokens
            if s.algorithm.aggregation == "seq_mean_token_sum_norm"
            else None,
        },
    ),
    Row(
        "clip.low",
        f"{ACTOR}.clip_ratio_low",
        "as it is",
        clip,
        (MOVING_LOW,),
    ),
    Row("clip.high", f"{ACTOR}.clip_ratio_high", "as it is", unlike=(MOVING_HIGH,)),
    Row("clip.dual", f"{ACTOR}.clip_ratio_c", f"omitted: {NO_DUAL:g}, which never acts"),
    Row(
        "clip.tau_positive",
        f"{ACTOR}.tau_pos",
        "omitted: 1",
        lambda s: {f"{ACTOR}.tau_pos": s.grpo.clip.tau_positive or 1.0},
    ),
    Row(
        "clip.tau_negative",
        f"{ACTOR}.tau_neg",
        "omitted: 1.05",
        lambda s: {f"{ACTOR}.tau_neg": s.grpo.clip.tau_negative or 1.05},
    ),
    Row(
        "kl.coef",
        f"{ACTOR}.use_kl_loss, .kl_loss_coef; algorithm.use_kl_in_reward, .kl_ctrl.kl_coef",
        "by kl.where",
        penalty,
        (MOVING_KL,),
    ),
    Row(
        "kl.estimator",
        f"{ACTOR}.kl_loss_type, algorithm.kl_penalty",
        "; ".join(f"{own}: {name}" for own, name in KL.items()),
        unlike=(Unlike("has no such estimate of KL", other_kl(*KL), refused=True),),
    ),
    Row("kl.where", f"{ACTOR}.use_kl_loss, algorithm.use_kl_in_reward", "one of them is true"),
    Row("kl.reference", "", "the model of the export", unlike=(OTHER_REFERENCE,)),
    Row(
        "updates.minibatches",
        f"{ACTOR}.ppo_mini_batch_size",
        "prompts / minibatches",
        lambda s: {
            f"{ACTOR}.ppo_mini_batch_size": s.grpo.prompts // s.grpo.updates.minibatches,
            "trainer.balance_batch": s.grpo.updates.minibatches == 1,
        },
        (
            Unlike(
                "takes minibatches of equal size alone",
                lambda s: s.grpo.prompts % s.grpo.updates.minibatches != 0,
                refused=True,
            ),
        ),
    ),
    Row(
        "updates.epochs",
        f"{ACTOR}.ppo_epochs, .shuffle",
        "as it is, in the same order",
        lambda s: {f"{ACTOR}.ppo_epochs": s.grpo.updates.epochs, f"{ACTOR}.shuffle": False},
    ),
    DROPPED_ROW,
    Row(
        "dynamic",
        unlike=(
            Unlike(
                "resamples groups in another order, and by its own limit",
                lambda s: s.grpo.dynamic is not None,
                refused=True,
            ),
        ),
    ),
    Row(
        "mask_truncated",
        unlike=(
            Unlike("masks no truncated answers", lambda s: s.grpo.mask_truncated, refused=True),
        ),
    ),
    Row(
        "entropy_coef",
        f"{ACTOR}.entropy_coeff",
        "as it is",
        lambda s: {f"{ACTOR}.entropy_coeff": s.grpo.entropy_coef},
    ),
    Row(
        "top_entropy_share",
        unlike=(
            Unlike(
                "learns at all tokens",
                lambda s: s.grpo.top_entropy_share is not None,
                refused=True,
            ),
        ),
    ),
    Row(
        "importance",
        "algorithm.rollout_correction.rollout_is, .rollout_is_threshold",
        "truncate: token or sequence, at the upper bound; off: none",
        correction,
        (
            Unlike(
                "has no such correction of the rollout gap",
                lambda s: s.importance.how == "mask" or s.importance.low is not None,
                refused=True,
            ),
        ),
    ),
    Row(
        "sampling.temperature",
        f"{ROLLOUT}.temperature",
        "as it is; divides the logits of the loss too, as in Assay",
        lambda s: {f"{ROLLOUT}.temperature": at_start(s.grpo.sampling.temperature)},
        (MOVING_TEMPERATURE,),
    ),
    Row(
        "sampling.top_p",
        f"{ROLLOUT}.top_p",
        "as it is",
        lambda s: {f"{ROLLOUT}.top_p": s.grpo.sampling.top_p},
    ),
    Row(
        "sampling.top_k",
        f"{ROLLOUT}.top_k",
        "0: -1",
        lambda s: {f"{ROLLOUT}.top_k": s.grpo.sampling.top_k or -1},
    ),
    Row(
        "sampling.min_p",
        unlike=(Unlike("has no min_p", lambda s: bool(s.grpo.sampling.min_p), refused=True),),
    ),
    Row(
        "sampling.stop",
        unlike=(
            Unlike(
                "ends answers at the end token alone",
                lambda s: s.grpo.sampling.stop is not None,
                refused=True,
            ),
        ),
    ),
    Row(
        "sampling.max_tokens",
        "data.max_response_length",
        "as it is",
        lambda s: dict.fromkeys(
            ("data.max_response_length", f"{ROLLOUT}.response_length"), s.grpo.sampling.max_tokens
        ),
    ),
    Row(
        "(files)",
        f"{MODEL}.path, reward.reward_manager",
        "the folder's own",
        lambda s: {
            f"{MODEL}.path": s.model,
            "reward.reward_manager.source": "importlib",
            "reward.reward_manager.name": "AssayRewardManager",
            "reward.reward_manager.module.path": "verl_reward.py",
        },
    ),
    Row(
        "(number formats)",
        f"{ACTOR}.fsdp_config.model_dtype, .mixed_precision.param_dtype",
        "weights in float32, passes in bfloat16; run.sh sets float32 where it finds no GPU (FSDP "
        "does not read verl's own key dtype)",
        lambda s: {
            f"{ACTOR}.fsdp_config.model_dtype": "fp32",
            f"{ACTOR}.fsdp_config.mixed_precision.param_dtype": "bf16",
        },
        unlike=(FLOAT32,),
    ),
    Row(
        "(log)",
        "trainer.logger, .rollout_data_dir",
        "console, output/metrics.jsonl and output/rollouts",
        lambda s: {
            "trainer.logger": ["console", "file"],
            "trainer.rollout_data_dir": "output/rollouts",
            "trainer.default_local_dir": "output",
            "trainer.val_before_train": False,
            "trainer.test_freq": -1,
            "trainer.project_name": "assay",
            "trainer.experiment_name": s.name,
        },
    ),
    Row(
        "(seed)",
        "actor_rollout_ref.rollout.seed, actor.data_loader_seed",
        "the experiment's",
        lambda s: {f"{ROLLOUT}.seed": s.seed, f"{ACTOR}.data_loader_seed": s.seed},
    ),
    Row(
        "(rollout engine)",
        f"{ROLLOUT}.name",
        "vllm; run.sh takes hf where it finds no GPU",
        lambda s: {f"{ROLLOUT}.name": "vllm", f"{ROLLOUT}.tensor_model_parallel_size": 1},
    ),
)
