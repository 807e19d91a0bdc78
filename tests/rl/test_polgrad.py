"""Losses beside polgrad's register and the losses of verl, OpenRLHF and TRL that it vendors.

ASSAY_POLGRAD_PYTHON names the Python in which polgrad 0.2.1 is installed. Where the two mean
something else by a name, the case says what is set on their side; docs/algorithms.md says why.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.rl.advantages import ADVANTAGES, AdvantageInput
from assay.rl.aggregation import Importance, token_weights
from assay.rl.losses import Clip
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores
from assay.rl.presets import PRESETS

PYTHON = os.environ.get("ASSAY_POLGRAD_PYTHON", "")
ROWS, LENGTH, UPDATES = 12, 9, 4
"""Three groups of four; two epochs of two updates."""
RATES = {"seq_mean_token_sum": 2.0, "seq_mean_token_sum_norm": 40.0}
USUAL = 12.0
"""Learning rates by aggregation that bring ratios past each bound."""
TOLERANCE = 1e-6
SEEDS = range(10)
LOWER = {"seq_mean_token_sum_norm": "token_sum_norm"}
DR = {"norm_len": LENGTH}
SOFT = {"clip": {"eps_low": None, "eps_high": 4.0}}
PAPER: dict[str, dict[str, Any]] = {
    "grpo": {"theirs": "grpo"},
    "dr_grpo": {"theirs": "dr_grpo", "changes": DR},
    "dapo": {"theirs": "dapo"},
    "gspo": {"theirs": "gspo"},
    "gspo, by tokens": {"preset": "gspo", "theirs": "gspo_token"},
    "cispo": {"theirs": "cispo", "changes": SOFT},
    "reinforce_pp": {"theirs": "reinforce_pp", "changes": {"aggregation": "token_mean"}},
    "rloo": {"theirs": "rloo", "ours": {"loss": "gpg"}},
    "verl_grpo": {
        "theirs": "dapo",
        "changes": {"clip": {"eps_low": 0.2, "eps_high": 0.2, "ratio_cap": 3.0}},
    },
    "trl_grpo": {"theirs": "dapo", "changes": {"clip": {"eps_low": 0.2, "eps_high": 0.2}}},
}
"""By preset: polgrad's algorithm, what is changed of it, what is changed of ours."""
KL = {
    f"KL {kind}": {"preset": "grpo", "theirs": "grpo", "changes": {"kl": kind}, "kl": kind}
    for kind in ("k2", "k3", "abs")
}
TIS = {
    f"TIS {level}": {
        "preset": "grpo",
        "theirs": "grpo",
        "changes": {"is_correction": [1.1, level]},
        "ours": {"importance": Importance(level, high=1.1)},  # type: ignore[arg-type]
    }
    for level in ("token", "sequence")
}
AVERAGES = {
    f"{mode}": {
        "preset": "dapo",
        "theirs": "dapo",
        "changes": {"aggregation": LOWER.get(mode, mode), **DR},
        "aggregation": mode,
    }
    for mode in (
        *("token_mean", "seq_mean_token_mean"),
        *("seq_mean_token_sum", "seq_mean_token_sum_norm"),
    )
}
VENDORED = {
    f"{program} {name}": {
        "preset": "verl_grpo" if program == "verl" else "trl_grpo",
        "theirs": "dapo",
        "vendored": [program, name],
        "aggregation": mode,
        "ours": {"clip": Clip(dual=3.0 if program == "verl" else None)},
    }
    for program, name, mode in (
        ("verl", "pg_clip_token_mean", "token_mean"),
        ("verl", "pg_clip_seq_mean_token_mean", "seq_mean_token_mean"),
        ("verl", "pg_clip_seq_mean_token_sum", "seq_mean_token_sum"),
        ("verl", "pg_clip_seq_mean_token_sum_norm", "seq_mean_token_sum_norm"),
        ("openrlhf", "pg_clip_token_mean", "token_mean"),
        ("openrlhf", "pg_clip_seq_mean_token_mean", "seq_mean_token_mean"),
        ("trl", "grpo", "seq_mean_token_mean"),
        ("trl", "bnpo", "token_mean"),
        ("trl", "dr_grpo", "seq_mean_token_sum_norm"),
    )
}
CASES = PAPER | KL | TIS | AVERAGES | VENDORED


