"""How TRL, verl and ms-swift name the settings of a preset: data for the manual, read by no code.

An empty table means that the tool has no setting for it. Read in the sources of verl b178a3cd, TRL
f2cd5771 and ms-swift 3602360a.
"""

Settings = dict[str, str]

_ACTOR = "actor_rollout_ref.actor"
_ADVANTAGE = "algorithm.adv_estimator"
_LOSS = f"{_ACTOR}.policy_loss.loss_mode"
_AVERAGE = f"{_ACTOR}.loss_agg_mode"
_SCALE = "algorithm.norm_adv_by_std_in_grpo"
_NO_DUAL_CLIP = {f"{_ACTOR}.clip_ratio_c": "1e9"}
"""verl's dual clip is on by default, at 3.0, and cannot be left out; it asks for more than 1."""
_NO_KL = {"--beta": "0"}
"""ms-swift's default is 0.04."""

ELSEWHERE: dict[str, dict[str, Settings]] = {
    "grpo": {
        "TRL": {"loss_type": "grpo", "scale_rewards": "group", "epsilon": "0.2"},
        "verl": {
            _ADVANTAGE: "grpo",
            _LOSS: "vanilla",
            _AVERAGE: "seq-mean-token-mean",
            f"{_ACTOR}.clip_ratio": "0.2",
            **_NO_DUAL_CLIP,
        },
        "ms-swift": {"--loss_type": "grpo", "--epsilon": "0.2", **_NO_KL},
    },
    "dr_grpo": {
        "TRL": {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": "0.0"},
        "verl": {
            _ADVANTAGE: "grpo",
            _SCALE: "False",
            _AVERAGE: "seq-mean-token-sum-norm",
            # verl divides by it alone, Dr. GRPO, TRL and ms-swift by the episodes as well.
            f"{_ACTOR}.loss_scale_factor": "episodes of an update * max_tokens",
            **_NO_DUAL_CLIP,
        },
        "ms-swift": {"--loss_type": "dr_grpo", "--scale_rewards": "none", **_NO_KL},
    },
    "dapo": {
        "TRL": {"loss_type": "dapo", "epsilon": "0.2", "epsilon_high": "0.28", "beta": "0.0"},
        "verl": {
            _ADVANTAGE: "grpo",
            _AVERAGE: "token-mean",
            f"{_ACTOR}.clip_ratio_low": "0.2",
            f"{_ACTOR}.clip_ratio_high": "0.28",
            "algorithm.filter_groups.enable": "True",
            "algorithm.filter_groups.metric": "acc",
            **_NO_DUAL_CLIP,
        },
        "ms-swift": {
            "--loss_type": "dapo",
            "--epsilon_high": "0.28",
            "--dynamic_sample": "true",
            **_NO_KL,
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
            **_NO_KL,
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
        "ms-swift": {"--loss_type": "cispo", "--epsilon_high": "5.0", **_NO_KL},
    },
    "rloo": {
        # TRL clips the probability of the whole completion: see `trl_rloo`. One update per rollout
        # is the same.
        "TRL": {"trainer": "RLOOTrainer", "beta": "0.0", "num_iterations": "1"},
        "verl": {_ADVANTAGE: "rloo", _AVERAGE: "seq-mean-token-sum", **_NO_DUAL_CLIP},
        # ms-swift's only mean over sums of sequences is over the limit of their length as well.
        "ms-swift": {
            "--advantage_estimator": "rloo",
            "--loss_type": "dr_grpo (the gradient over max_tokens)",
            **_NO_KL,
        },
    },
    "reinforce_pp": {
        "TRL": {},
        "verl": {
            _ADVANTAGE: "reinforce_plus_plus",
            _AVERAGE: "token-mean",
            **_NO_DUAL_CLIP,
        },
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
    "verl_grpo": {"TRL": {}, "verl": {_ADVANTAGE: "grpo"}, "ms-swift": {}},
    "trl_grpo": {
        "TRL": {"trainer": "GRPOTrainer"},
        "verl": {},
        "ms-swift": {"--loss_type": "dapo", **_NO_KL},
    },
    "trl_rloo": {
        "TRL": {"trainer": "RLOOTrainer", "beta": "0.0"},
        "verl": {},
        "ms-swift": {},
    },
}
