"""What Assay's settings are called in ms-swift 4.6 (`SftArguments`, `RLHFArguments`).

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
from assay.trainers.swift_keys import GATED, GRPO_OFF, OWN_IDLE, OWN_OFF
from assay.trainers.transformers_rows import (
    ADAPTIVE_KL,
    GUARDS,
    IDLE,
    MOVING_HIGH,
    MOVING_KL,
    MOVING_LOW,
    MOVING_TEMPERATURE,
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
"""What ms-swift adds to a group's deviation."""
ESTIMATORS = {"grpo": ("grpo", "group"), "mean_only": ("grpo", "none"), "rloo": ("rloo", "none")}
"""Assay's estimator to `advantage_estimator` and `scale_rewards`."""
LOSSES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("ppo_clip", "seq_mean_token_mean"): {"loss_type": "grpo"},
    ("ppo_clip", "token_mean"): {"loss_type": "dapo"},
    ("ppo_clip", "seq_mean_token_sum_norm"): {"loss_type": "dr_grpo"},
    ("gspo", "seq_mean_token_mean"): {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence_token",
    },
    ("cispo", "token_mean"): {"loss_type": "cispo"},
    ("sapo", "seq_mean_token_mean"): {"loss_type": "sapo"},
}
"""Loss and aggregation to the keys that choose both."""


def loss_keys(settings: Settings) -> Mapping[str, str]:
    """The keys of the policy loss; those of grpo where nothing corresponds."""
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


def tuner(settings: Settings) -> Mapping[str, Any]:
    """Full training, or the adapter."""
    lora = settings.lora
    if lora is None:
        return {"tuner_type": "full"}
    return {
        "tuner_type": "lora",
        "lora_rank": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout or 0.0,
        "use_rslora": bool(lora.rslora),
        "use_dora": bool(lora.dora),
        "target_modules": list(lora.targets),
    }


def estimator(settings: Settings) -> Mapping[str, Any]:
    """The advantage's keys; grpo's where nothing corresponds."""
    name, scale = ESTIMATORS.get(settings.algorithm.advantage, ("grpo", "group"))
    return {"advantage_estimator": name, "scale_rewards": scale, "kl_in_reward": False}


def packed(settings: Settings) -> Mapping[str, Any]:
    """Packs, which need an attention that keeps their rows apart."""
    most = settings.sft.pack_tokens
    if most is None:
        apart = {"packing": False, "packing_length": None, "packing_strategy": "binpack"}
        return {**apart, "max_length": settings.longest + 16, "attn_impl": "sdpa"}
    lengths = {"packing_length": most, "max_length": most}
    return {"packing": True, "packing_strategy": "binpack", **lengths, "attn_impl": "flash_attn"}


def correction(settings: Settings) -> Mapping[str, Any]:
    """Weights of the gap between rollout and training."""
    off = settings.importance.how == "off"
    return {
        "rollout_importance_sampling_mode": None if off else importance_mode(settings),
        "rollout_importance_sampling_threshold": settings.importance.high,
    }


def resampling(settings: Settings) -> Mapping[str, Any]:
    """Dynamic sampling."""
    table = settings.grpo.dynamic
    if table is None:
        return {"dynamic_sample": False, "max_resample_times": 3}
    return {"dynamic_sample": True, "max_resample_times": max(table.max_batches - 1, 1)}


ADAPT: tuple[Row, ...] = (
    Row(
        "adapt.kind",
        "tuner_type",
        "full, lora",
        tuner,
        (Unlike("freezes weights by other patterns", is_frozen, refused=True),),
    ),
    Row("adapt.rank", "lora_rank", "as it is"),
    Row("adapt.alpha", "lora_alpha", "as it is"),
    Row("adapt.rslora", "use_rslora", "as it is"),
    Row("adapt.dora", "use_dora", "as it is"),
    Row("adapt.targets", "target_modules", "as they are"),
    Row("adapt.dropout", "lora_dropout", "omitted: 0"),
    Row("adapt.patterns", "", "see adapt.kind"),
)

