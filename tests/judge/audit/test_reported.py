"""The five reported logs: everything that is wrong with them is found, and nothing else is said.

`CLAIMS` are the traps. `EVERY_FINDING` holds all findings of each record, so that none beyond
the traps stays unexplained.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from assay.data.reported.read_reported import read_reported
from assay.errors import Finding
from assay.judge.audit.rules import audit_all

FOLDER = Path(__file__).parents[3] / "experiments" / "reported"
TOOLS, MATH, KL, WORKFLOW, PLAN, LATER = sorted(file.stem for file in FOLDER.glob("*.toml"))


@cache
def findings(name: str) -> list[Finding]:
    return audit_all(read_reported(FOLDER / f"{name}.toml").records)


CLAIMS: list[tuple[str, str, str, dict[str, object]]] = [
    # Tool calling: five passes over 200 items. The labels of two runs disagree.
    (TOOLS, "label_disagrees", "full5", {"here": "hardgen 100", "there": "hardgen 1k"}),
    (TOOLS, "label_disagrees", "full6", {"here": "hardgen 1k", "there": "hardgen 100"}),
    (
        TOOLS,
        "impossible_granularity",
        "baseline_4bthinking",
        {"values": "14.25, 14.75", "items": 200, "unit": 0.5, "below": 14.0, "above": 14.5},
    ),
    (
        TOOLS,
        "fraction_of_plausible",
        "baseline_4bthinking",
        {"times": 4, "missing": 3, "restored": "60.00, 62.00, 57.00, 62.00, 59.00"},
    ),
    (TOOLS, "better", "verl1 / baseline", {"difference": 18.8}),
    (TOOLS, "better", "full4 / baseline", {"difference": 20.4}),
    (TOOLS, "worse", "full2 / baseline", {"difference": -16.2}),
    (TOOLS, "inside_noise", "verl4 / verl1", {"difference": -3.1, "low": -12.7, "high": 6.6}),
    (TOOLS, "several_factors", "full4 / full1", {"count": 2}),
    # Five alike repeats are not a thousand items.
    (TOOLS, "repeats_alike", "bfcl/multi_turn_base", {"spread": 0.5, "identical": "verl5"}),
    # Math: three models on four benchmarks.
    (
        MATH,
        "cells_inside_noise",
        "GRPO / course baseline, GRPO",
        {"decided": 1, "cells": 4, "fewest": 40, "which": "OlympiadBench"},
    ),
    (MATH, "few_items", "AMC23", {"score": 50.0, "low": 35.2, "high": 64.8}),
    (
        MATH,
        "best_of_many",
        "short CoT",
        {"points": 18, "each": "AMC23 14.1, GSM8K 2.3, MATH500 4.0, OlympiadBench 2.2"},
    ),
    (
        MATH,
        "harmonic_holds",
        "short CoT",
        {"counts": "16/40, 933/1319, 206/500, 73/675", "value": "1.0758890919394155"},
    ),
    # Demonstration selector: KL beta 0.12 against 0.15.
    (KL, "different_data", "0.12, epoch 1 / 0.15, epoch 1", {"control": "rl_data_k64_v3.json"}),
    (KL, "same_values", "0.12, epoch 1 / 0.12, epoch 2", {"equal": 4}),
    (KL, "mostly_same_values", "0.15, epoch 1 / 0.15, epoch 2", {"equal": 10, "cells": 16}),
    (KL, "identity_holds", "train loss", {"rows": 3, "wrong": 0}),
    (KL, "distance_misread", "KL to the old policy", {"reads": "away", "means": "towards"}),
    (KL, "never_run", "0.18, epoch 2 / 0.12, epoch 2", {"name": "0.18, epoch 2"}),
    (KL, "label_disagrees", "rl_data_k64_v3.json", {"here": "83", "there": "53.3"}),
    # Workflows: five steps of GRPO.
    (
        WORKFLOW,
        "rate_inside_noise",
        "format correct",
        {
            "before": "43/44",
            "after": "64/64",
            "before_low": 88.2,
            "before_high": 99.6,
            "after_low": 94.3,
            "difference": 2.3,
            "low": -3.7,
            "high": 11.8,
        },
    ),
    (
        WORKFLOW,
        "rate_inside_noise",
        "eval() errors",
        {"before_low": 1.3, "after_high": 10.7, "difference": -1.4, "low": -12.2, "high": 6.8},
    ),
    (
        WORKFLOW,
        "forecast",
        "total API cost",
        {"step": 500, "from_step": 5, "foretold": 0.9, "low": 0.0, "high": 3.7},
    ),
    (
        WORKFLOW,
        "cause_without_effect",
        "fallback",
        {"effects": 0, "causes": 4, "cause": "API errors"},
    ),
    (WORKFLOW, "mark_not_mean", "health of the training", {"says": "4.8", "mean": 4.7}),
    # Two errors of 44 and then of 64 are one count.
    (
        WORKFLOW,
        "cumulative_as_rate",
        "eval() errors",
        {"first": "2/44", "last": "2/64", "new": 0, "trials": 20},
    ),
    # A wrong format since the start cannot vanish.
    (WORKFLOW, "running_rest_fell", "format correct", {"fell_from": 1, "fell_to": 0}),
    (
        WORKFLOW,
        "quotient",
        "average API cost",
        {"value": "0.000101", "count": "64", "implied": 84.8},
    ),
    # The plan: ranges of differences, and four sizes that hold each other.
    (PLAN, "difference_inside_noise", "RCE-only / v0", {"largest": 4.5, "items": 800}),
    (PLAN, "nested_subsets", "OKVQA, 2 shots", {"sizes": "100, 200, 400, 800", "largest": 800}),
]


@pytest.mark.parametrize(("name", "key", "about", "values"), CLAIMS)
def test_what_is_wrong_is_found_with_its_figures(name, key, about, values):
    (found,) = [f for f in findings(name) if (f.code, f.values["about"]) == (key, about)]
    shown = {name: found.values[name] for name in values}
    assert {k: round(v, 1) if isinstance(v, float) else v for k, v in shown.items()} == values


EVERY_FINDING: dict[str, dict[str, int]] = {
    TOOLS: {
        "impossible_granularity": 1,
        "fraction_of_plausible": 1,
        # full4 / full1
        "several_factors": 1,
        "label_disagrees": 2,
        # the six of the test above, and full1, which is called "no effect, or even lower"
        "no_effect_not_shown": 7,
        # full5 (Holm: one of 16) and full6 against the baseline; verl4 against verl1 and full4
        "inside_noise": 4,
        "unpaired": 1,
        "repeats_alike": 1,
        # verl7, verl8, verl9, full8, full9
        "left_open": 1,
        "better": 3,
        # full2, full3, verl3, verl5 against the baseline; full2 against full1, one setting apart
        "worse": 5,
    },
    LATER: {
        # verl11 / verl10: estimator and reward
        "several_factors": 1,
        "unpaired": 1,
        "repeats_alike": 1,
        "undecided": 10,
        # full10; full8 and full11
        "better": 1,
        "worse": 2,
    },
    MATH: {
        # The course's own figures: no count of 500 items gives 0.613, rounded or cut off, so this
        # baseline was measured in another way than the model compared with it. 0.115 and 0.174 of
        # 675 are possible where decimals are cut off.
        "impossible_granularity": 1,
        "cells_not_the_same": 1,
        "cells_inside_noise": 2,
        "unpaired": 1,
        "few_items": 1,
        "best_of_many": 1,
        # difficulties, RL from SFT, Clip-Higher: each said of a run that is not in the report
        "effect_without_control": 3,
        # a section with nothing under its heading
        "left_open": 1,
        "harmonic_holds": 1,
    },
    KL: {
        # both epochs
        "several_factors": 2,
        "different_data": 2,
        "label_disagrees": 1,
        "same_values": 1,
        "mostly_same_values": 1,
        "never_run": 1,
        "distance_misread": 1,
        # a rising PPO loss is called learning
        "policy_loss_read": 1,
        "unpaired": 1,
        "left_open": 1,
        "identity_holds": 1,
        # none of the four cells decides, in either epoch
        "cells_judged": 2,
    },
    WORKFLOW: {
        "running_rest_fell": 1,
        "quotient": 1,
        "mark_not_mean": 1,
        "cause_without_effect": 1,
        # format, eval() errors, fallback, the latest five generations
        "few_trials": 4,
        "rate_inside_noise": 2,
        "cumulative_as_rate": 1,
        "forecast": 1,
        # milestones over 95 %, under 5 % and under 5 %, of 64 trials
        "limit_not_shown": 3,
        # under 2 % at step 10, under 1 % and over 99 % at step 20
        "limit_foretold": 3,
        # temperature with prompt, the check of settings, what lowered the cost
        "effect_without_control": 3,
    },
    PLAN: {
        "difference_inside_noise": 4,
        "unpaired": 1,
        "nested_subsets": 1,
        # GRPO on the same data, the raw reward, rows of the fallback metric
        "effect_without_control": 3,
    },
}


@pytest.mark.parametrize("name", EVERY_FINDING)
def test_nothing_is_found_that_is_not_explained(name: str):
    assert Counter(flaw.code for flaw in findings(name)) == EVERY_FINDING[name]


def test_facts_from_elsewhere_say_where_they_come_from():
    for name in EVERY_FINDING:
        (report,) = read_reported(FOLDER / f"{name}.toml").records
        outside = [r for r in report.runs if r.name.startswith("course")]
        outside += [m for m in report.mentions if "learning_rate" in m.settings]
        assert all(part.source for part in outside)
        assert report.scoring.items is None or report.scoring.source
