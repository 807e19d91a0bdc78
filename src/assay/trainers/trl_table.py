"""What Assay's settings are called in TRL 1.16 (`SFTConfig`, `GRPOConfig`, `ModelConfig`).

Read from the package's dataclasses and trainers, and held by tests that parse and train with them.
"""

from collections.abc import Mapping
from typing import Any

from assay.trainers.grpo_parts import (
    ADVANTAGE_ROWS,
    DROPPED_ROW,
    importance_mode,
    other_estimator,
    other_kl,
)
from assay.trainers.settings import Settings, at_start
from assay.trainers.transformers_rows import (
    ADAPTIVE_KL,
    GUARDS,
    IDLE,
    MOVING_HIGH,
    MOVING_KL,
    MOVING_LOW,
    MOVING_TEMPERATURE,
    OFF,
    OPTIMIZER,
    OTHER_REFERENCE,
    REWARD,
    RUN,
    STORED,
    is_frozen,
    keep_special,
    measured,
)
from assay.trainers.translation import FLOAT32, Row, Unlike, always, fixed

EPSILON = 1e-4
"""What GRPOTrainer adds to a group's deviation."""

LOSSES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("ppo_clip", "seq_mean_token_mean"): {"loss_type": "grpo"},
    ("ppo_clip", "token_mean"): {"loss_type": "dapo"},
    ("ppo_clip", "seq_mean_token_sum"): {"loss_type": "luspo"},
    ("ppo_clip", "seq_mean_token_sum_norm"): {"loss_type": "dr_grpo"},
    ("gspo", "seq_mean_token_mean"): {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
    },
    ("cispo", "token_mean"): {"loss_type": "cispo"},
    ("sapo", "seq_mean_token_mean"): {"loss_type": "sapo"},
}
"""Loss and aggregation to the keys that choose both."""


def loss_keys(settings: Settings) -> Mapping[str, str]:
    """The keys of the policy loss; the defaults of the tool where nothing corresponds."""
    own = settings.algorithm
    level = {"importance_sampling_level": "token"}
    return level | dict(LOSSES.get((own.loss, own.aggregation), {"loss_type": "grpo"}))


def no_loss(settings: Settings) -> bool:
    """Whether no key gives the stage's loss with its aggregation."""
    own = settings.algorithm
    return (own.loss, own.aggregation) not in LOSSES


def bounds(settings: Settings) -> Mapping[str, Any]:
    """The bounds of the ratio; cispo takes the bound of the weight itself."""
    own = settings.algorithm
    high = 1 + own.high if own.loss == "cispo" else own.high
    return {"epsilon": own.low, "epsilon_high": high, "delta": own.dual}


def lower_bound_lost(settings: Settings) -> bool:
    """Whether cispo has a lower bound that acts; a ratio is never below 0."""
    own = settings.algorithm
    return own.loss == "cispo" and own.low < 1


def peft_keys(settings: Settings) -> Mapping[str, Any]:
    """The adapter, by ModelConfig's names."""
    lora = settings.lora
    if lora is None:
        return {"use_peft": False}
    targets = "all-linear" if lora.targets == ("all-linear",) else list(lora.targets)
    return {
        "use_peft": True,
        "lora_r": lora.rank,
        "lora_alpha": int(lora.alpha),
        "lora_dropout": lora.dropout or 0.0,
        "lora_target_modules": [targets] if isinstance(targets, str) else targets,
        "use_rslora": bool(lora.rslora),
        "use_dora": bool(lora.dora),
    }


ADAPT: tuple[Row, ...] = (
    Row(
        "adapt.kind",
        "use_peft",
        "lora: true; full: false",
        peft_keys,
        (Unlike("freezes no weights by their names", is_frozen, refused=True),),
    ),
    Row("adapt.rank", "lora_r", "as it is"),
    Row(
        "adapt.alpha",
        "lora_alpha",
        "a whole number",
        unlike=(
            Unlike(
                "takes a whole lora_alpha alone",
                lambda s: s.lora is not None and s.lora.alpha != int(s.lora.alpha),
                refused=True,
            ),
        ),
    ),
    Row("adapt.rslora", "use_rslora", "as it is"),
    Row("adapt.dora", "use_dora", "as it is"),
    Row("adapt.targets", "lora_target_modules", "as they are"),
    Row("adapt.dropout", "lora_dropout", "omitted: 0"),
    Row("adapt.patterns", "", "see adapt.kind"),
)

