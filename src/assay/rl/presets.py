"""Presets: advantage, loss, aggregation, denominator and clip of an algorithm, set together.

Each follows its paper (or, where noted, its author's code), with the names of the same settings in
TRL, verl and ms-swift. KL is not part of a preset: the experiment sets its coefficient, estimator
and place. `verl_grpo`, `trl_grpo` and `trl_rloo` are the defaults of those programs.
"""

from dataclasses import dataclass, field

from assay.rl.advantages import AdvantageOptions
from assay.rl.aggregation import Aggregation
from assay.rl.losses import Clip


@dataclass(frozen=True)
class Preset:
    """One algorithm."""

    source: str
    """Where the settings are from, and what is not of the paper."""
    advantage: str = "grpo"
    """A name in `ADVANTAGES`."""
    advantage_options: AdvantageOptions = field(default_factory=AdvantageOptions)
    loss: str = "ppo_clip"
    """A name in `LOSSES`."""
    aggregation: Aggregation = "token_mean"
    clip: Clip = Clip()
    keep_dropped_in_denominator: bool = True
    """Whether groups dropped for want of signal still count in the average."""


PRESETS: dict[str, Preset] = {
    "grpo": Preset(
        source="DeepSeekMath, arXiv 2402.03300, eq. 3 (with KL coefficient 0.04, k3 in the loss); "
        "clip 0.2 and the unbiased deviation are common practice, the paper names neither",
        aggregation="seq_mean_token_mean",
    ),
    "dr_grpo": Preset(
        source="arXiv 2503.20783: no division by the deviation nor by the length; no KL",
        advantage="mean_only",
        aggregation="seq_mean_token_sum_norm",
    ),
    "dapo": Preset(
        source="arXiv 2503.14476: Clip-Higher 0.2 / 0.28, token mean, no KL; to be used with "
        "dynamic sampling, so that dropped groups are replaced and not averaged over",
        clip=Clip(high=0.28),
        keep_dropped_in_denominator=False,
    ),
    "gspo": Preset(
        source="arXiv 2507.18071, section 5.1: clip 3e-4 / 4e-4 on the sequence ratio; no KL",
        loss="gspo",
        aggregation="seq_mean_token_mean",
        clip=Clip(3e-4, 4e-4),
    ),
    "cispo": Preset(
        source="MiniMax-M1, arXiv 2506.13585: no lower bound (a ratio is never below 1 - 1), token "
        "mean, dynamic sampling, no KL; the upper bound, a weight of 5, is from ScaleRL, arXiv "
        "2510.13786, as MiniMax does not give theirs",
        loss="cispo",
        clip=Clip(1.0, 4.0),
        keep_dropped_in_denominator=False,
    ),
    "rloo": Preset(
        source="arXiv 2402.14740 (with KL in the reward); the clip, which with one update per "
        "rollout leaves the paper's REINFORCE gradient as it is, guards further updates",
        advantage="rloo",
        aggregation="seq_mean_token_sum",
    ),
    "reinforce_pp": Preset(
        source="arXiv 2501.03262: whitened over the batch, token mean (with k1 in the reward)",
        advantage="reinforce_pp",
    ),
    "egpo": Preset(
        source="arXiv 2508.05118 v4, eq. 5 (with KL coefficient 0.001 in the loss); the token "
        "mean is the default of verl, which the paper names as its framework",
        advantage="egpo",
    ),
    "egpo_scaled_clip": Preset(
        source="zhangdw156/verl 0350dd9c with verl's defaults: token mean, dual clip 3",
        advantage="egpo_scaled_clip",
        clip=Clip(dual=3.0),
    ),
    "verl_grpo": Preset(
        source="verl b178a3cd with adv_estimator = grpo and nothing else set: token mean, dual "
        "clip 3, no KL",
        clip=Clip(dual=3.0),
    ),
    "trl_grpo": Preset(
        source="TRL f2cd5771, GRPOConfig with nothing set: 1e-4 beside the deviation, mean over "
        "all tokens of the batch (loss_type = dapo), no KL",
        advantage_options=AdvantageOptions(epsilon=1e-4),
    ),
    "trl_rloo": Preset(
        source="TRL f2cd5771, RLOOConfig: the clip holds the probability of the whole completion; "
        'its KL of 0.05 is kl = { coef = 0.05, estimator = "k1", where = "reward" }',
        advantage="rloo",
        loss="sequence_clip",
        aggregation="seq_mean_token_sum",
    ),
    "lever_plus": Preset(
        source="yunsoft2019/Lever-Plus 78592f63: the ratio of a whole selection, deviations of "
        "0.1 at least, advantages held at 5; its KL is kl = { coef = 0.12, estimator = "
        '"k3_sequence_reverse" }, its candidates are stored',
        advantage_options=AdvantageOptions(epsilon=0.0, least_std=0.1, limit=5.0),
        loss="sequence_clip",
        aggregation="seq_mean_token_sum",
    ),
}


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
            # verl 0.9 divides by the episodes as well; without it, by the padded length.
            f"{_ACTOR}.loss_scale_factor": "max_tokens",
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
    "lever_plus": {"TRL": {}, "verl": {}, "ms-swift": {}},
}
