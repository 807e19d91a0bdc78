"""Runs in verl's environment: the configuration of a folder, as verl composes and checks it."""

import json
import sys
from pathlib import Path

from hydra import compose, initialize_config_dir  # type: ignore[import-not-found]
from omegaconf import OmegaConf  # type: ignore[import-not-found]
from verl.trainer.ppo.utils import need_critic  # type: ignore[import-not-found]
from verl.utils.config import (  # type: ignore[import-not-found]
    omega_conf_to_dataclass,
    validate_config,
)

folder = Path(json.load(sys.stdin)["folder"])
with initialize_config_dir(str(folder), version_base=None):
    more = ["trainer.n_gpus_per_node=4", f"actor_rollout_ref.model.path={folder / 'model'}"]
    config = compose("config", overrides=more)
validate_config(config, use_reference_policy=True, use_critic=need_critic(config))
omega_conf_to_dataclass(config.actor_rollout_ref.actor)
omega_conf_to_dataclass(config.algorithm)
print(json.dumps(OmegaConf.to_container(config, resolve=True)))