OWN_OFF: Mapping[str, Any] = {
    **OFF,
    "data_seed": None,
    "model_init_kwargs": None,
    "model_revision": "main",
    "attn_implementation": None,
    "trust_remote_code": False,
    "lora_target_parameters": None,
    "lora_modules_to_save": None,
    "load_in_8bit": False,
    "load_in_4bit": False,
}
"""Of both methods."""
SFT_OFF: Mapping[str, Any] = {
    "loss_type": "nll",
    "assistant_only_loss": False,
    "chat_template_path": None,
    "dataset_kwargs": None,
    "eos_token": None,
    "pad_token": None,
    "truncation_mode": "keep_start",
    "packing_strategy": "bfd",
    "padding_free": False,
}
GRPO_OFF: Mapping[str, Any] = {
    "disable_dropout": True,
    "cast_lm_head_to_fp32": False,
    "generation_kwargs": None,
    "chat_template_kwargs": None,
    "repetition_penalty": 1.0,
    "cache_implementation": None,
    "use_vllm": False,
    "reward_weights": None,
    "reward_model_name_or_path": None,
    "multi_objective_aggregation": "sum_then_normalize",
    "sync_ref_model": False,
    "use_adaptive_entropy": False,
    "max_tool_calling_iterations": None,
    "off_policy_mask_threshold": None,
}
OWN_IDLE: Mapping[str, str] = {
    "where files lie": "model_name_or_path dataset_name dataset_config dataset_train_split "
    "dataset_test_split datasets",
    "how rows are brought to the passes": "dataset_streaming streaming test_split_size "
    "pad_to_multiple_of",
    "the machine and its processes": "ignore_bias_buffers",
    "of causal language models alone": "lora_task_type",
}

COMMON: tuple[Row, ...] = (
    fixed(OWN_OFF),
    Row("(without effect)", idle=IDLE),
    Row(
        "(without effect in TRL)",
        idle=OWN_IDLE,
        gated={"load_in_4bit": "bnb_4bit_* use_bnb_nested_quant"},
    ),
    *OPTIMIZER,
    *RUN,
    *ADAPT,
    keep_special(),
    Row("data", "dataset_name", "the folder `data`, rows in the order of Assay's visits"),
    Row(
        "micro_tokens",
        "per_device_train_batch_size, gradient_accumulation_steps",
        "as many sequences at once as fit it; accumulated to the batch",
        lambda s: {
            "per_device_train_batch_size": s.together,
            "gradient_accumulation_steps": s.batch // s.together,
        },
    ),
    Row("(order of rows)", "shuffle_dataset", "false", lambda s: {"shuffle_dataset": False}),
    Row(
        "(number formats)",
        "dtype, bf16",
        "weights in float32; bf16 in passes where run.sh finds a GPU",
        lambda s: {"dtype": "float32", "bf16": False},
        unlike=(FLOAT32,),
    ),
    Row(
        "(files)",
        "model_name_or_path, dataset_name, output_dir",
        "the folder's own",
        lambda s: {
            "model_name_or_path": s.model,
            "dataset_name": "data",
            "output_dir": "output",
        },
    ),
)

SFT: tuple[Row, ...] = (
    *COMMON,
    fixed(SFT_OFF),
    Row(
        "(without effect in sft)",
        idle={
            "what is measured, and of it": "eval_packing",
            "how rows are brought to the passes": "dataset_text_field dataset_num_proc",
            "memory and speed of the same passes": "activation_offloading",
        },
    ),
    Row(
        "batch",
        "per_device_train_batch_size x gradient_accumulation_steps",
        "rows of a step; a token counts alike in all of them, as in Assay",
    ),
    Row(
        "pack_tokens",
        "packing",
        "false",
        lambda s: {"packing": False, "max_length": None},
        (
            Unlike(
                "packs otherwise: a step would have rows where Assay has packs",
                lambda s: s.sft.pack_tokens is not None,
                refused=True,
            ),
        ),
    ),
    Row(
        "loss_on",
        "completion_only_loss",
        "true; a row trains its last answer, and rows with several are refused",
        lambda s: {"completion_only_loss": True},
    ),
    Row(
        "validation",
        "dataset_test_split",
        "data/test.jsonl",
        lambda s: {"dataset_test_split": "test"} if measured(s) else {},
    ),
    Row(
        "(order in an epoch)",
        "train_sampling_strategy",
        "sequential",
        lambda s: {"train_sampling_strategy": "sequential"},
    ),
)

