"""How TRL, verl and ms-swift name the settings of a preset: data for the manual, read by no code.

An empty table means that the tool has no setting for it.
"""

Settings = dict[str, str]

_ACTOR = "actor_rollout_ref.actor"
_ADVANTAGE = "algorithm.adv_estimator"
_LOSS = f"{_ACTOR}.policy_loss.loss_mode"
_AVERAGE = f"{_ACTOR}.loss_agg_mode"
_SCALE = "algorithm.norm_adv_by_std_in_grpo"

ELSEWHERE: dict[str, dict[str, Settings]] = {
    "grpo": {
        "TRL": {"loss_type": "grpo", "scale_rewards": "group", "epsilon": "0.2"},
        "verl": {
            _ADVANTAGE: "grpo",
            _LOSS: "vanilla",
            _AVERAGE: "seq-mean-token-mean",
            f"{_ACTOR}.clip_ratio": "0.2",
        },
        "ms-swift": {"--loss_type": "grpo", "--epsilon": "0.2"},
    },
    "dr_grpo": {
        "TRL": {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": "0.0"},
        "verl": {_ADVANTAGE: "grpo", _SCALE: "False", _AVERAGE: "seq-mean-token-sum-norm"},
        "ms-swift": {"--loss_type": "dr_grpo", "--scale_rewards": "none"},
    },
    "dapo": {
        "TRL": {"loss_type": "dapo", "epsilon": "0.2", "epsilon_high": "0.28", "beta": "0.0"},
        "verl": {
            _ADVANTAGE: "grpo",
            _AVERAGE: "token-mean",
            f"{_ACTOR}.clip_ratio_low": "0.2",
            f"{_ACTOR}.clip_ratio_high": "0.28",
            "algorithm.filter_groups.enable": "True",
        },
        "ms-swift": {
            "--loss_type": "dapo",
            "--epsilon_high": "0.28",
            "--dynamic_sample": "true",
        },
    },
    "gspo": {
        "TRL": {
            "importance_sampling_level": "sequence",
            "loss_type": "grpo",
            "epsilon": "3e-4",
            "epsilon_high": "4e-4",
            "beta": "0.0",
        },
        "verl": {
            _ADVANTAGE: "grpo",
            _LOSS: "gspo",
            f"{_ACTOR}.clip_ratio_low": "0.0003",
            f"{_ACTOR}.clip_ratio_high": "0.0004",
        },
        "ms-swift": {
            "--importance_sampling_level": "sequence",
            "--epsilon": "3e-4",
            "--epsilon_high": "4e-4",
        },
    },
    "cispo": {
        # TRL and ms-swift bound the weight itself, verl its distance from 1.
        "TRL": {"loss_type": "cispo", "epsilon_high": "5.0"},
        "verl": {
            _ADVANTAGE: "grpo",
            _LOSS: "cispo",
            f"{_ACTOR}.clip_ratio_low": "10",
            f"{_ACTOR}.clip_ratio_high": "4",
        },
        "ms-swift": {"--loss_type": "cispo", "--epsilon_high": "5.0"},
    },
    "rloo": {
        "TRL": {"trainer": "RLOOTrainer"},
        "verl": {_ADVANTAGE: "rloo", _AVERAGE: "seq-mean-token-sum"},
        "ms-swift": {"--advantage_estimator": "rloo", "--kl_in_reward": "true"},
    },
    "reinforce_pp": {
        "TRL": {},
        "verl": {_ADVANTAGE: "reinforce_plus_plus", _AVERAGE: "token-mean"},
        # ms-swift's `reinforce_plus_plus` is the form with a baseline, `reinforce_pp_baseline`.
        "ms-swift": {},
    },
    "egpo": {"TRL": {}, "verl": {}, "ms-swift": {}},
    "egpo_scaled_clip": {
        "TRL": {},
        "verl": {
            "fork": "zhangdw156/verl 0350dd9c",
            _ADVANTAGE: "egpo",
            "algorithm.egpo_lambda": "0.4",
            "algorithm.egpo_alpha": "2.0",
        },
        "ms-swift": {},
    },
}
