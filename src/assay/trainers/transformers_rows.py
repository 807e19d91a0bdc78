"""The rows that TRL and ms-swift share: both take the arguments of Transformers' Trainer.

Read from transformers 5.19 and 5.23 (`TrainingArguments`, `get_scheduler`).
"""

from collections.abc import Mapping
from typing import Any

from assay.experiment.training_settings import FreezeAdapt
from assay.trainers.settings import Settings, moves
from assay.trainers.translation import Row, Unlike, always

NO_STOP = "has no such guard: it goes on"


def shape(settings: Settings) -> Mapping[str, Any]:
    """The schedule of the learning rate, by Transformers' names."""
    optimizer = settings.stage.optimizer
    least = optimizer.min_lr or 0.0
    if optimizer.schedule == "constant":
        return {"lr_scheduler_type": "constant_with_warmup", "lr_scheduler_kwargs": None}
    if optimizer.schedule == "cosine":
        name, more = "cosine_with_min_lr", {"min_lr": least}
    else:
        name, more = "polynomial", {"lr_end": least, "power": 1.0}
    return {"lr_scheduler_type": name, "lr_scheduler_kwargs": more}


def saving(settings: Settings) -> Mapping[str, Any]:
    """When checkpoints are written."""
    every = settings.every(settings.stage.checkpoint_every) * settings.updates
    return {"save_strategy": "steps", "save_steps": every}


def measured(settings: Settings) -> Mapping[str, Any]:
    """When the loss on held-out rows is measured."""
    if settings.stage.validation is None:
        return {}
    every = settings.every(settings.stage.validation_every) * settings.updates
    size = {"per_device_eval_batch_size": 1}
    return {"eval_strategy": "steps", "eval_steps": every, **size}


def by_update(settings: Settings) -> bool:
    """Whether a rate that moves does so inside a round."""
    optimizer = settings.stage.optimizer
    return settings.updates > 1 and (optimizer.schedule != "constant" or optimizer.warmup > 0)


EVALUATION = (
    "do_train do_eval do_predict eval_strategy eval_steps eval_delay eval_on_start "
    "per_device_eval_batch_size eval_accumulation_steps eval_do_concat_batches "
    "eval_use_gather_object prediction_loss_only include_for_metrics batch_eval_metrics "
    "metric_for_best_model greater_is_better load_best_model_at_end "
)
LOG = (
    "logging_strategy logging_steps logging_first_step log_on_each_node logging_nan_inf_filter "
    "include_num_input_tokens_seen log_level log_level_replica disable_tqdm report_to run_name "
    "project trackio_* skip_memory_metrics debug "
)
IDLE: Mapping[str, str] = {
    "where files lie": "output_dir resume_from_checkpoint local_rank",
    "the log": LOG,
    "what is measured, and of it": EVALUATION,
    "when checkpoints are saved, all of which are read": "save_* enable_jit_checkpoint "
    "restore_callback_states_from_checkpoint",
    "the hub": "push_to_hub hub_*",
    "the batch is what they come to": "per_device_train_batch_size gradient_accumulation_steps",
    "the steps are those of the log": "num_train_epochs",
    "the seed is compared by itself": "seed",
    "memory and speed of the same passes": "activation_checkpointing* gradient_checkpointing* "
    "torch_compile* use_cache torch_empty_cache_steps full_determinism",
    "how rows are brought to the passes": "dataloader_num_workers dataloader_pin_memory "
    "dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context "
    "remove_unused_columns label_names length_column_name accelerator_config.non_blocking",
    "the machine and its processes": "use_cpu ddp_* parallelism_config _n_gpu _setup_devices "
    "accelerator_config.use_configured_state distributed_state* mixed_precision "
    "fsdp_plugin_args* deepspeed_plugin* processes __cached__setup_devices",
}
"""Arguments of Transformers' Trainer without effect on what is learned."""
OFF: Mapping[str, Any] = {
    "optim_args": None,
    "optim_target_modules": None,
    "average_tokens_across_devices": True,
    "label_smoothing_factor": 0.0,
    "neftune_noise_alpha": None,
    "router_aux_loss_coef": 0.0,
    "use_liger_kernel": False,
    "liger_kernel_config": None,
    "fp16": False,
    "tf32": None,
    "bf16_full_eval": False,
    "fp16_full_eval": False,
    "auto_find_batch_size": False,
    "ignore_data_skip": False,
    "dataloader_drop_last": False,
    "dataloader_in_order": True,
    "accelerator_config": {
        "split_batches": False,
        "dispatch_batches": None,
        "even_batches": True,
        "use_seedable_sampler": True,
        "gradient_accumulation_kwargs": None,
    },
    "deepspeed": None,
    "fsdp": None,
    "fsdp_config": None,
}
"""Arguments of Transformers' Trainer that act, as they mean what Assay does."""