GRPO: tuple[Row, ...] = (
    *COMMON,
    fixed(GRPO_OFF),
    Row(
        "(without effect in grpo)",
        idle={
            "what is measured, and of it": "num_generations_eval",
            "the machine and its processes": "ds3_gather_for_generation",
            "the log": "log_completions log_multimodal num_completions_to_print log_unique_prompts "
            "log_completions_hub_repo",
            "prompts are counted by it": "generation_batch_size",
            "rows are drawn by shuffle_dataset": "train_sampling_strategy",
            "how the same answers are sampled": "use_transformers_* transformers_continuous_*",
            "gives way to vllm_importance_sampling_clip_max": "vllm_importance_sampling_cap",
        },
        gated={
            "use_vllm": "vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_server_* "
            "vllm_structured_outputs_regex vllm_group_port vllm_gpu_memory_utilization "
            "vllm_max_model_length vllm_tensor_parallel_size",
            "sync_ref_model": "ref_model_*",
            "use_adaptive_entropy": "entropy_coef_* entropy_target",
            "loss_type": "vespo_*",
        },
    ),
    *STORED,
    *REWARD,
    *GUARDS,
    ADAPTIVE_KL,
    *ADVANTAGE_ROWS,
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
    Row(
        "max_abstained_share",
        unlike=(
            Unlike(
                "has no such guard; an abstention has advantage 0 and stays in averages", always
            ),
        ),
    ),
    Row("prompts", "gradient_accumulation_steps", "prompts x group completions a round"),
    Row(
        "group",
        "num_generations",
        "as it is",
        lambda s: {"num_generations": s.grpo.group},
        (Unlike("needs groups of at least 2", lambda s: s.grpo.group < 2, refused=True),),
    ),
    Row(
        "algorithm",
        "",
        "its advantage, loss, aggregation and clip are translated",
    ),
    Row(
        "advantage",
        "scale_rewards",
        "grpo: group; mean_only: none",
        lambda s: {"scale_rewards": "none" if s.algorithm.advantage == "mean_only" else "group"},
        (
            Unlike(
                "has no such advantage estimator",
                other_estimator("grpo", "mean_only"),
                refused=True,
            ),
        ),
    ),
    Row(
        "advantage_options.epsilon",
        "",
        "fixed",
        unlike=(
            Unlike(
                f"adds {EPSILON:g} to the deviation of a group",
                lambda s: (
                    s.algorithm.advantage == "grpo" and s.algorithm.options.epsilon != EPSILON
                ),
            ),
        ),
    ),
    Row(
        "loss",
        "loss_type, importance_sampling_level",
        "with the aggregation: "
        + "; ".join(
            f"{loss}, {mean}: {' '.join(keys.values())}" for (loss, mean), keys in LOSSES.items()
        ),
        loss_keys,
        (Unlike("has no such loss with such an aggregation", no_loss, refused=True),),
    ),
    Row("aggregation", "loss_type", "with the loss"),
    Row(
        "clip.low",
        "epsilon",
        "as it is; none of cispo",
        bounds,
        (
            MOVING_LOW,
            Unlike("bounds cispo's weights from above alone", lower_bound_lost, refused=True),
        ),
    ),
    Row("clip.high", "epsilon_high", "as it is; 1 + high of cispo", unlike=(MOVING_HIGH,)),
    Row("clip.dual", "delta", "as it is: it acts where the advantage is negative"),
    Row(
        "clip.tau_positive",
        "sapo_temperature_pos",
        "omitted: 1",
        lambda s: {"sapo_temperature_pos": s.grpo.clip.tau_positive or 1.0},
    ),
    Row(
        "clip.tau_negative",
        "sapo_temperature_neg",
        "omitted: 1.05",
        lambda s: {"sapo_temperature_neg": s.grpo.clip.tau_negative or 1.05},
    ),
    Row(
        "kl.coef",
        "beta",
        "as it is",
        lambda s: {"beta": at_start(s.grpo.kl.coef) if s.grpo.kl.where == "loss" else 0.0},
        (MOVING_KL,),
    ),
    Row(
        "kl.estimator",
        "",
        "k3",
        unlike=(Unlike("estimates KL by k3 alone", other_kl("k3"), refused=True),),
    ),
    Row(
        "kl.where",
        "",
        "loss",
        unlike=(
            Unlike(
                "has KL in the loss alone",
                lambda s: bool(s.grpo.kl.coef) and s.grpo.kl.where == "reward",
                refused=True,
            ),
        ),
    ),
    Row("kl.reference", "", "stage_start", unlike=(OTHER_REFERENCE,)),
    Row(
        "(KL without weights)",
        "use_bias_correction_kl",
        "false: by default TRL multiplies the KL term by the ratio",
        lambda s: {"use_bias_correction_kl": False},
    ),
    Row(
        "updates.minibatches",
        "steps_per_generation",
        "minibatches x gradient_accumulation_steps",
        lambda s: {"steps_per_generation": s.grpo.updates.minibatches * (s.batch // s.together)},
        (
            Unlike(
                "divides a round by completions, not by groups, and token means by the round's "
                "tokens",
                lambda s: s.grpo.updates.minibatches > 1,
            ),
        ),
    ),
    Row(
        "updates.epochs",
        "num_iterations",
        "as it is",
        lambda s: {"num_iterations": s.grpo.updates.epochs},
    ),
    DROPPED_ROW,
    Row(
        "dynamic",
        unlike=(
            Unlike(
                "replaces no groups without variance",
                lambda s: s.grpo.dynamic is not None,
                refused=True,
            ),
        ),
    ),
    Row(
        "mask_truncated",
        "mask_truncated_completions",
        "as it is",
        lambda s: {"mask_truncated_completions": s.grpo.mask_truncated},
        (
            Unlike(
                "counts masked completions in the mean over sequences",
                lambda s: s.grpo.mask_truncated,
            ),
        ),
    ),
    Row(
        "entropy_coef",
        "entropy_coef",
        "as it is",
        lambda s: {"entropy_coef": s.grpo.entropy_coef},
        (
            Unlike(
                "takes the entropy's mean over the tokens of each pass, whatever the aggregation",
                lambda s: bool(s.grpo.entropy_coef),
            ),
        ),
    ),
    Row(
        "top_entropy_share",
        "top_entropy_quantile",
        "omitted: 1",
        lambda s: {"top_entropy_quantile": s.grpo.top_entropy_share or 1.0},
        (
            Unlike(
                "finds the share in each pass, not in the round",
                lambda s: s.grpo.top_entropy_share is not None,
            ),
        ),
    ),
    Row(
        "importance",
        "vllm_importance_sampling_correction, _mode, _clip_min, _clip_max",
        "for vLLM's rollouts; rollouts of Transformers are the trainer's own and need none",
        lambda s: {
            "vllm_importance_sampling_correction": s.importance.how != "off",
            "vllm_importance_sampling_mode": importance_mode(s),
            "vllm_importance_sampling_clip_min": s.importance.low,
            "vllm_importance_sampling_clip_max": s.importance.high,
        },
    ),
    Row(
        "sampling.temperature",
        "temperature",
        "as it is; divides the logits of the loss too, as in Assay",
        lambda s: {"temperature": at_start(s.grpo.sampling.temperature)},
        (MOVING_TEMPERATURE,),
    ),
    Row("sampling.top_p", "top_p", "as it is", lambda s: {"top_p": s.grpo.sampling.top_p}),
    Row("sampling.top_k", "top_k", "as it is", lambda s: {"top_k": s.grpo.sampling.top_k}),
    Row("sampling.min_p", "min_p", "as it is", lambda s: {"min_p": s.grpo.sampling.min_p}),
    Row(
        "sampling.stop",
        unlike=(
            Unlike(
                "would train on the stop text that Assay leaves out",
                lambda s: s.grpo.sampling.stop is not None,
                refused=True,
            ),
        ),
    ),
    Row(
        "sampling.max_tokens",
        "max_completion_length",
        "as it is",
        lambda s: {"max_completion_length": s.grpo.sampling.max_tokens},
    ),
    Row(
        "(rewards)",
        "reward_funcs",
        "reward.trl_reward",
        lambda s: {
            "reward_funcs": ["reward.trl_reward"],
            "log_completions": True,
            "num_completions_to_print": 1,
        },
    ),
)
