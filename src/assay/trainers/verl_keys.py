"""The keys of verl 0.9.1 that no setting of Assay's is: fixed on export, or without effect.

All keys of its `ppo_trainer`, composed by Hydra, are here or in `verl_table`; a test asks verl.
"""

from collections.abc import Mapping
from typing import Any

A, ACTOR, ROLLOUT, MODEL = (
    "actor_rollout_ref",
    *(f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model")),
)
FSDP, OPTIM = f"{ACTOR}.fsdp_config", f"{ACTOR}.optim"
CORRECTION = "algorithm.rollout_correction"

OFF: Mapping[str, Any] = {
    f"{OPTIM}.lr_warmup_steps_ratio": 0.0,
    f"{OPTIM}.num_cycles": 0.5,
    f"{OPTIM}.zero_indexed_step": True,
    f"{OPTIM}.warmup_style": None,
    f"{OPTIM}.override_optimizer_config": None,
    f"{FSDP}.qat.enable": False,
    f"{ACTOR}.qat.enable": False,
    f"{A}.ref.fsdp_config.qat.enable": False,
    f"{A}.ref.fsdp_config.model_dtype": "fp32",
    f"{A}.hybrid_engine": True,
    f"{ROLLOUT}.dtype": "bfloat16",
    f"{ROLLOUT}.ignore_eos": False,
    f"{ROLLOUT}.do_sample": True,
    f"{ROLLOUT}.over_sample_rate": 0,
    f"{ROLLOUT}.quantization": None,
    f"{ROLLOUT}.logprobs_mode": "processed_logprobs",
    f"{ROLLOUT}.calculate_log_probs": True,
    f"{ROLLOUT}.multi_turn.enable": False,
    f"{ROLLOUT}.agent.default_agent_loop": "single_turn_agent",
    f"{ROLLOUT}.agent.agent_loop_config_path": None,
    f"{ROLLOUT}.agent.custom_async_server.path": None,
    f"{ROLLOUT}.enable_rollout_routing_replay": False,
    f"{MODEL}.hf_config_path": None,
    f"{MODEL}.tokenizer_path": None,
    f"{MODEL}.trust_remote_code": False,
    f"{MODEL}.custom_chat_template": None,
    f"{MODEL}.external_lib": None,
    f"{MODEL}.exclude_modules": None,
    f"{MODEL}.lora_adapter_path": None,
    f"{MODEL}.use_liger": False,
    f"{MODEL}.mtp.enable": False,
    f"{MODEL}.lora.rank": 0,
    "critic.enable": None,
    "data.tokenizer": None,
    "data.gen_batch_size": None,
    "data.filter_overlong_prompts": False,
    "data.tool_config_path": None,
    "data.function_tool_path": None,
    "data.custom_cls.path": None,
    "data.trust_remote_code": False,
    f"{CORRECTION}.rollout_rs": None,
    f"{CORRECTION}.bypass_mode": False,
    f"{CORRECTION}.rollout_is_batch_normalize": False,
    "algorithm.gamma": 1.0,
    "algorithm.lam": 1.0,
    "algorithm.filter_groups.enable": False,
    "algorithm.kl_ctrl.type": "fixed",
    "algorithm.use_pf_ppo": False,
    "distillation.enabled": False,
    "skip.rollout.enable": False,
    "skip.rollout_tq.enable": False,
    "skip.async_rollout.enable": False,
    "trainer.critic_warmup": 0,
    "trainer.use_v1": True,
    "trainer.v1.trainer_mode": "sync",
    "trainer.v1.sampler.sync_refill_failed_groups": False,
    "trainer.v1.sampler.custom_sampler.path": None,
}
"""Keys that act, as they mean what Assay does."""

IDLE: Mapping[str, str] = {
    "names of verl's own classes": "*._target_",
    "seeds, of which none is known to be the run's": f"data.seed {ROLLOUT}.seed "
    f"{ACTOR}.data_loader_seed {A}.*.fsdp_config.seed",
    "the log": "*.profiler.* global_profiler.* trainer.logger trainer.project_name "
    "trainer.experiment_name trainer.rollout_data_dir trainer.log_val_generations "
    f"{ACTOR}.calculate_entropy {ACTOR}.calculate_sum_pi_squared "
    f"{ROLLOUT}.disable_log_stats {ROLLOUT}.trace.* {ROLLOUT}.prometheus.* "
    f"{ROLLOUT}.moe_load_balance_metrics_interval",
    "what is measured, and of it": f"data.val_* data.validation_shuffle {ROLLOUT}.val_kwargs.* "
    "trainer.val_* trainer.validation_data_dir trainer.test_freq",
    "when checkpoints are saved, all of which are read": f"{ACTOR}.checkpoint.* trainer.save_freq "
    "trainer.resume_* trainer.checkpoint_callback_class trainer.del_local_ckpt_after_load "
    "trainer.max_*_ckpt_to_keep trainer.esi_redundant_time trainer.default_*_dir",
    "where files lie": f"{MODEL}.path {MODEL}.use_shm data.train_files data.use_shm",
    "which rows there are, which no folder tells": "data.train_max_samples data.*_key "
    "data.return_* data.image_patch_size data.custom_cls.name",
    "rewards, which no folder tells": "custom_reward_function.* reward_model.* sandbox_fusion.* "
    "reward.*",
    "how rows are brought to the passes": "data.dataloader_num_workers "
    f"data.filter_overlong_prompts_workers {ACTOR}.use_dynamic_bsz "
    f"{ACTOR}.ppo_max_token_len_per_gpu {ACTOR}.ppo_micro_batch_size* {A}.*.log_prob_* "
    f"{A}.*.pad_to_length* {FSDP}.pad_to_length* {A}.ref.fsdp_config.pad_to_length* "
    f"{A}.*.use_remove_padding {ACTOR}.use_prefix_grouper",
    "copies of the rollout's n": f"{A}.*.rollout_n",
    "memory and speed of the same passes": f"{A}.*.use_torch_compile "
    f"{A}.*.use_fused_kernels {MODEL}.fused_kernel_options.* {MODEL}.tiled_mlp.* "
    f"{MODEL}.enable_* {MODEL}.override_config.attn_implementation {A}.*.entropy_from_* "
    f"{A}.*.entropy_checkpointing {A}.*.full_determinism {A}.*.use_no_sync_for_* "
    f"{A}.*.param_offload {A}.*.optimizer_offload {A}.*.offload_policy",
    "how a model is divided": f"model_engine {A}.*.strategy {A}.*.ulysses_sequence_parallel_size "
    f"{A}.*.wrap_policy.* {A}.*.reshard_after_forward {A}.*.fsdp_size {A}.*.forward_prefetch "
    f"{A}.*.use_orig_params {A}.*.forward_only {A}.*.turbo_config.*",
    "FSDP reads model_dtype and mixed_precision": f"{A}.*.fsdp_config.dtype",
    "how the engine runs that samples": f"{ROLLOUT}.mode {ROLLOUT}.nnodes "
    f"{ROLLOUT}.n_gpus_per_node {ROLLOUT}.gpu_memory_utilization {ROLLOUT}.enforce_eager "
    f"{ROLLOUT}.cudagraph_capture_sizes {ROLLOUT}.free_cache_engine {ROLLOUT}.*_parallel_size "
    f"{ROLLOUT}.max_* {ROLLOUT}.enable_chunked_prefill {ROLLOUT}.enable_prefix_caching "
    f"{ROLLOUT}.scheduling_policy {ROLLOUT}.load_format {ROLLOUT}.layered_summon "
    f"{ROLLOUT}.multi_stage_wake_up {ROLLOUT}.router_config_path {ROLLOUT}.agent.num_workers "
    f"{ROLLOUT}.checkpoint_engine.* {ROLLOUT}.skip_tokenizer_init {ROLLOUT}.disaggregation.*",
    "what the model's own keys say": f"{ROLLOUT}.mtp* {ROLLOUT}.qat*",
    "images, which no stage has": f"{ACTOR}.freeze_vision_tower",
    "the machine and its processes": f"{A}.nccl_timeout ray_kwargs.* transfer_queue.* "
    "trainer.nnodes trainer.n_gpus_per_node trainer.device trainer.ray_* ",
}

GATED: Mapping[str, str] = {
    f"{ACTOR}.policy_loss.loss_mode": f"{ACTOR}.policy_loss.*",
    f"{ACTOR}.qat.enable": f"{ACTOR}.qat.*",
    f"{FSDP}.qat.enable": f"{FSDP}.qat.*",
    f"{A}.ref.fsdp_config.qat.enable": f"{A}.ref.fsdp_config.qat.*",
    f"{ROLLOUT}.quantization": f"{ROLLOUT}.quantization_config_file",
    f"{ROLLOUT}.multi_turn.enable": f"{ROLLOUT}.multi_turn.*",
    f"{ROLLOUT}.agent.custom_async_server.path": f"{ROLLOUT}.agent.custom_async_server.name",
    f"{MODEL}.mtp.enable": f"{MODEL}.mtp.*",
    f"{MODEL}.lora.rank": f"{MODEL}.lora.*",
    "critic.enable": "critic.*",
    f"{CORRECTION}.rollout_rs": f"{CORRECTION}.rollout_rs_threshold",
    f"{CORRECTION}.bypass_mode": f"{CORRECTION}.loss_type",
    "algorithm.filter_groups.enable": "algorithm.filter_groups.*",
    "algorithm.kl_ctrl.type": "algorithm.kl_ctrl.horizon algorithm.kl_ctrl.target_kl",
    "algorithm.use_pf_ppo": "algorithm.pf_ppo.*",
    "distillation.enabled": "distillation.*",
    "skip.rollout.enable": "skip.rollout.*",
    "skip.rollout_tq.enable": "skip.rollout_tq.*",
    "skip.async_rollout.enable": "skip.async_rollout.*",
    "trainer.v1.trainer_mode": "trainer.v1.colocate_async.* trainer.v1.separate_async.* "
    "trainer.v1.sampler.max_off_policy_*",
    "trainer.v1.sampler.custom_sampler.path": "trainer.v1.sampler.custom_sampler.name",
}
"""Keys that act where another is not as `OFF`, or an export, has it."""