OPTIMIZER: tuple[Row, ...] = (
    Row(
        "optimizer.name",
        "optim",
        "adamw: adamw_torch_fused; adamw8bit: adamw_8bit",
        lambda s: {
            "optim": {"adamw": "adamw_torch_fused", "adamw8bit": "adamw_8bit"}[
                s.stage.optimizer.name
            ]
        },
    ),
    Row(
        "optimizer.lr",
        "learning_rate",
        "as it is",
        lambda s: {"learning_rate": s.stage.optimizer.lr},
    ),
    Row(
        "optimizer.weight_decay",
        "weight_decay",
        "as it is; norms and biases do not decay in either",
        lambda s: {"weight_decay": s.stage.optimizer.weight_decay},
    ),
    Row(
        "optimizer.betas",
        "adam_beta1, adam_beta2",
        "one each",
        lambda s: dict(zip(("adam_beta1", "adam_beta2"), s.stage.optimizer.betas, strict=True)),
    ),
    Row(
        "optimizer.schedule",
        "lr_scheduler_type, lr_scheduler_kwargs",
        "constant: constant_with_warmup; cosine: cosine_with_min_lr; linear: polynomial, power 1",
        shape,
        (Unlike("moves the rate with every update, Assay with every round of them", by_update),),
    ),
    Row("optimizer.min_lr", "lr_scheduler_kwargs", "min_lr of cosine, lr_end of linear; else 0"),
    Row(
        "optimizer.warmup",
        "warmup_steps",
        "round(steps x share), times updates of a round",
        lambda s: {"warmup_steps": s.warmup},
        (
            Unlike(
                "begins the warm-up at a rate of 0, so that each rate of it comes an update later",
                lambda s: s.warmup > 0,
            ),
        ),
    ),
    Row(
        "optimizer.clip_norm",
        "max_grad_norm",
        "as it is",
        lambda s: {"max_grad_norm": s.stage.optimizer.clip_norm},
    ),
    Row("(Adam's epsilon)", "adam_epsilon", "1e-8, as in Assay", lambda s: {"adam_epsilon": 1e-8}),
)

TEMPLATE: tuple[Row, ...] = (
    Row("rendering", "", "the rows are written as text that the model's own template renders so"),
    Row(
        "template_options",
        unlike=(
            Unlike(
                "would render without the options of the template",
                lambda s: s.stage.template_options is not None,
                refused=True,
            ),
        ),
    ),
    Row("other_rendering_than", "", "about evaluations, which Assay makes"),
    Row("trainer", "", "chooses the tool"),
    Row("allow", "", "what is listed as a difference where the tool has nothing for it"),
)

RUN: tuple[Row, ...] = (
    Row("method", "", "chooses the command"),
    Row("start", "", "the model of the export: the hub's name of it, or the folder `model`"),
    Row(
        "steps",
        "max_steps",
        "steps x updates of a round",
        lambda s: {"max_steps": s.rounds * s.updates},
    ),
    Row("epochs", "max_steps", "the steps that the epochs come to"),
    Row(
        "checkpoint_every",
        "save_strategy, save_steps",
        "in optimizer steps; omitted: after the last",
        saving,
    ),
    Row(
        "validation_every",
        "eval_strategy, eval_steps",
        "in optimizer steps; omitted: after the last",
        measured,
    ),
    Row(
        "max_skipped_steps",
        unlike=(Unlike("skips no update: one whose gradient is not finite is taken", always),),
    ),
    *TEMPLATE,
    Row("(seed)", "seed", "the experiment's", lambda s: {"seed": s.seed}),
    Row(
        "(log)",
        "logging_steps, logging_first_step, report_to",
        "every update, to the console and the checkpoint's trainer_state.json",
        lambda s: {"logging_steps": 1, "logging_first_step": True, "report_to": "none"},
    ),
)


def keep_special() -> Row:
    """Of rows as text, in which special tokens that messages spell are no special tokens."""
    return Row(
        "keep_special",
        unlike=(
            Unlike(
                "would break up special tokens that answers may hold",
                lambda s: s.stage.keep_special is not None,
                refused=True,
            ),
        ),
    )


GUARDS: tuple[Row, ...] = tuple(
    Row(key, unlike=(Unlike(NO_STOP, always),))
    for key in ("max_rollout_gap", "max_steps_without_bonus")
)
"""Guards of a stage that samples, which no other tool has."""

STORED: tuple[Row, ...] = (
    Row(
        "candidates",
        unlike=(Unlike("learns from what it samples", lambda s: s.grpo.stored, refused=True),),
    ),
    Row("curriculum", "", "of stored candidates alone"),
    Row("require_positive", "", "of stored candidates alone"),
)

REWARD: tuple[Row, ...] = (
    Row("reward", "reward.py", "Assay's own reward, in a process of its own (reward.json)"),
    Row("reward_deadline", "reward.json", "as it is"),
    Row("reward_workers", "reward.json", "as it is"),
    Row("reward_concurrency", "reward.json", "as it is"),
    Row("overlong", "reward.json", "subtracted by reward.py, as Assay does"),
    Row(
        "rewards",
        unlike=(
            Unlike(
                "standardises rewards once", lambda s: s.grpo.rewards == "normalised", refused=True
            ),
        ),
    ),
    Row("dropout", "", "of selectors alone"),
)


MOVING_LOW = Unlike("has no schedule of the clip", lambda s: moves(s.grpo.clip.low), refused=True)
MOVING_HIGH = Unlike("has no schedule of the clip", lambda s: moves(s.grpo.clip.high), refused=True)
MOVING_TEMPERATURE = Unlike(
    "has no schedule of the temperature",
    lambda s: moves(s.grpo.sampling.temperature),
    refused=True,
)
MOVING_KL = Unlike(
    "has no schedule of the KL coefficient", lambda s: moves(s.grpo.kl.coef), refused=True
)
ADAPTIVE_KL = Row(
    "kl.adaptive",
    unlike=(
        Unlike(
            "does not move the KL coefficient so",
            lambda s: s.grpo.kl.adaptive is not None,
            refused=True,
        ),
    ),
)
OTHER_REFERENCE = Unlike(
    "compares with the weights at the start",
    lambda s: bool(s.grpo.kl.coef) and s.grpo.kl.reference == "base" and not s.from_base,
    refused=True,
)


def is_frozen(settings: Settings) -> bool:
    """Whether weights are frozen by name."""
    return isinstance(settings.stage.adapt, FreezeAdapt)
