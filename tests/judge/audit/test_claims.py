"""What a claim is held against: its own pair and benchmarks, the noise of its items and trials, and
the course of its metric."""

import numpy as np
import pytest

from assay.judge.audit.claims import pairs, same_value, verdict_of
from assay.judge.audit.rules import forecast_total
from assay.judge.binomial import compare_counts
from assay.judge.intervals import wilson
from tests.judge.audit.faults import FAULTS, cells, claimed, course, found, rate, record, two_runs

TWO = cells("x = 20, y = 20", "x = 60, y = 21")


def claim(text: str, run: str = "b", control: str = "a") -> str:
    return f'[[comparisons]]\nrun = "{run}"\ncontrol = "{control}"\n{text}\n'


def warned(text: str) -> list[str]:
    """The findings that say that something is wrong."""
    return [flaw.code for flaw in found(text) if flaw.severity != "note"]


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ('cells = "x"\nsays = "better"', []),
        ('cells = "y"\nsays = "better"', ["inside_noise"]),
        ('cells = "x"\nsays = "worse"', ["contradicted"]),
        ('cells = "y"\nsays = "undecided"', []),
        ('cells = "y"\nsays = "same"', ["no_effect_not_shown"]),
        ('cells = ["x", "y"]\nsays = "better"', ["inside_noise"]),
    ],
)
def test_a_claim_of_one_benchmark_is_not_spread_to_others(said: str, keys: list[str]):
    assert warned(TWO + claim(said)) == keys


def test_a_claim_of_the_whole_is_carried_by_the_mean_over_its_benchmarks():
    assert not warned(cells("x = 20, y = 20", "x = 22, y = 80", "better"))
    assert warned(cells("x = 20, y = 20", "x = 21, y = 21", "better")) == ["cells_inside_noise"]
    assert warned(cells("x = 20, y = 20", "x = 22, y = 80", "worse")) == ["contradicted"]


def test_subsets_that_hold_each_other_have_no_mean():
    text = cells("x = 20, y = 20", "x = 22, y = 80", "better").replace(
        "[scoring]\n", "[scoring]\nnested = true\n"
    )
    assert record(text) and pairs(record(text))[0].overall is None


@pytest.mark.parametrize("turned", [False, True])
def test_two_runs_are_judged_once_however_often_they_are_compared(turned: bool):
    said = claim('says = "worse"', "a", "b") if turned else claim('says = "better"')
    text = two_runs(20.0, 22.0) + said * 2
    (pair,) = pairs(record(text))
    assert (pair.name, verdict_of(pair.claims)) == ("b / a", "better")
    assert [flaw.code for flaw in found(text)] == ["inside_noise", "unpaired"]


def test_a_printed_paired_test_is_believed():
    text = two_runs(20.0, 22.0)
    for shown in ("p = 0.01", "interval = [0.5, 3.5]"):
        assert not warned(text + claim(f'says = "better"\npaired = true\n{shown}'))
    for shown in ("p = 0.3", "interval = [-0.5, 4.5]"):
        assert warned(text + claim(f'says = "better"\npaired = true\n{shown}')) == ["inside_noise"]


def with_settings(control: str, run: str, says: str = "better") -> str:
    text = two_runs(20.0, 60.0, says)
    text = text.replace("scores = 20.0\n", f"scores = 20.0\nsettings = {{ {control} }}\n")
    return text.replace("scores = 60.0\n", f"scores = 60.0\nsettings = {{ {run} }}\n")


def test_of_a_base_model_the_training_is_compared_and_nothing_else_may_differ():
    trained = 'lr = 2e-5, data = "d", prompt = "new"'
    base = with_settings('prompt = "new"', trained).replace(
        'name = "a"', 'trained = false\nname = "a"'
    )
    assert not found(base, "several_factors")
    assert found(base.replace('prompt = "new" }', 'prompt = "old" }', 1), "several_factors")


def test_differences_of_which_nothing_is_claimed_are_a_note():
    for says, severity in (("better", "error"), ("", "note")):
        text = with_settings('lr = 1, data = "x"', 'lr = 2, data = "y"', says)
        assert found(text, "several_factors")[0].severity == severity


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("1e-5", "0.00001", True),
        ("SFT", "sft ", True),
        ("hardgen 1k", "hardgen  1K", True),
        ("10k", "1k", False),
        ("SFT", "GRPO", False),
    ],
)
def test_a_value_is_the_same_however_it_is_written(first: str, second: str, same: bool):
    assert same_value(first, second) is same


def family(*scores: float) -> str:
    """Runs r0, r1 ... against a control of 26.9 % on 200 items, each called better."""
    runs = [
        f'[[runs]]\nname = "r{i}"\nsays = "better"\nscores = {s}\n' for i, s in enumerate(scores)
    ]
    head = '[scoring]\nitems = 200\ncontrol = "c"\n[[runs]]\nname = "c"\nscores = 26.9\n'
    return head + "".join(runs)


