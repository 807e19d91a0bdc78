"""Rules about training, on the reports' figures and on stages that are sound."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from assay.judge.health_checks import check_health
from assay.judge.health_rules import RULES as HEALTH_RULES
from assay.judge.identity import IDENTITY_RULES
from assay.lab.improve.training_rules import (
    HEALTH,
    differing,
    freeze,
    health,
    kl_at_start,
    kl_returns,
    load_strictly,
    lost_tensors,
)
from assay.models.weight_files import save_module
from assay.runs.run_directory import RunDirectory
from tests.lab.improve.evidence_of import evidence, measured, stage

RCE, LATE = "rce.step-000004", "rl.step-000004"
KL = {"kl": {"coef": 0.12}}


def lines(*values: float, **more: float):
    return [{"step": n, "seconds": 0.5, "kl": kl, **more} for n, kl in enumerate(values, 1)]


def rl(*values: float, **changes):
    return stage(lines=lines(*values), changes={**KL, **changes})


def test_a_falling_kl_is_a_way_back_to_the_reference():
    """Report 002 read 0.094, 0.081, 0.074 as moving away."""
    falling = [0.094, 0.0885, 0.0842, 0.0813, 0.079, 0.0768, 0.0741]
    (found,) = kl_returns(evidence(rl(*falling)))
    assert found.stake.unit == "movement" and 0.15 < found.stake.share < 0.3
    assert found.evidence[0].figures["reference"] == "stage_start"
    assert not [*kl_returns(evidence(rl(*reversed(falling))))]
    assert not [*kl_returns(evidence(rl(0.09, 0.03, 0.08, 0.1, 0.05, 0.09, 0.06)))]


def test_a_kl_before_any_update_is_a_mismatch_of_log_probs():
    """0.094 at the first step: dropout in training, none when the old log-probs were computed."""
    (found,) = kl_at_start(evidence(rl(0.094, 0.081, 0.074)))
    assert found.aim == "correct" and found.stake.share == 1
    assert found.evidence[0].figures["first"] == "0.094"
    assert not [*kl_at_start(evidence(rl(0.0, 0.05, 0.09)))]


def test_the_first_kl_of_several_updates_is_movement():
    several = rl(0.094, 0.1, updates={"minibatches": 2})
    assert not [*kl_at_start(evidence(several))]
    to_base = rl(0.094, 0.1, kl={"coef": 0.1, "reference": "base"})
    assert not [*kl_at_start(evidence(to_base))]


def test_freezing_is_tried_only_where_training_every_weight_was_shown_worse():
    good, half = [1.0] * 40, [1.0, 0.0] * 20
    (found,) = freeze(evidence(stage(), measured=[measured({RCE: good, LATE: half})]))
    assert (found.aim, found.stake.share) == ("explore", 0.5) and found.stake.at_most
    assert not [*freeze(evidence(stage(), measured=[measured({RCE: half, LATE: half})]))]
    adapted = stage(changes={"adapt": {"kind": "lora"}})
    assert not [*freeze(evidence(adapted, measured=[measured({RCE: good, LATE: half})]))]


def unhealthy(**values: float):
    found = [{"step": n, "seconds": 1.0, **values} for n in range(1, 21)]
    return replace(stage(lines=found), health=check_health(found).findings)


def test_health_findings_become_improvements_with_the_share_that_was_recorded():
    (found,) = health(evidence(unhealthy(truncated_share=0.4)))
    assert (found.rule, found.stake.unit) == ("truncated", "answers")
    assert found.stake.share == pytest.approx(0.4)
    assert found.change == ("fix.max_tokens",)
    assert found.evidence[1].figures["value"] == "40.0%"
    assert not [*health(evidence(unhealthy(truncated_share=0.01)))]


def test_a_finding_without_a_share_puts_the_steps_of_its_stage_at_stake():
    sound = stage("rce", lines=lines(*[0.0] * 60))
    (found,) = health(evidence(sound, unhealthy(kl=0.5)))
    assert (found.rule, found.stake.unit, found.stake.share) == ("kl_blow_up", "steps", 0.25)


def test_every_health_rule_is_a_change_or_known_to_be_none():
    elsewhere = {"no_signal", "falling_speed", "over_budget", "rising_api_errors"}
    elsewhere |= {"no_penalty", "no_replacement", "no_mask"}  # notes alone
    assert HEALTH.keys() | elsewhere == HEALTH_RULES.keys() | {
        rule.__name__ for rule in IDENTITY_RULES
    }
    shares = [name for name, meaning in HEALTH.items() if meaning.share]
    assert all(HEALTH_RULES[name].metrics[0].endswith("_share") for name in shares)


def saved(run: RunDirectory, stage: str, module: nn.Module) -> None:
    folder = run.checkpoint(stage, 4)
    folder.mkdir(parents=True)
    save_module(module, folder)


def test_a_start_whose_tensors_are_not_all_there_was_not_loaded_strictly(tmp_path: Path):
    """Report 004, 3.2: `strict=False` loses them in silence."""
    run = RunDirectory(tmp_path, "demos", "20260101T000000Z-000000")
    saved(run, "rce", nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 12, bias=False)))
    saved(run, "rl", nn.Sequential(nn.Linear(4, 4, bias=False)))
    found = replace(evidence(stage()), run=run)
    (said,) = load_strictly(found)
    figures = said.evidence[0].figures
    assert (figures["missing"], figures["unexpected"], figures["first"]) == ("1", "0", "1.weight")
    assert said.stake.share == 48 / 64 and said.aim == "protect"


def test_the_same_tensors_are_no_finding_whatever_their_values(tmp_path: Path):
    run = RunDirectory(tmp_path, "demos", "20260101T000000Z-000000")
    for name in ("rce", "rl"):
        saved(run, name, nn.Linear(4, 4))
    assert not [*load_strictly(replace(evidence(stage()), run=run))]
    (run.checkpoint("rl", 4) / "module.safetensors").rename(run.checkpoint("rl", 4) / "gone")
    assert lost_tensors(run, RCE, LATE) is None


@pytest.mark.parametrize(
    ("before", "after", "missing", "unexpected", "share"),
    [
        ({"a": (2, 3), "b": (4,)}, {"a": (2, 3), "b": (4,)}, (), (), 0.0),
        ({"a": (2, 3), "b": (4,)}, {"a": (3, 2), "b": (4,)}, ("a",), (), 0.6),
        ({"a": (6,)}, {"a": (6,), "gate": (2,)}, (), ("gate",), 0.25),
    ],
)
def test_tensors_are_told_apart_by_name_and_shape(before, after, missing, unexpected, share):
    found = differing(before, after)
    assert (found.missing, found.unexpected, found.share) == (missing, unexpected, share)
