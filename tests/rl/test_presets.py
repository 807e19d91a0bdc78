"""Presets: what each paper sets, and that every name in them exists."""

from assay.rl.advantages import ADVANTAGES
from assay.rl.aggregation import AGGREGATIONS
from assay.rl.losses import LOSSES, Clip
from assay.rl.presets import ELSEWHERE, PRESETS

EXPECTED = {
    # name: advantage, loss, aggregation, clip, keep_dropped_in_denominator
    "grpo": ("grpo", "ppo_clip", "seq_mean_token_mean", Clip(0.2, 0.2), True),
    "dr_grpo": ("mean_only", "ppo_clip", "seq_mean_token_sum_norm", Clip(0.2, 0.2), True),
    "dapo": ("grpo", "ppo_clip", "token_mean", Clip(0.2, 0.28), False),
    "gspo": ("grpo", "gspo", "seq_mean_token_mean", Clip(3e-4, 4e-4), True),
    "cispo": ("grpo", "cispo", "token_mean", Clip(1.0, 4.0), False),
    "rloo": ("rloo", "ppo_clip", "seq_mean_token_sum", Clip(0.2, 0.2), True),
    "reinforce_pp": ("reinforce_pp", "ppo_clip", "token_mean", Clip(0.2, 0.2), True),
    "egpo": ("egpo", "ppo_clip", "token_mean", Clip(0.2, 0.2), True),
    "egpo_scaled_clip": ("egpo_scaled_clip", "ppo_clip", "token_mean", Clip(0.2, 0.2, 3.0), True),
    "verl_grpo": ("grpo", "ppo_clip", "token_mean", Clip(0.2, 0.2, 3.0), True),
    "trl_grpo": ("grpo", "ppo_clip", "token_mean", Clip(0.2, 0.2), True),
    "trl_rloo": ("rloo", "sequence_clip", "seq_mean_token_sum", Clip(0.2, 0.2), True),
    "lever_plus": ("grpo", "sequence_clip", "seq_mean_token_sum", Clip(0.2, 0.2), True),
}


def test_presets_are_those_of_the_papers():
    table = {
        name: (p.advantage, p.loss, p.aggregation, p.clip, p.keep_dropped_in_denominator)
        for name, p in PRESETS.items()
    }
    assert table == EXPECTED
    for preset in PRESETS.values():
        assert preset.advantage in ADVANTAGES and preset.loss in LOSSES
        assert preset.aggregation in AGGREGATIONS and preset.source


def test_every_preset_is_named_in_the_words_of_three_tools():
    assert ELSEWHERE.keys() == PRESETS.keys()
    assert all(list(tools) == ["TRL", "verl", "ms-swift"] for tools in ELSEWHERE.values())
