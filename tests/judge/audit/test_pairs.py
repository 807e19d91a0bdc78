"""What a claim is held against: its own benchmarks, its own pair, and no more than once."""

import pytest

from assay.judge.audit.claims import pairs, same_value
from tests.judge.audit.faults import cells, found, record, two_runs

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
    assert (pair.name, pair.says) == ("b / a", "better")
    assert [flaw.code for flaw in found(text)] == ["inside_noise", "unpaired"]


def test_a_printed_paired_test_is_believed():
    text = two_runs(20.0, 22.0)
    for shown in ("p = 0.01", "interval = [0.5, 3.5]"):
        assert not warned(text + claim(f'says = "better"\npaired = true\n{shown}'))
    for shown in ("p = 0.3", "interval = [-0.5, 4.5]"):
        assert warned(text + claim(f'says = "better"\npaired = true\n{shown}')) == ["inside_noise"]


def with_settings(control: str, run: str) -> str:
    text = two_runs(20.0, 60.0, "better")
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
    text = with_settings('lr = 1, data = "x"', 'lr = 2, data = "y"')
    assert found(text, "several_factors")[0].severity == "error"
    silent = text.replace('says = "better"\n', "")
    assert found(silent, "several_factors")[0].severity == "note"


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