COMMON: tuple[Row, ...] = (
    fixed(OWN_OFF),
    Row("(without effect)", idle=IDLE),
    Row("(without effect in ms-swift)", idle=OWN_IDLE, gated=GATED),
    *OPTIMIZER,
    *RUN,
    *ADAPT,
    keep_special(),
    Row("data", "dataset", "data/train.jsonl, rows in the order of Assay's visits"),
    Row(
        "micro_tokens",
        "per_device_train_batch_size, gradient_accumulation_steps",
        "as many sequences at once as fit it; accumulated to the batch",
        lambda s: {
            "per_device_train_batch_size": s.together,
            "gradient_accumulation_steps": s.batch // s.together,
        },
    ),
    Row(
        "(order of rows)",
        "dataset_shuffle, train_dataloader_shuffle",
        "false",
        lambda s: {"dataset_shuffle": False, "train_dataloader_shuffle": False},
    ),
    Row(
        "(number formats)",
        "torch_dtype",
        "float32; run.sh adds bf16 in passes where it finds a GPU",
        lambda s: {"torch_dtype": "float32"},
        unlike=(FLOAT32,),
    ),
    Row(
        "(template)",
        "model_type, template, add_non_thinking_prefix, agent_template",
        "the template of ms-swift that the rows were proven with; nothing is added to them",
        lambda s: {**(s.template or {}), "add_non_thinking_prefix": False},
    ),
    Row(
        "(files)",
        "model, dataset, output_dir",
        "the folder's own",
        lambda s: {
            "model": s.model,
            "dataset": ["data/train.jsonl"],
            "split_dataset_ratio": 0.0,
            "output_dir": "output",
            "add_version": False,
        },
    ),
    Row("(data seed)", "data_seed", "the experiment's", lambda s: {"data_seed": s.seed}),
)

SFT: tuple[Row, ...] = (
    *COMMON,
    fixed({"loss_type": None, "external_plugins": []}),
    Row(
        "(without effect in sft)",
        idle={
            "how a model answers, which no sft asks": "max_new_tokens temperature top_k top_p "
            "repetition_penalty num_beams stream stop_words logprobs top_logprobs "
            "structured_outputs_regex"
        },
    ),
    Row(
        "batch",
        "per_device_train_batch_size x gradient_accumulation_steps",
        "rows or packs of a step; a token counts alike in all of them, as in Assay",
    ),
    Row(
        "pack_tokens",
        "packing, packing_length, packing_strategy",
        "binpack, ms-swift's rule, which is Assay's",
        packed,
        (
            Unlike(
                "visits the packs in the order in which it made them, counts in a row's length "
                "what the template writes behind its answer, so that there may be more packs, and "
                "asks for flash attention, which no CPU has",
                lambda s: s.sft.pack_tokens is not None,
            ),
        ),
    ),
    Row(
        "loss_on",
        "loss_scale",
        "default: every answer that the rows do not mark as untrained",
        lambda s: {"loss_scale": "default"},
    ),
    Row(
        "validation",
        "val_dataset",
        "data/test.jsonl",
        lambda s: {"val_dataset": ["data/test.jsonl"]} if measured(s) else {},
    ),
)

