"""Runs of other tools get the verdicts of the lab's own, and meet the same refusals."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from assay.compare.compare_names import ArmRequest, own_arm
from assay.compare.table import ComparisonTable, Pairing
from assay.data.results.foreign_result import Result
from assay.errors import InputError
from assay.pages.comparison_page import comparison_shown, write_comparison
from assay.runs.run_directory import RunDirectory
from tests.compare.tables import answers, results_table, runs_table
from tests.english import english
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


def pairing(judged: ComparisonTable, line: int = 1) -> Pairing:
    found = judged.lines[line].to_control
    assert found is not None
    return found


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
    native = runs_table(run, other).lines[1].to_control
    assert native is not None
    ours, theirs = pairing(judged).comparison, native.comparison
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
