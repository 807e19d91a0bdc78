"""Runs of other tools get the verdicts of the lab's own, and meet the same refusals."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from assay.compare.compare_names import ArmRequest, own_arm
from assay.compare.table import Pairing, Table
from assay.data.results.foreign_result import Result
from assay.errors import InputError
from assay.judge.families import holm
from assay.judge.paired import compare
from assay.judge.scores import item_scores
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


def pairing(judged: Table, line: int = 1) -> Pairing:
    found = judged.lines[line].to_control
    assert found is not None
    return found


def marks(judged: Table) -> dict[str, str]:
    """What could not be checked, and of which runs."""
    return {f.code: english(f).evidence for f in judged.findings if f.severity == "warning"}


def test_verdicts_are_the_judges_over_one_family():
    sides = [side("base", BASE), side("better", BETTER), side("best", BEST)]
    judged = results_table(*sides)

    def scores(values):
        return item_scores((f"item_{i}", 0, value) for i, value in enumerate(values))

    raw = [compare(scores(BASE), scores(values)) for values in (BETTER, BEST)]
    found = [pairing(judged, n).comparison for n in (1, 2)]
    assert [c.interval.level for c in found] == [0.95, 0.975]
    assert found[0].interval == raw[0].interval_at(0.95)
    assert found[1].interval == raw[1].interval_at(0.975)
    assert [c.adjusted_p for c in found] == pytest.approx(holm([c.p_value for c in raw]))
    assert [c.verdict for c in found] == ["better", "better"]
    assert pairing(judged).flips.gained == tuple(f"item_{i}" for i in range(9))
    assert pairing(judged).agreement == pytest.approx(11 / 20)


def test_the_control_is_the_first_or_the_one_named():
    sides = [side("base", BASE), side("better", BETTER)]
    assert results_table(*sides).control.name == "base"
    judged = results_table(*sides, control="better")
    assert judged.control.name == "better"
    assert pairing(judged).comparison.verdict == "worse"
    with pytest.raises(InputError, match="did you mean 'better'"):
        results_table(*sides, control="bettre")


def test_without_outputs_agreement_is_unknown_and_not_nought():
    judged = results_table(side("a", BASE), side("b", BETTER, outputs={}))
    assert pairing(judged).agreement is None


def test_rewards_beyond_one_are_judged_on_one_scale():
    judged = results_table(side("a", [0.5, -1.0, 0.25]), side("b", [1.5, 1.0, 0.25]))
    assert judged.lines[1].score == pytest.approx(2.75 / 3)
    assert pairing(judged).comparison.difference == pytest.approx(3 / 3)


def test_settings_that_no_file_carries_are_marked_as_unknown():
    judged = results_table(side("a", BASE), side("b", BETTER))
    assert marks(judged) == {"settings_unknown": "a, b", "checker_unknown": "a, b"}


def known(name: str, values: list, **settings) -> Result:
    made = side(name, values, metric="match", checker="inspect-ai match", format="inspect-ai")
    return replace(made, settings=settings, configured=True)


def test_only_what_both_carry_is_said_to_be_the_same():
    sampling = {"sampling": {"temperature": 0.0}}
    first = known("a", BASE, evaluation={"sums": sampling}, packages={"x": "1"})
    second = known("b", BETTER, evaluation={"sums": sampling})
    judged = results_table(first, second)
    states = {part.part: judged.state(part) for part in judged.parts}
    same = {part for part, state in states.items() if state == "same"}
    assert same == {"items", "sampling", "checker"}
    assert set(states.values()) == {"same", "unknown"}


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


def test_other_numbers_of_repeats_are_a_note_and_no_confound():
    judged = results_table(side("a", BASE), side("b", BETTER, repeats=3))
    assert pairing(judged).comparison.verdict == "better"
    assert [(d.path, d.kind) for d in judged.differences] == [("evaluation.repeats", "note")]


def test_settings_of_another_tool_cannot_be_compared_and_are_marked():
    other = known("b", BETTER, sampling={"temperature": 0.0})
    judged = results_table(side("a", BASE), replace(other, metric="score", checker=""))
    assert marks(judged)["settings_unknown"] == "a, b"


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


def test_no_common_items_are_refused():
    moved = side("b", BETTER, scores={(f"x{i}", 0): v for i, v in enumerate(BETTER)})
    with pytest.raises(InputError, match="20 and 20, 0 of them shared"):
        results_table(side("a", BASE), moved)


def test_other_checkers_are_refused():
    with pytest.raises(InputError, match=r"checker 'one'.*'two'"):
        results_table(side("a", BASE, checker="one"), side("b", BETTER, checker="two"))


def test_uneven_repeats_are_refused():
    scores = {(f"item_{i}", 0): v for i, v in enumerate(BETTER)}
    more = side("b", BETTER, scores={**scores, ("item_7", 1): 1.0})
    with pytest.raises(InputError, match="2 to 'item_7'; 1 of 20 items are uneven"):
        results_table(side("a", BASE), more)


def test_one_run_alone_is_refused():
    with pytest.raises(InputError, match="only one run"):
        results_table(side("a", BASE))


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


def test_an_unfinished_run_of_the_lab_is_refused(run: RunDirectory):
    from assay.runs.status import stored_status, write_status

    write_status(run.path, replace(stored_status(run.path), status="failed"))
    with pytest.raises(InputError, match="is failed"):
        own_arm(ArmRequest(run))


def test_a_known_checker_of_another_tool_is_not_the_labs(run: RunDirectory):
    own = own_arm(ArmRequest(run))
    checker = "lm-evaluation-harness exact_match"
    scores = {(item, 0): 1.0 for item in own.scores.item_ids}
    outside = side("x", BETTER, scores=scores, format="lm-eval", checker=checker)
    with pytest.raises(InputError, match="checker"):
        results_table(own, outside)


def test_items_of_one_source_are_one_cluster_and_their_number_is_told():
    sources = {f"item_{i}": f"source {i // 4}" for i in range(20)}
    alone = results_table(side("a", BASE), side("b", BETTER))
    judged = results_table(side("a", BASE, clusters=sources), side("b", BETTER))
    assert pairing(alone).comparison.verdict == "better"
    found = pairing(judged).comparison
    assert (found.clusters, found.verdict) == (5, "undecided")
    assert [line.clusters for line in judged.lines] == [5, 5]
    assert [line.clusters for line in alone.lines] == [None, None]


def test_reducers_that_a_file_has_no_scores_of_are_named():
    judged = results_table(side("a", BASE), side("b", BETTER, left_out=("house/best",)))
    assert [english(f).evidence for f in judged.findings if f.code == "no_scores_in_file"] == [
        "b: house/best"
    ]


def test_own_runs_and_tables_are_warned_of_beyond_two_percent_without_a_score(tmp_path: Path):
    run = empty_run(tmp_path, "own")
    add_scores(run, "base", [0.0] * 95 + [None] * 5)
    own = own_arm(ArmRequest(run))
    scores = {(item, 0): 1.0 for item in own.scores.item_ids}
    other = side("other", [], scores=scores)
    judged = results_table(own, other)
    found = [f for f in judged.findings if f.code == "unscored"]
    assert [english(f).evidence for f in found] == [f"{own.name}: 5.0% (5 / 100)"]
    assert judged.control.possible == (0.0, 0.05)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_scores_that_do_not_run_from_0_to_1_are_nowhere_told_in_percent_or_points(lang, tmp_path):
    rewards = [[-1.5 + 0.3 * (i % 7) for i in range(20)], [2.5 - 0.2 * (i % 5) for i in range(20)]]
    table = results_table(side("a", rewards[0]), side("b", rewards[1]))
    write_comparison(table, tmp_path, tmp_path / "page.html", lang)
    lines = [printed(comparison_shown(table, lang), lang), (tmp_path / "page.md").read_text()]
    for text in lines:
        table_lines = [x for x in text.splitlines() if re.search(r"\b[ab]\b", x)]
        assert any(f"{table.lines[1].score:.4g}" in x for x in table_lines)
        for x in table_lines:
            assert "points" not in x and "百分点" not in x
            assert not re.search(r"\d%", re.sub(r"0\.0%|95%|80%|90%|100%", "", x)), x
    drawn = (tmp_path / "page.html").read_text()
    assert f"{table.lines[1].score * 100:.1f}%" not in drawn
