"""The keys of ms-swift 4.6 that no setting of Assay's is: fixed on export, or without effect.

Those that it shares with TRL are in `transformers_rows`; a test asks ms-swift for all.
"""

from collections.abc import Mapping
from typing import Any

from assay.trainers.transformers_rows import OFF

OWN_OFF: Mapping[str, Any] = {
    **OFF,
    "bf16": False,
    "optimizer": None,
    "enable_dft_loss": False,
    "warmup_ratio": 0.0,
    "train_sampling_strategy": "random",
    "group_by_length": False,
    "sortish_sampler": False,
    "max_epochs": None,
    "early_stop_interval": None,
    "callbacks": [],
    "aligner_lr": None,
    "vit_lr": None,
    "use_galore": False,
    "lisa_activated_layers": 0,
    "resume_only_model": False,
    "model_revision": None,
    "task_type": "causal_lm",
    "new_special_tokens": [],
    "rope_scaling": None,
    "max_model_len": None,
    "init_strategy": None,
    "model_kwargs": None,
    "quant_method": None,
    "adapters": [],
    "ref_adapters": [],
    "custom_register_path": [],
    "system": None,
    "use_chat_template": True,
    "truncation_strategy": "delete",
    "padding_free": False,
    "is_binary_loss_scale": None,
    "template_backend": "swift",
    "response_prefix": None,
    "enable_thinking": None,
    "preserve_thinking": None,
    "disable_ignore_empty_think": False,
    "streaming": False,
    "decision_drop_instructions": 0.0,
    "decision_subsample_options": 0,
    "decision_state_as_text": 0.0,
    "decision_shuffle_fields": False,
    "freeze_parameters": [],
    "freeze_parameters_regex": None,
    "freeze_parameters_ratio": 0.0,
    "trainable_parameters": [],
    "trainable_parameters_regex": None,
    "freeze_llm": False,
    "tuner_backend": "peft",
    "use_swift_lora": False,
    "target_regex": None,
    "target_parameters": None,
    "modules_to_save": [],
    "lora_bias": "none",
    "lora_dtype": None,
    "lorap_lr_ratio": None,
    "init_weights": True,
}
"""Of both methods."""
GRPO_OFF: Mapping[str, Any] = {
    "loss_scale": "last_round",
    "packing": False,
    "repetition_penalty": 1.0,
    "num_beams": 1,
    "stop_words": [],
    "structured_outputs_regex": None,
    "async_generate": False,
    "reward_weights": None,
    "teacher_model": None,
    "teacher_model_server": None,
    "teacher_adapters": [],
    "teacher_kl_coef": 1.0,
    "chord_sft_dataset": [],
    "sync_ref_model": False,
    "ref_model": None,
    "multi_turn_scheduler": None,
    "use_gym_env": None,
    "advantage_reweight": None,
    "sdar_loss_coef": 0.0,
    "off_policy_sequence_mask_delta": None,
}
OWN_IDLE: Mapping[str, str] = {
    "where files lie": "model dataset val_dataset cached_dataset cached_val_dataset logging_dir "
    "local_repo_path add_version create_checkpoint_symlink",
    "which rows there are, which no folder tells": "interleave_prob stopping_strategy columns "
    "shuffle_buffer_size download_mode strict disable_auto_column_mapping custom_dataset_info "
    "model_name model_author load_from_cache_file",
    "how rows are brought to the passes": "dataset_num_proc lazy_tokenize packing_num_proc "
    "padding_side sequence_parallel_size",
    "images, which no stage has": "max_pixels norm_bbox freeze_vit freeze_aligner",
    "what is measured, and of it": "eval_* extra_eval_args predict_with_generate generation_config "
    "generation_max_length generation_num_beams acc_strategy val_dataset_shuffle "
    "evaluation_strategy _val_dataset_exists",
    "the log": "enable_channel_loss swanlab_*",
    "when checkpoints are saved, all of which are read": "safe_serialization max_shard_size "
    "use_flash_ckpt",
    "memory and speed of the same passes": "vit_gradient_checkpointing* use_logits_to_keep "
    "experts_impl device_map max_memory check_model enable_npu_model_patch",
    "the machine and its processes": "use_ray ray_exp_name device_groups use_hf rank hub "
    "global_world_size local_world_size model_suffix swift_version ckpt_dir model_dir load_args "
    "load_data_args ignore_args_error ds3_gather_for_generation model_info model_meta "
    "training_args",
    "of other tasks than text": "num_labels problem_type mrl_dims",
}
GATED: Mapping[str, str] = {
    "use_galore": "galore_*",
    "lisa_activated_layers": "lisa_step_interval",
    "deepspeed": "zero_hpz_partition_size deepspeed_autotp_size",
    "quant_method": "quant_bits hqq_axis bnb_4bit_*",
    "init_weights": "lora_ga_*",
    "tuner_type": "fourier_* boft_* vera_* adapter_act adapter_length adalora_* llamapro_* reft_*",
}