GRPO: tuple[Row, ...] = (
    *COMMON,
    fixed(GRPO_OFF),
    Row(
        "(without effect in grpo)",
        idle={
            "of other kinds of rlhf_type, which are not taken over": "num_ppo_epochs "
            "whiten_rewards kl_coef cliprange vf_coef cliprange_value gamma lam num_mini_batches "
            "local_rollout_forward_batch_size num_sample_generations response_length "
            "missing_eos_penalty label_smoothing rpo_alpha ld_alpha discopop_tau loss_weights "
            "cpo_alpha simpo_gamma desirable_weight undesirable_weight center_rewards_coefficient "
            "sft_alpha lmbda seq_kd gkd_logits_topk",
            "of rewards, which no folder tells": "reward_model* reward_adapters reward_template "
            "cosine_m* repetition_n_grams repetition_max_penalty soft_max_length "
            "soft_cache_length",
            "what is measured, and of it": "num_generations_eval",
            "the log": "log_completions log_entropy log_rollout_offpolicy_metrics "
            "wandb_log_unique_prompts",
            "prompts are counted by it": "generation_batch_size",
            "memory and speed of the same passes": "sleep_level move_model_batches "
            "offload_optimizer offload_model offload_teacher_model enable_flattened_weight_sync",
            "how a model answers outside of training": "max_new_tokens stream logprobs "
            "top_logprobs",
        },
        gated={
            "use_vllm": "vllm_*",
            "packing": "packing_length packing_strategy",
            "teacher_model": "teacher_model_type teacher_model_revision teacher_deepspeed "
            "teacher_tag_key",
            "chord_sft_dataset": "chord_*",
            "sync_ref_model": "ref_model_sync_steps ref_model_mixup_alpha",
            "ref_model": "ref_model_type ref_model_revision",
            "multi_turn_scheduler": "max_turns completion_length_limit_scope",
            "use_gym_env": "gym_env",
            "advantage_reweight": "rlsd_*",
            "sdar_loss_coef": "sdar_gate_beta",
            "loss_type": "real_tau fipo_*",
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
        unlike=(Unlike("knows no abstention: the first stops the run", always),),
    ),
    Row("prompts", "gradient_accumulation_steps", "prompts x group completions a round"),
    Row(
        "group",
        "num_generations",
        "as it is",
        lambda s: {"num_generations": s.grpo.group},
        (Unlike("needs groups of at least 2", lambda s: s.grpo.group < 2, refused=True),),
    ),
    Row("algorithm", "", "its advantage, loss, aggregation and clip are translated"),
    Row(
        "advantage",
        "advantage_estimator, scale_rewards, kl_in_reward",
        "; ".join(f"{own}: {name}, {scale}" for own, (name, scale) in ESTIMATORS.items()),
        estimator,
        (Unlike("has no such advantage estimator", other_estimator(*ESTIMATORS), refused=True),),
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
            Unlike(
                "bounds cispo's weights from above alone",
                lambda s: s.algorithm.loss == "cispo" and s.algorithm.low < 1,
                refused=True,
            ),
        ),
    ),
    Row("clip.high", "epsilon_high", "as it is; 1 + high of cispo", unlike=(MOVING_HIGH,)),
    Row("clip.dual", "delta", "as it is: it acts where the advantage is negative"),
    Row(
        "clip.tau_positive",
        "tau_pos",
        "omitted: 1",
        lambda s: {"tau_pos": s.grpo.clip.tau_positive or 1.0},
    ),
    Row(
        "clip.tau_negative",
        "tau_neg",
        "omitted: 1.05",
        lambda s: {"tau_neg": s.grpo.clip.tau_negative or 1.05},
    ),
    Row(
        "kl.coef",
        "beta",
        "as it is; 0 where there is none: ms-swift's default is 0.04",
        lambda s: {"beta": at_start(s.grpo.kl.coef) if s.grpo.kl.where == "loss" else 0.0},
        (MOVING_KL,),
    ),
    Row(
        "kl.estimator",
        "",
        "k3",
        unlike=(Unlike("estimates KL in the loss by k3 alone", other_kl("k3"), refused=True),),
    ),
    Row(
        "kl.where",
        "kl_in_reward",
        "loss",
        unlike=(
            Unlike(
                "takes KL of whole completions off the reward before groups are compared",
                lambda s: bool(s.grpo.kl.coef) and s.grpo.kl.where == "reward",
                refused=True,
            ),
        ),
    ),
    Row("kl.reference", "", "stage_start", unlike=(OTHER_REFERENCE,)),
    Row(
        "updates.minibatches",
        "steps_per_generation",
        "minibatches x gradient_accumulation_steps",
        lambda s: {"steps_per_generation": s.grpo.updates.minibatches * (s.batch // s.together)},
        (
            Unlike(
                "divides token means of an update by the tokens of the round",
                lambda s: (
                    s.grpo.updates.minibatches > 1 and s.algorithm.aggregation == "token_mean"
                ),
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
        "dynamic_sample, max_resample_times",
        "max_batches - 1",
        resampling,
        (
            Unlike(
                "draws the new prompts at random",
                lambda s: s.grpo.dynamic is not None,
            ),
        ),
    ),
    Row(
        "mask_truncated",
        "overlong_filter",
        "as it is",
        lambda s: {"overlong_filter": s.grpo.mask_truncated},
        (Unlike("counts masked completions in its averages", lambda s: s.grpo.mask_truncated),),
    ),
    Row(
        "entropy_coef",
        unlike=(Unlike("has no entropy bonus", lambda s: bool(s.grpo.entropy_coef), refused=True),),
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
        "rollout_importance_sampling_mode, rollout_importance_sampling_threshold",
        "for rollouts that bring log-probabilities, as vLLM's do; off: none",
        correction,
        (
            Unlike(
                "has no lower bound of the correction",
                lambda s: s.importance.low is not None,
                refused=True,
            ),
        ),
    ),
    Row(
        "sampling.temperature",
        "temperature",
        "as it is; divides the logits of the loss too, as in Assay",
        lambda s: {"temperature": at_start(s.grpo.sampling.temperature)},
        (MOVING_TEMPERATURE,),
    ),
    Row("sampling.top_p", "top_p", "as it is", lambda s: {"top_p": s.grpo.sampling.top_p}),
    Row("sampling.top_k", "top_k", "0: -1", lambda s: {"top_k": s.grpo.sampling.top_k or -1}),
    Row("sampling.min_p", "min_p", "omitted: 0", lambda s: {"min_p": s.grpo.sampling.min_p or 0.0}),
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
        lambda s: {
            "max_completion_length": s.grpo.sampling.max_tokens,
            "max_length": s.longest_prompt + 16,
        },
    ),
    Row(
        "(ends of answers)",
        "swift_plugin.py",
        "a model that pads with its end token pads with another: ms-swift takes padding out of "
        "sampled answers, and would learn no end",
    ),
    Row(
        "(rewards)",
        "rlhf_type, reward_funcs, external_plugins",
        "grpo, assay, swift_plugin.py",
        lambda s: {
            "rlhf_type": "grpo",
            "reward_funcs": ["assay"],
            "external_plugins": ["swift_plugin.py"],
            "log_completions": True,
            "attn_impl": "sdpa",
            "use_vllm": False,
        },
    ),
)
