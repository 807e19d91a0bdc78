"""Which way a metric is better, and that nothing is judged where nobody says it."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from assay.compare.arm import Arm, Provenance
from assay.compare.compare_names import compare_names
from assay.compare.foreign_arms import ReadOptions, arm_of
from assay.compare.judged_table import known_direction, lower_is_better
from assay.compare.table import ComparisonTable
from assay.data.results.foreign_result import ForeignAnswer, Result
from assay.errors import InputError
from assay.judge.verdict import Comparison
from tests.english import explain

LOWER = "wer word_error_rate CER eval_loss val/loss byte_perplexity,none error_rate latency_ms"
LOWER += " WordErrorRate status=fail total_time cost"
HIGHER = "score acc,none exact_match,strict-match f1 pass@1 pass_at_2 accuracy_reward reward valid"
HIGHER += " data.correct plus=pass rougeL chrF success_rate"
OPEN = "toxicity_score neg_loss log_loss_reduction wer_improvement num_turns error_detected temper"
OPEN += " wer_acc accuracy_loss tokens length judge_score"


@pytest.mark.parametrize("name", LOWER.split())
def test_losses_errors_and_times_are_better_low(name: str):
    assert known_direction(name) is False


@pytest.mark.parametrize("name", HIGHER.split())
def test_rewards_and_shares_right_are_better_high(name: str):
    assert known_direction(name) is True


@pytest.mark.parametrize("name", OPEN.split())
def test_a_name_that_may_mean_either_says_nothing(name: str):
    assert known_direction(name) is None


def table(
    folder: Path, metric: str, options: ReadOptions, non_inferior: float | None = None
) -> ComparisonTable:
    """Forty items, each of which has a higher score in `tuned`."""
    rows = [f"q{i},{run},{v + i % 5 / 100}" for i in range(40) for run, v in RUNS]
    file = folder / "results.csv"
    file.write_text("\n".join([f"item,run,{metric}", *rows]) + "\n")
    return compare_names(folder, [str(file)], files=options, non_inferior=non_inferior)


RUNS = (("base", 0.1), ("tuned", 0.3))


def judged(found: ComparisonTable) -> Comparison:
    pairing = found.lines[1].to_control
    assert pairing is not None
    return pairing.comparison


def test_a_higher_error_rate_is_worse_and_its_items_are_lost(tmp_path: Path):
    found = table(tmp_path, "wer", ReadOptions(), non_inferior=1.0)
    comparison, pairing = judged(found), found.lines[1].to_control
    assert pairing is not None
    assert (comparison.verdict, comparison.lower_is_better) == ("worse", True)
    assert (comparison.gained, comparison.lost) == (0, 40)
    assert (len(pairing.flips.gained), len(pairing.flips.lost)) == (0, 40)
    assert comparison.difference == pytest.approx(0.2)
    assert "worse by 20.0 points" in explain(pairing.comparison)
    assert "lower is better" in explain(pairing.comparison)
    assert comparison.non_inferiority is not None
    assert not comparison.non_inferiority.shown


def test_a_metric_that_nobody_explains_gets_no_verdict_until_the_user_does(tmp_path: Path):
    with pytest.raises(InputError, match=r"'turns' may be better high or low.*--lower-is"):
        table(tmp_path, "turns", ReadOptions())
    for higher, verdict in ((True, "better"), (False, "worse")):
        options = ReadOptions(higher_is_better=higher)
        assert judged(table(tmp_path, "turns", options)).verdict == verdict


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"item": "id"}, "--score"),
        ({"score": "reward"}, "--item"),
        ({"item": "id", "score": "r", "metric": "m"}, "--metric"),
    ],
)
def test_columns_are_named_whole_and_in_place_of_a_format(given: dict[str, str], field: str):
    with pytest.raises(InputError) as error:
        ReadOptions(**given)  # type: ignore[arg-type]
    assert error.value.field == field


def arm(metric: str, higher: bool | None) -> Arm:
    answers = (ForeignAnswer("a", 0, 1.0),)
    return arm_of(Result("run", "f", "table", metric, answers, higher_is_better=higher))


def own() -> Arm:
    """A run of the lab, as far as its direction goes: it comes from no file of another tool."""
    return replace(arm("reward", None), origin=cast(Provenance, object()))


def test_what_one_file_says_holds_for_the_other_and_two_must_not_differ():
    assert lower_is_better([arm("turns", None), arm("turns", False)])
    assert not lower_is_better([own(), arm("acc", None)])
    for contradiction in ([arm("t", True), arm("t", False)], [own(), arm("t", False)]):
        with pytest.raises(InputError, match="high by one file, low by another"):
            lower_is_better(contradiction)
