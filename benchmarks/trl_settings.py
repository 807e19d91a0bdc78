"""Settings that every TRL trainer of the benchmarks has; each that is not TRL's default is one
that a comparison fixes. Runs in an environment of TRL's own.
"""

from typing import Any


def fixed_settings(folder: str, *, rows: int, window: int, bf16: bool) -> dict[str, Any]:
    """Arguments of GRPOConfig and SFTConfig: `rows` in a micro-batch, `window` of them a step."""
    return {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": bf16,
        "fp16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": window,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "optim": "adamw_torch_fused",
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "seed": 0,
    }
