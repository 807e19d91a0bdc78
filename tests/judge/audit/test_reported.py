"""The five reported logs: everything that is wrong with them is found, and nothing else is said.

Names of tests are the traps. `EVERY_FINDING` holds all findings of each record, so that none beyond
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


def the(name: str, key: str, about: str) -> Finding:
    """The one finding of this key about this."""
    (flaw,) = [f for f in findings(name) if (f.code, f.values["about"]) == (key, about)]
    return flaw


def figures(flaw: Finding, *names: str) -> list[float]:
    return [round(float(flaw.values[name]), 1) for name in names]


# Tool calling: five passes over 200 items.


@pytest.mark.parametrize(("run", "here", "there"), [("full5", "100", "1k"), ("full6", "1k", "100")])
def test_the_labels_of_full5_and_full6_disagree(run: str, here: str, there: str):
    numbers = the(TOOLS, "label_disagrees", run).values
    assert (numbers["here"], numbers["there"]) == (f"hardgen {here}", f"hardgen {there}")


def test_14_25_is_impossible_with_200_items_of_half_a_percent():
    numbers = the(TOOLS, "impossible_granularity", "baseline_4bthinking").values
    assert (numbers["values"], numbers["items"], numbers["unit"]) == ("14.25, 14.75", 200, 0.5)
    assert (numbers["below"], numbers["above"]) == (14.0, 14.5)


def test_the_thinking_baseline_is_a_quarter_of_half_percent_steps():
    numbers = the(TOOLS, "fraction_of_plausible", "baseline_4bthinking").values
    assert (numbers["times"], numbers["missing"]) == (4, 3)
    assert numbers["restored"] == "60.00, 62.00, 57.00, 62.00, 59.00"


@pytest.mark.parametrize("run", ["lora1", "lora2", "verl2", "lora3", "full7", "verl6"])
def test_no_effect_is_not_shown_of_runs_near_the_baseline(run: str):
    flaw = the(TOOLS, "no_effect_not_shown", f"{run} / baseline")
    low, high = figures(flaw, "low", "high")
    assert low < -8 and high > 7


@pytest.mark.parametrize(
    ("run", "verdict", "difference"),
    [
        ("verl1", "better", 18.8),
        ("verl4", "better", 15.7),
        ("full4", "better", 20.4),
        ("full2", "worse", -16.2),
    ],
)
def test_the_large_differences_to_the_baseline_are_decided(
    run: str, verdict: str, difference: float
):
    flaw = the(TOOLS, verdict, f"{run} / baseline")
    assert figures(flaw, "difference") == [difference]
    assert float(flaw.values["p"]) < 0.05


def test_verl4_against_verl1_is_undecided():
    flaw = the(TOOLS, "inside_noise", "verl4 / verl1")
    assert figures(flaw, "difference", "low", "high") == [-3.1, -12.7, 6.6]


def test_full4_against_full1_is_not_comparable():
    flaw = the(TOOLS, "several_factors", "full4 / full1")
    assert flaw.values["count"] == 2
    assert "learning_rate: 0.0001 → 0.00001" in str(flaw.values["what"])
    assert "prompt" in str(flaw.values["what"])
    assert not [
        f
        for f in findings(TOOLS)
        if f.values["about"] == flaw.values["about"] and f.code == "better"
    ]


def test_five_alike_repeats_are_not_a_thousand_items():
    numbers = the(TOOLS, "repeats_alike", "bfcl/multi_turn_base").values
    assert round(float(numbers["spread"]), 2) == 0.54
    assert numbers["identical"] == "verl5"


# Math: three models on four benchmarks.


def test_strictly_better_rests_on_40_items_and_less():
    numbers = the(MATH, "cells_inside_noise", "GRPO / course baseline, GRPO").values
    assert (numbers["decided"], numbers["cells"], numbers["fewest"]) == (1, 4, 40)
    assert numbers["which"] == "OlympiadBench"
    numbers = the(MATH, "cells_inside_noise", "long CoT / course baseline, long CoT").values
    assert (numbers["decided"], numbers["cells"]) == (0, 4)


def test_a_score_of_40_items_has_an_interval_of_thirty_points():
    flaw = the(MATH, "few_items", "AMC23")
    assert figures(flaw, "score", "low", "high") == [50.0, 35.2, 64.8]


def test_the_best_of_18_search_points_is_not_corrected():
    numbers = the(MATH, "best_of_many", "short CoT").values
    assert numbers["points"] == 18
    assert numbers["each"] == "AMC23 14.1, GSM8K 2.3, MATH500 4.0, OlympiadBench 2.2"


def test_the_harmonic_score_follows_from_counts_and_not_from_rounded_scores():
    numbers = the(MATH, "harmonic_holds", "short CoT").values
    assert numbers["counts"] == "16/40, 933/1319, 206/500, 73/675"
    assert numbers["value"] == "1.0758890919394155"
    assert round(float(numbers["rounded"]), 5) == 1.07539


# Demonstration selector: KL beta 0.12 against 0.15.


@pytest.mark.parametrize("epoch", [1, 2])
def test_kl_0_12_against_0_15_is_not_comparable(epoch: int):
    about = f"0.12, epoch {epoch} / 0.15, epoch {epoch}"
    what = str(the(KL, "several_factors", about).values["what"])
    assert "base: RCE epoch 2 → RCE epoch 5" in what
    assert the(KL, "different_data", about).values["control"] == "rl_data_k64_v3.json"


def test_epochs_1_and_2_of_0_12_are_identical():
    assert the(KL, "same_values", "0.12, epoch 1 / 0.12, epoch 2").values["equal"] == 4


def test_epochs_1_and_2_of_0_15_are_equal_in_10_of_16_cells():
    numbers = the(KL, "mostly_same_values", "0.15, epoch 1 / 0.15, epoch 2").values
    assert (numbers["equal"], numbers["cells"]) == (10, 16)


def test_the_loss_identity_holds_on_three_rows():
    numbers = the(KL, "identity_holds", "train loss").values
    assert (numbers["rows"], numbers["wrong"]) == (3, 0)


def test_a_falling_kl_is_misread_as_moving_away():
    numbers = the(KL, "distance_misread", "KL to the old policy").values
    assert (numbers["reads"], numbers["means"]) == ("away", "towards")


def test_a_beta_of_0_18_is_discussed_without_a_result():
    assert the(KL, "never_run", "0.18, epoch 2 / 0.12, epoch 2").values["name"] == "0.18, epoch 2"


def test_all_open_cells_are_counted():
    (flaw,) = [f for f in findings(KL) if f.code == "left_open"]
    assert (flaw.values["count"], flaw.values["places"]) == (178, 10)


def test_two_shares_are_given_for_one_file():
    numbers = the(KL, "label_disagrees", "rl_data_k64_v3.json").values
    assert (numbers["here"], numbers["there"]) == ("83", "53.3")


# Workflows: five steps of GRPO.


def test_43_of_44_to_64_of_64_is_undecided_with_its_intervals():
    flaw = the(WORKFLOW, "rate_inside_noise", "format correct")
    assert (flaw.values["before"], flaw.values["after"]) == ("43/44", "64/64")
    assert figures(flaw, "before_low", "before_high") == [88.2, 99.6]
    assert figures(flaw, "after_low", "after_high") == [94.3, 100.0]
    assert figures(flaw, "difference", "low", "high") == [2.3, -3.7, 11.8]


def test_4_5_to_3_1_percent_is_undecided_with_its_intervals():
    flaw = the(WORKFLOW, "rate_inside_noise", "eval() errors")
    assert figures(flaw, "before_low", "before_high") == [1.3, 15.1]
    assert figures(flaw, "after_low", "after_high") == [0.9, 10.7]
    assert figures(flaw, "difference", "low", "high") == [-1.4, -12.2, 6.8]


def test_500_steps_foretold_from_5_have_an_interval():
    numbers = the(WORKFLOW, "forecast", "total API cost").values
    assert (numbers["step"], numbers["from_step"]) == (500, 5)
    shown = [round(float(numbers[name]), 2) for name in ("foretold", "low", "high")]
    assert shown == [0.86, 0.01, 3.69]


def test_no_fallback_contradicts_errors_that_lead_to_one():
    numbers = the(WORKFLOW, "cause_without_effect", "fallback").values
    assert (numbers["effects"], numbers["causes"], numbers["cause"]) == (0, 4, "API errors")


def test_4_8_is_not_the_mean_of_its_stars():
    numbers = the(WORKFLOW, "mark_not_mean", "health of the training").values
    assert (numbers["says"], round(float(numbers["mean"]), 2)) == ("4.8", 4.67)


def test_two_errors_of_44_and_then_of_64_are_one_count():
    numbers = the(WORKFLOW, "cumulative_as_rate", "eval() errors").values
    assert (numbers["first"], numbers["last"]) == ("2/44", "2/64")
    assert (numbers["new"], numbers["trials"]) == (0, 20)


def test_a_wrong_format_since_the_start_cannot_vanish():
    numbers = the(WORKFLOW, "running_rest_fell", "format correct").values
    assert (numbers["fell_from"], numbers["fell_to"]) == (1, 0)


def test_the_average_cost_is_not_the_total_over_generations():
    numbers = the(WORKFLOW, "quotient", "average API cost").values
    assert (numbers["value"], numbers["count"]) == ("0.000101", "64")
    assert round(float(numbers["quotient"]), 6) == 0.000134
    assert round(float(numbers["implied"])) == 85


# The plan: ranges of differences.


@pytest.mark.parametrize(
    ("about", "largest"),
    [
        ("RCE-only / v2", 1.0),
        ("RCE-only / v1", 1.5),
        ("RCE-only / v0", 4.5),
        ("GRPO after RCE / RCE-only", 4.8),
    ],
)
def test_claims_of_the_plan_rest_on_differences_inside_noise(about: str, largest: float):
    numbers = the(PLAN, "difference_inside_noise", about).values
    assert (numbers["largest"], numbers["items"]) == (largest, 800)
    assert float(numbers["low"]) < 0 < float(numbers["high"])


def test_four_nested_sizes_are_not_four_proofs():
    numbers = the(PLAN, "nested_subsets", "OKVQA, 2 shots").values
    assert (numbers["sizes"], numbers["largest"]) == ("100, 200, 400, 800", 800)


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
