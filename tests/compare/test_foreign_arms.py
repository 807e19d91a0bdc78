"""Runs of other tools: which one a name means, which way its metric goes, and that it gets the
verdicts of the lab's own and meets the same refusals."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from assay.compare.arm import Arm, ReadOptions, arm_of, distinct_names, is_file, read_arms
from assay.compare.compare_names import ArmRequest, compare_names, own_arm
from assay.compare.judged_table import compare_arms, known_direction, lower_is_better
from assay.compare.table import ComparisonTable, Pairing
from assay.data.results.foreign_result import ForeignAnswer, Result
from assay.errors import InputError
from assay.judge.intervals import wilson
from assay.pages.comparison_page import comparison_shown, write_comparison
from assay.runs.run_directory import RunDirectory
from tests.compare.tables import answers, results_table, runs_table
from tests.compare.test_judged_table import control_of
from tests.data.results.produced import PRODUCED
from tests.english import english, explain
from tests.pages.pages import printed
from tests.pages.synthetic import add_scores, empty_run

BASE = [0.0] * 20
BETTER = [1.0] * 9 + [0.0] * 11
BEST = [1.0] * 8 + [0.0] + [1.0] * 4 + [0.0] * 7


def side(name: str, values: list, repeats: int = 1, **more) -> Result:
    """A run on as many items as there are values, in the first `repeats` passes alike."""
    keys = [(f"item_{i}", r) for r in range(repeats) for i in range(len(values))]
    scores = {key: values[n % len(values)] for n, key in enumerate(keys)}
    scores = more.pop("scores", scores)
    outputs = more.pop("outputs", {key: str(score) for key, score in scores.items()})
    given = {"format": "table", "file": f"{name}.csv", "metric": "score"}
    return Result(**{"run": name, **given, "answers": answers(scores, outputs), **more})


def pairing(judged: ComparisonTable) -> Pairing:
    return control_of(judged.lines[1])


def marks(judged: ComparisonTable) -> dict[str, str]:
    """What could not be checked, and of which runs."""
    return {f.code: english(f).evidence for f in judged.findings if f.severity == "warning"}


def test_the_control_is_the_first_or_the_one_named():
    sides = [side("base", BASE), side("better", BETTER)]
    assert results_table(*sides).control.name == "base"
    judged = results_table(*sides, control="better")
    assert judged.control.name == "better"
    assert pairing(judged).comparison.verdict == "worse"
    with pytest.raises(InputError, match="did you mean 'better'"):
        results_table(*sides, control="bettre")


def test_settings_that_no_file_carries_are_marked_as_unknown():
    judged = results_table(side("a", BASE), side("b", BETTER))
    assert marks(judged) == {"settings_unknown": "a, b", "checker_unknown": "a, b"}


def known(name: str, values: list, **settings) -> Result:
    made = side(name, values, metric="match", checker="inspect-ai match", format="inspect-ai")
    return replace(made, settings=settings, configured=True)


def test_the_model_is_what_is_under_test_and_every_other_setting_a_confound():
    sampling = {"temperature": 0.0}
    first = known("a", BASE, base_weights={"model": "a"}, sampling=sampling)
    second = known("b", BETTER, base_weights={"model": "b"}, sampling=sampling)
    fair = results_table(first, second)
    assert pairing(fair).comparison.verdict == "better" and marks(fair) == {}
    assert [(d.path, d.kind) for d in fair.differences] == [("base_weights.model", "tested")]
    warm = replace(second, settings={**second.settings, "sampling": {"temperature": 1.0}})
    unfair = pairing(results_table(first, warm)).comparison
    assert unfair.verdict == "not comparable"
    assert unfair.confounds == ("sampling.temperature",)
    allowed = results_table(first, warm, allow=["sampling.temperature"])
    assert pairing(allowed).comparison.verdict == "better"
    assert allowed.allowed == ("sampling.temperature",)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (side("b", [*BETTER, 1.0]), "20 and 21, 20 of them shared"),
        (side("b", BETTER, metric="acc"), "metric 'score'.*'acc'"),
        (side("b", BETTER, unfinished="its status is cancelled"), "b is unfinished.*cancelled"),
        (side("b", BETTER, benchmark="other"), "b on other"),
        (side("a", BETTER), "itself"),
        (side("b", BETTER, questions={"item_3": "changed"}), "1 items ask something else.*item_3"),
    ],
)
def test_what_is_never_compared(other: Result, words: str):
    control = side("a", BASE, questions={"item_3": "asked", "item_4": "only here"})
    with pytest.raises(InputError, match=words):
        results_table(control, other)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = empty_run(tmp_path)
    add_scores(run, "base", BASE)
    add_scores(run, "rl.step-000030", BEST)
    return run


def test_a_run_of_the_lab_gets_the_same_figures_as_among_its_own(run: RunDirectory, tmp_path: Path):
    other = empty_run(tmp_path, "other")
    other.manifest.write_text(run.manifest.read_text() if run.manifest.exists() else "{}")
    add_scores(other, "base", BASE)
    add_scores(other, "rl.step-000030", BETTER)
    own = own_arm(ArmRequest(run, "rl.step-000030"))
    values = {f"simple_python_{i}": value for i, value in enumerate(BETTER)}
    outside = side("outside", BETTER, scores={(k, 0): v for k, v in values.items()})
    judged = results_table(own, outside)
    ours, theirs = pairing(judged).comparison, pairing(runs_table(run, other)).comparison
    assert (ours.difference, ours.interval) == (theirs.difference, theirs.interval)
    assert ours.p_value == theirs.p_value
    found = marks(judged)
    assert found["settings_unknown"] == found["checker_unknown"] == "outside"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_scores_that_do_not_run_from_0_to_1_are_nowhere_told_in_percent_or_points(lang, tmp_path):
    rewards = [[-1.5 + 0.3 * (i % 7) for i in range(20)], [2.5 - 0.2 * (i % 5) for i in range(20)]]
    table = results_table(side("a", rewards[0]), side("b", rewards[1]))
    page = write_comparison(table, tmp_path, lang)
    lines = [printed(comparison_shown(table, lang), lang), page.with_suffix(".md").read_text()]
    for text in lines:
        table_lines = [x for x in text.splitlines() if re.search(r"\b[ab]\b", x)]
        assert any(f"{table.lines[1].score:.4g}" in x for x in table_lines)
        for x in table_lines:
            assert "points" not in x and "百分点" not in x
            assert not re.search(r"\d%", re.sub(r"0\.0%|95%|80%|90%|100%", "", x)), x
    drawn = page.read_text()
    assert f"{table.lines[1].score * 100:.1f}%" not in drawn


def table(folder: Path, text: str, name: str = "scores.csv") -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


TWO = "item,run,score\na,base,1\nb,base,0\na,tuned,1\nb,tuned,\n"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("demo", False),
        ("demo@sft.last", False),
        ("demo/20260101-abc", False),
        ("absent.csv", True),
        ("absent.jsonl@base", True),
        ("out/x.eval", True),
    ],
)
def test_a_file_is_known_by_its_ending(text: str, file: bool):
    assert is_file(text) is file


def test_a_name_takes_one_run_of_a_file_or_all(tmp_path: Path):
    file = table(tmp_path, TWO)
    assert [arm.name for arm in read_arms(file)] == ["base", "tuned"]
    assert [arm.name for arm in read_arms(f"{file}@tuned")] == ["tuned"]
    with pytest.raises(InputError, match="did you mean 'tuned'"):
        read_arms(f"{file}@tunde")


def test_several_metrics_and_none_named_are_refused_with_their_names(tmp_path: Path):
    file = table(tmp_path, "item,exact,loose\na,1,1\nb,0,1\n")
    with pytest.raises(InputError, match="2 metrics: exact, loose"):
        read_arms(file)
    (arm,) = read_arms(file, ReadOptions(metric="loose"))
    assert arm.scores.scores.tolist() == [[1.0], [1.0]]
    with pytest.raises(InputError, match="did you mean 'exact'"):
        read_arms(file, ReadOptions(metric="exat"))


def test_a_metric_may_be_named_as_lm_eval_names_it_without_a_filter():
    folder = str(PRODUCED["lm-eval"][0].parent)
    (arm,) = read_arms(folder, ReadOptions(metric="acc,none"))
    assert arm.result is not None and arm.result.metric == "acc"
    with pytest.raises(InputError, match="holds no metric 'acc,strict'"):
        read_arms(folder, ReadOptions(metric="acc,strict"))


def test_a_run_alone_has_its_score_and_abstentions_are_never_zero(tmp_path: Path):
    text = "item,run,score,error\na,r,1,\nb,r,,timed out\nc,r,1,\n"
    (line,) = compare_arms(read_arms(table(tmp_path, text))).lines
    assert line.score == 1.0 and line.to_control is None
    assert line.interval == wilson(2, 2)
    assert line.abstained == 1


def test_runs_that_are_called_alike_get_the_name_of_their_file(tmp_path: Path):
    files = [table(tmp_path, TWO, "one.csv"), table(tmp_path, TWO, "two.csv")]
    arms = [*read_arms(files[0]), *read_arms(f"{files[1]}@base")]
    named = distinct_names(arms, [files[0], files[0], f"{files[1]}@base"])
    assert [s.name for s in named] == [f"{files[0]}@base", "tuned", f"{files[1]}@base"]


LOWER = "wer word_error_rate CER eval_loss val/loss byte_perplexity,none error_rate latency_ms"
LOWER += " WordErrorRate status=fail total_time cost"
HIGHER = "score acc,none exact_match,strict-match f1 pass@1 pass_at_2 accuracy_reward reward valid"
HIGHER += " data.correct plus=pass rougeL chrF success_rate"
OPEN = "toxicity_score neg_loss log_loss_reduction wer_improvement num_turns error_detected temper"
OPEN += " wer_acc accuracy_loss tokens length judge_score"


@pytest.mark.parametrize(
    ("names", "higher"), [(LOWER, False), (HIGHER, True), (OPEN, None)], ids=["low", "high", "open"]
)
def test_the_words_of_a_metric_tell_its_direction_or_nothing(names: str, higher: bool | None):
    assert {name: known_direction(name) for name in names.split()} == dict.fromkeys(
        names.split(), higher
    )


def directed(
    folder: Path, metric: str, options: ReadOptions, non_inferior: float | None = None
) -> ComparisonTable:
    """Forty items, each of which has a higher score in `tuned`."""
    rows = [f"q{i},{run},{v + i % 5 / 100}" for i in range(40) for run, v in RUNS]
    file = folder / "results.csv"
    file.write_text("\n".join([f"item,run,{metric}", *rows]) + "\n")
    return compare_names(folder, [str(file)], files=options, non_inferior=non_inferior)


RUNS = (("base", 0.1), ("tuned", 0.3))


def test_a_higher_error_rate_is_worse_and_its_items_are_lost(tmp_path: Path):
    found = directed(tmp_path, "wer", ReadOptions(), non_inferior=1.0)
    flips, comparison = pairing(found).flips, pairing(found).comparison
    assert (comparison.verdict, comparison.lower_is_better) == ("worse", True)
    assert (comparison.gained, comparison.lost) == (0, 40)
    assert (len(flips.gained), len(flips.lost)) == (0, 40)
    assert comparison.difference == pytest.approx(0.2)
    assert "worse by 20.0 points" in explain(comparison)
    assert "lower is better" in explain(comparison)
    assert comparison.non_inferiority is not None
    assert not comparison.non_inferiority.shown


def test_a_metric_that_nobody_explains_gets_no_verdict_until_the_user_does(tmp_path: Path):
    with pytest.raises(InputError, match=r"'turns' may be better high or low.*--lower-is"):
        directed(tmp_path, "turns", ReadOptions())
    for higher, verdict in ((True, "better"), (False, "worse")):
        options = ReadOptions(higher_is_better=higher)
        assert pairing(directed(tmp_path, "turns", options)).comparison.verdict == verdict


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
    return replace(arm("reward", None), origin=cast(Any, object()))


def test_what_one_file_says_holds_for_the_other_and_two_must_not_differ():
    assert lower_is_better([arm("turns", None), arm("turns", False)])
    assert not lower_is_better([own(), arm("acc", None)])
    for contradiction in ([arm("t", True), arm("t", False)], [own(), arm("t", False)]):
        with pytest.raises(InputError, match="high by one file, low by another"):
            lower_is_better(contradiction)
