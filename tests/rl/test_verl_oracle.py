"""Every row of verl's numeric fixtures but those of critics: values, gradients, clip metrics."""

from collections import Counter
from pathlib import Path
from typing import Any

import torch

from assay.rl.advantages import (
    ADVANTAGES,
    AdvantageInput,
    AdvantageOptions,
    masked_mean,
    masked_whiten,
    returns_to_go,
)
from assay.rl.aggregation import Dropped, aggregate, token_weights
from assay.rl.kl import kl_estimate
from assay.rl.losses import LOSSES, Clip, TokenBatch
from tests.rl.verl import agree, episodes, flat, flat_mask, rows

ESTIMATORS = {
    "compute_rloo_outcome_advantage": "rloo",
    "compute_opo_outcome_advantage": "opo",
    "compute_gpg_outcome_advantage": "gpg",
    "compute_grpo_passk_outcome_advantage": "pass_at_k",
    "compute_reinforce_plus_plus_outcome_advantage": "reinforce_pp",
    "compute_reinforce_plus_plus_baseline_outcome_advantage": "reinforce_pp_baseline",
}
# verl averages these with one mode whatever the configuration says.
SEQUENCE_AVERAGED = {"gspo", "sapo", "geo_mean"}


def estimator_of(row: dict[str, Any]) -> str:
    if row["function"] == "compute_grpo_outcome_advantage":
        return "grpo" if row["params"]["norm_adv_by_std"] else "mean_only"
    return ESTIMATORS[row["function"]]


def advantage_input(row: dict[str, Any]) -> AdvantageInput:
    mask = row["input"]["response_mask"]
    return AdvantageInput(
        rewards_E=torch.tensor(row["input"]["rewards"], dtype=torch.float64),
        group_E=torch.tensor(row["input"]["group"]),
        episode_S=episodes(mask),
        mask_S=flat_mask(mask),
    )


def test_advantages_and_returns_agree_with_verl(shared: Path):
    counts = Counter()
    for row in rows(shared, "advantage"):
        options = AdvantageOptions(
            lone="reward",
            scale_by_std=row["params"].get("norm_adv_by_std", True),
            gamma=row["params"].get("gamma", 1.0),
            f_norm=row["params"].get("f_norm", 1.0),
        )
        name = estimator_of(row)
        batch = advantage_input(row)
        advantage_S = ADVANTAGES[name](batch, options)
        agree(advantage_S, row["expected"]["advantages"], row)
        returned = returns_to_go(batch, options.gamma) if name == "reinforce_pp" else advantage_S
        agree(returned, row["expected"]["returns"], row)
        counts[row["function"]] += 1
    assert counts["compute_grpo_outcome_advantage"] == 10
    assert counts.total() == 50


def policy_weights(row: dict[str, Any], mask: list[list[int]]) -> torch.Tensor:
    mode = row["params"]["loss_agg_mode"].replace("-", "_")
    dropped = None
    if row["function"] in SEQUENCE_AVERAGED:
        mode = "seq_mean_token_mean"
    if row["function"] == "geo_mean":
        # verl's geo_mean, unlike its aggregations, also counts sequences without a token.
        dropped = Dropped(episodes=sum(not any(tokens) for tokens in mask))
    scale = float(len(mask[0]))
    return token_weights(mode, flat_mask(mask), episodes(mask), scale=scale, dropped=dropped)


def test_policy_losses_gradients_and_clip_metrics_agree_with_verl(shared: Path):
    counts = Counter()
    for row in rows(shared, "policy_loss"):
        given, params, expected = row["input"], row["params"], row["expected"]
        mask = given["response_mask"]
        logps_S = flat(given["logprob"]).requires_grad_()
        batch = TokenBatch(
            logps_S,
            flat(given["old_logprob"]),
            flat(given["advantages"]),
            flat_mask(mask),
            episodes(mask),
        )
        clip = Clip(
            low=params.get("clip_ratio_low", params["clip_ratio"]),
            high=params.get("clip_ratio_high", params["clip_ratio"]),
            dual=params["clip_ratio_c"],
            tau_positive=params.get("tau_pos", 1.0),
            tau_negative=params.get("tau_neg", 1.05),
        )
        name = "ppo_clip" if row["function"] == "vanilla" else row["function"]
        answer = LOSSES[name](batch, clip)
        loss = aggregate(policy_weights(row, mask), answer.loss_S)
        loss.backward()
        agree(loss.detach(), expected["loss"], row)
        assert logps_S.grad is not None
        agree(logps_S.grad, expected["grad_wrt_logprob"], row)
        if expected["metrics"]:
            low, high, dual = answer.clip_low_S, answer.clip_high_S, answer.dual_clip_S
            upper, lower = (high, low) if name == "geo_mean" else (low + high, dual)
            metrics = {
                "actor/pg_clipfrac": upper,
                "actor/pg_clipfrac_lower": lower,
                "actor/ppo_kl": -answer.log_ratio_S,
            }
            assert metrics.keys() == expected["metrics"].keys()
            for key, values_S in metrics.items():
                agree(masked_mean(values_S, batch.mask_S), expected["metrics"][key], row)
        counts[name] += 1
    assert counts == {
        "ppo_clip": 43,
        "gpg": 13,
        "gspo": 13,
        "geo_mean": 13,
        "cispo": 11,
        "sapo": 4,
    }


def test_kl_estimators_and_their_gradients_agree_with_verl(shared: Path):
    counts = Counter()
    for row in rows(shared, "kl"):
        logps_S = flat(row["input"]["logprob"]).requires_grad_()
        values_S = kl_estimate(row["params"]["kind"], logps_S, flat(row["input"]["ref_logprob"]))
        values_S.sum().backward()
        assert logps_S.grad is not None
        agree(values_S.detach(), row["expected"]["kl"], row)
        agree(logps_S.grad, row["expected"]["grad_of_sum_wrt_logprob"], row)
        counts[row["params"]["kind"]] += 1
    assert counts == {"k1": 4, "k2": 3, "k3": 2, "low_var_kl": 5, "abs": 5}


def test_aggregations_agree_with_verl(shared: Path):
    counts = Counter()
    for row in rows(shared, "agg"):
        mask = row["input"]["loss_mask"]
        mode = row["params"]["loss_agg_mode"].replace("-", "_")
        weight_S = token_weights(mode, flat_mask(mask), episodes(mask), scale=len(mask[0]))
        agree(aggregate(weight_S, flat(row["input"]["loss_mat"])), row["expected"]["loss"], row)
        counts[mode] += 1
    assert len(counts) == 4
    assert counts.total() == 18


def test_masked_statistics_agree_with_verl_also_where_masked_values_are_nan(shared: Path):
    checked = 0
    for row in rows(shared, "masked"):
        values_S, mask_S = flat(row["input"]["values"]), flat_mask(row["input"]["mask"])
        agree(masked_mean(values_S, mask_S), row["expected"]["masked_mean"], row)
        if "masked_whiten" in row["expected"]:
            agree(masked_whiten(values_S, mask_S), row["expected"]["masked_whiten"], row)
        checked += 1
    assert checked == 7
