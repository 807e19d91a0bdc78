"""Run by the Python in which polgrad is installed: losses and gradients of two epochs of updates.

Reads the cases as JSON from stdin, each with padded rows (B, T); writes the answers to stdout.
"""

import json
import sys
from dataclasses import replace

import torch
from polgrad import (
    ALGORITHMS,
    Aggregation,
    ClipConfig,
    ISCorrectionConfig,
    KLEstimator,
    KLLossConfig,
    advantages,
    policy_loss,
)
from polgrad.conformance import VENDORED


def of(values):
    return torch.tensor(values, dtype=torch.float64)


def advantage(case):
    """By polgrad's own estimator of the algorithm."""
    rewards, mask = of(case["rewards"]), torch.tensor(case["mask"])
    spec, groups = ALGORITHMS[case["algorithm"]], torch.tensor(case["groups"])
    if spec.advantage == "rloo":
        own = advantages.rloo_advantages(rewards, groups)
    elif spec.advantage == "reinforce_pp":
        tokens = advantages.broadcast_to_tokens(rewards, mask)
        return advantages.whiten(tokens, mask)
    else:
        config = replace(spec.advantage_config, eps=case["epsilon"])
        own = advantages.grpo_advantages(rewards, groups, config)
    return advantages.broadcast_to_tokens(own, mask)


def loss_of(case, adv):
    """The loss of log-probs, old ones given."""
    mask = torch.tensor(case["mask"])
    if case.get("vendored"):
        fn = VENDORED[tuple(case["vendored"])]
        return lambda new, old: fn(
            logprobs=new, old_logprobs=old, advantages=adv, response_mask=mask
        )
    config = ALGORITHMS[case["algorithm"]].loss
    changes = dict(case["changes"])
    if "clip" in changes:
        changes["clip"] = None if changes["clip"] is None else ClipConfig(**changes["clip"])
    if "aggregation" in changes:
        changes["aggregation"] = Aggregation(changes["aggregation"])
    if changes.get("kl"):
        changes["kl"] = KLLossConfig(KLEstimator(changes["kl"]), case["kl_coef"])
    if changes.get("is_correction"):
        changes["is_correction"] = ISCorrectionConfig(*changes["is_correction"])
    config = replace(config, **changes)
    given = {"advantages": adv, "response_mask": mask}
    given |= {"ref_logprobs": of(case["reference"])} if config.kl else {}
    given |= {"rollout_logprobs": of(case["rollout"])} if config.is_correction else {}
    return lambda new, old: policy_loss(config, logprobs=new, old_logprobs=old, **given).loss


answers = []
for case in json.load(sys.stdin):
    made = advantage(case)
    loss, old = loss_of(case, made), of(case["old"])
    new, steps = old.clone(), []
    for _ in range(case["updates"]):
        new = new.detach().requires_grad_()
        value = loss(new, old)
        value.backward()
        steps.append({"loss": float(value), "gradient": new.grad.tolist()})
        new = new - case["rate"] * new.grad
    answers.append({"advantage": made.tolist(), "steps": steps})
json.dump(answers, sys.stdout)