def drawn(seed: int, case: dict[str, Any], name: str) -> dict[str, Any]:
    """A case with random rows: ragged, with tokens in the middle that are not trained."""
    made, preset = torch.Generator().manual_seed(seed), PRESETS[case.get("preset", name)]
    shape = ROWS, LENGTH
    lengths = torch.randint(2, LENGTH + 1, (ROWS, 1), generator=made)
    mask = torch.arange(LENGTH) < lengths
    mask[:, 1:] &= torch.rand(ROWS, LENGTH - 1, generator=made) > 0.15
    old = -2 * torch.rand(shape, generator=made, dtype=torch.float64)

    def near(size: float) -> list[list[float]]:
        noise = torch.randn(shape, generator=made, dtype=torch.float64)
        return (old + size * noise).tolist()

    return {
        "algorithm": case["theirs"],
        "vendored": case.get("vendored"),
        "changes": {"kl": None, **case.get("changes", {})} if "vendored" not in case else {},
        "kl_coef": 0.04,
        "epsilon": preset.advantage_options.epsilon,
        "rewards": torch.rand(ROWS, generator=made, dtype=torch.float64).tolist(),
        "groups": [row // 4 for row in range(ROWS)],
        "mask": mask.tolist(),
        "old": old.tolist(),
        "reference": near(0.3),
        "rollout": near(0.1),
        "updates": UPDATES,
        "rate": RATES.get(case.get("aggregation", preset.aggregation), USUAL),
    }


def batch_of(case: dict[str, Any], given: dict[str, Any], preset: str) -> Packed:
    """The same rows as a packed batch, with the preset's advantages and weights."""
    chosen, mask_S = PRESETS[preset], torch.tensor(given["mask"]).flatten()
    episode_S = torch.arange(ROWS).repeat_interleave(LENGTH)
    groups_E = torch.tensor(given["groups"])
    rewards_E = torch.tensor(given["rewards"], dtype=torch.float64)
    source = AdvantageInput(rewards_E, groups_E, episode_S, mask_S)
    mode = case.get("aggregation", chosen.aggregation)
    return Packed(
        contexts=((),) * ROWS,  # type: ignore[arg-type]
        actions_S=torch.zeros(ROWS * LENGTH, dtype=torch.long),
        offsets_N1=torch.arange(ROWS + 1) * LENGTH,
        episode_N=torch.arange(ROWS),
        group_N=groups_E,
        mask_S=mask_S,
        weight_S=token_weights(mode, mask_S, episode_S, scale=float(ROWS * LENGTH)),
        advantage_S=ADVANTAGES[chosen.advantage](source, chosen.advantage_options),
        behaviour_S=flat(given["rollout"]),
        excess_S=torch.zeros(ROWS * LENGTH),
        old_S=flat(given["old"]),
        reference_S=flat(given["reference"]),
    )


def flat(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).flatten()


def check(case: dict[str, Any], given: dict[str, Any], name: str, theirs: dict[str, Any]) -> float:
    """The largest difference of a case's advantages, losses and gradients."""
    preset = case.get("preset", name)
    chosen, packed = PRESETS[preset], batch_of(case, given, preset)
    options = {"loss": chosen.loss, "clip": chosen.clip, "importance": Importance(how="off")}
    options |= {"kl_coef": 0.04, "kl_estimator": case["kl"]} if "kl" in case else {}
    objective = GrpoObjective(several_updates=True, **{**options, **case.get("ours", {})})
    assert packed.old_S is not None
    gaps = [(packed.advantage_S - flat(theirs["advantage"])).abs().max()]
    new_S, clipped = packed.old_S.clone(), 0.0
    for step in theirs["steps"]:
        new_S = new_S.detach().requires_grad_()
        answer = objective(ActionScores(new_S, None), packed)
        answer.loss.backward()
        assert new_S.grad is not None
        gaps += [
            abs(float(answer.loss.detach()) - step["loss"]),
            (new_S.grad - flat(step["gradient"])).abs().max(),
        ]
        new_S = new_S - given["rate"] * new_S.grad
        clipped += float(answer.sums["clip_low_share"] + answer.sums["clip_high_share"])
    assert clipped or options["loss"] == "cispo" or case.get("ours", {}).get("loss") == "gpg"
    return max(map(float, gaps))


@pytest.fixture(scope="module")
def answers() -> dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """What was drawn of each case, and polgrad's answer; one process, which imports torch once."""
    given = {name: [drawn(seed, case, name) for seed in SEEDS] for name, case in CASES.items()}
    done = subprocess.run(
        [PYTHON, Path(__file__).with_name("in_polgrad.py")],
        input=json.dumps([each for cases in given.values() for each in cases]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = iter(json.loads(done.stdout))
    return {name: [(each, next(told)) for each in cases] for name, cases in given.items()}


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="ASSAY_POLGRAD_PYTHON is not set")
@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_the_register(name, answers, record_property) -> None:
    gap = max(check(CASES[name], given, name, theirs) for given, theirs in answers[name])
    record_property("shown", f"{name}: {gap:.1e}")
    assert gap <= TOLERANCE