def test_a_difference_that_decides_alone_is_undecided_among_ten():
    assert found(family(37.7), "better")
    first, *_ = found(family(37.7, *[26.9] * 9), "inside_noise")
    assert first.values["about"] == "r0 / c"


def test_repeats_are_averaged_and_do_not_add_items():
    (flaw,) = found(two_runs([26.5, 27.5, 26.0], [37.0, 38.0, 38.0]), "better")
    alone = compare_counts(200 * 0.266666, 200, 200 * 0.376666, 200)
    assert flaw.values["p"] == pytest.approx(alone.p_value, rel=1e-3)
    assert flaw.values["items"] == 200


def test_a_run_may_have_another_control_or_none():
    text = family(60.0, 60.0).replace('name = "r0"\n', 'name = "r0"\ncontrol = "r1"\n')
    assert {pair.name for pair in pairs(record(text))} == {"r0 / r1", "r1 / c"}
    text = family(60.0).replace('name = "r0"\n', 'name = "r0"\ncontrol = ""\n')
    assert not pairs(record(text))


def test_a_decision_between_runs_that_are_not_comparable_is_not_called_one():
    text = with_settings('lr = 1, data = "x"', 'lr = 2, data = "y"', says="")
    assert found(text, "several_factors") and not found(text, "better")


def test_a_claimed_range_is_judged_at_its_best():
    (flaw,) = found(claimed("[0.5, 4.5]", "[100, 800]"), "difference_inside_noise")
    best = compare_counts(0.455 * 800, 800, 0.5 * 800, 800)
    assert flaw.values["p"] == pytest.approx(best.p_value)
    assert (flaw.values["least"], flaw.values["fewest"]) == (0.5, 100)


RISE, FALL = (0.1, 0.2), (0.2, 0.1)


@pytest.mark.parametrize(
    ("meaning", "values", "reads", "key"),
    [
        ("distance", FALL, "away", "distance_misread"),
        ("loss", RISE, "better", "misread_direction"),
        ("loss", FALL, "better", None),
        ("score", RISE, "worse", "misread_direction"),
        ("policy loss", FALL, "better", "policy_loss_read"),
        ("count", RISE, "better", None),
        ("score", FALL, "stable", None),
    ],
)
def test_a_course_means_one_thing(
    meaning: str, values: tuple[float, float], reads: str, key: str | None
):
    assert [flaw.code for flaw in found(course(*values, meaning, reads))] == ([key] if key else [])


def test_three_places_are_each_held_against_the_first():
    said = "".join(
        f'[[mentions]]\nof = "file"\nplace = "{place}"\nsettings = {{ rows = {rows} }}\n'
        for place, rows in (("one", 5), ("two", 5), ("three", 6))
    )
    (flaw,) = found(said, "label_disagrees")
    assert (flaw.values["place"], flaw.values["other"]) == ("one", "three")


@pytest.mark.parametrize(("cells", "same"), [(3, False), (4, True)])
def test_few_equal_figures_may_be_chance(cells: int, same: bool):
    scores = ", ".join(f"c{i} = 5{i}.1" for i in range(cells))
    text = "".join(f'[[runs]]\nname = "{name}"\nscores = {{ {scores} }}\n' for name in "ab")
    assert bool(found(text, "same_values")) is same


@pytest.mark.parametrize("steps", [[3, 5], [2, 3, 7, 9], [1, 2, 3, 4, 5, 6]])
def test_the_forecast_covers_as_often_as_it_says(steps: list[int]):
    draws = np.random.default_rng(3).normal(10, 1, (4000, 60)).cumsum(1)
    covered = 0
    for totals in draws:
        read = [float(totals[step - 1]) for step in steps]
        _, interval = forecast_total(steps, read, 60)
        assert interval is not None
        covered += interval.low <= totals[-1] <= interval.high
    assert covered / len(draws) == pytest.approx(0.95, abs=0.011)


@pytest.mark.parametrize(("steps", "read"), [([0, 5], 1), ([5, 3], 0), ([300, 500], 0)])
def test_a_step_that_is_not_ahead_has_no_forecast_and_the_start_is_no_reading(steps, read):
    flaws = found(FAULTS["forecast"][0].replace("[3, 5]", str(steps)))
    assert [flaw.values["readings"] for flaw in flaws] == [1] * read


def test_a_rate_has_the_interval_of_its_last_reading():
    text = rate(2, 2)
    (flaw,) = found(text, "few_trials")
    assert (flaw.values["low"], flaw.values["high"]) == pytest.approx(
        (100 * wilson(2, 64).low, 100 * wilson(2, 64).high)
    )
    assert flaw.severity == "note"
    assert found(text + 'reads = "stable"\n', "few_trials")[0].severity == "warning"


def test_new_events_are_those_between_the_readings():
    (flaw,) = found(rate(2, 4, cumulative="true"), "cumulative_as_rate")
    assert (flaw.values["new"], flaw.values["trials"]) == (2, 20)
