"""What is always refused, what a difference counts as, and what becomes of damaged files."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.compare.arm import Provenance, load_arm, one_metric
from assay.compare.compare_names import ArmRequest
from assay.compare.judged_table import MIXED, compare_checkpoints
from assay.errors import InputError
from assay.runs.records import EvaluationRecord, RecordWriter
from assay.runs.run_directory import RunDirectory, write_manifest
from assay.runs.run_files import write_listed
from tests.compare.tables import runs_table
from tests.compare.test_judged_table import RL, SFT, control_of, other_run
from tests.english import english
from tests.pages.synthetic import MANIFEST, RECORD, add_scores, answer, empty_run, item_ids

CLEAN = replace(RECORD, shared={"train": 0})
EVERYTHING = ("stages", "data", "base_weights", "evaluation", "code", "seed")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return other_run(tmp_path, MANIFEST, RL, "verl7", CLEAN)


def refused(run: RunDirectory, other: RunDirectory, words: str) -> None:
    """The comparison is refused with these words, also where everything is allowed."""
    with pytest.raises(InputError, match=words):
        runs_table(run, other)
    with pytest.raises(InputError, match=words):
        runs_table(run, other, allow=EVERYTHING)


def test_items_that_were_trained_on_are_refused(run, tmp_path):
    leaked = replace(CLEAN, shared={"train": 3})
    other = other_run(tmp_path, MANIFEST, SFT, record=leaked)
    refused(run, other, r"trained on test items: 3 rows of data\.train")
    refused(other, run, "trained on test items")


def test_the_model_before_training_did_not_see_the_training_rows(run, tmp_path):
    leaked = replace(CLEAN, shared={"train": 3})
    other = other_run(tmp_path, MANIFEST, SFT, record=leaked)
    table = runs_table(ArmRequest(run, "base"), ArmRequest(other, "base"))
    assert control_of(table.lines[1]).comparison.difference == 0


@pytest.mark.parametrize(("name", "marked"), [("held_out", True), ("dev", False)])
def test_a_checkpoint_measured_in_another_rendering_is_marked(run, tmp_path, name, marked):
    other = other_run(tmp_path, MANIFEST, SFT, record=CLEAN)
    mark = f'method = "grpo"\nother_rendering_than = ["{name}"]'
    write_listed(other.path, other.spec, other.spec.read_text().replace('method = "grpo"', mark))
    findings = runs_table(run, other).findings
    assert [english(f).evidence for f in findings] == [f"{other}@rl.step-000030"] * marked
    untrained = runs_table(ArmRequest(run, "base"), ArmRequest(other, "base")).findings
    assert not [f for f in untrained if "rendering" in f.code]


def child_of(parent: RunDirectory, root: Path, name: str = "child") -> RunDirectory:
    checkpoint = parent.checkpoint("rl", 30).relative_to(root).as_posix()
    weights = {**MANIFEST["base_weights"], "checkpoint": checkpoint}
    return other_run(root, {**MANIFEST, "base_weights": weights, "seed": 8}, SFT, name, CLEAN)


def test_items_that_the_model_it_starts_from_was_trained_on_are_refused(run, tmp_path):
    parent = other_run(tmp_path, MANIFEST, SFT, "parent", replace(CLEAN, shared={"train": 1}))
    refused(run, child_of(parent, tmp_path), "1 rows of data.train in parent/")


def test_a_run_is_compared_with_the_checkpoint_that_it_started_from(run, tmp_path):
    child = child_of(run, tmp_path)
    for first, second in ((run, child), (child, run)):
        table = runs_table(first, second)
        assert {d.kind for d in table.differences} <= {"tested", "note"}
        assert control_of(table.lines[1]).comparison is not None
    grandchild = child_of(child, tmp_path, "grandchild")
    assert {d.kind for d in runs_table(run, grandchild).differences} <= {"tested", "note"}


def rewrite(run: RunDirectory, change: Callable[[EvaluationRecord], EvaluationRecord]) -> None:
    """Write the run's record again as `change` has it."""
    shutil.rmtree(run.evaluations)
    ids = item_ids(len(RL))
    record = change(replace(CLEAN, items=ids, items_hash="said"))
    lines = [answer("held_out", "rl.step-000030", i, 0, s) for i, s in zip(ids, SFT, strict=True)]
    with RecordWriter(run.evaluations, record, "rl.step-000030") as writer:
        writer.write_chunk(0, lines)
        writer.finish()


def test_the_same_ids_with_other_questions_are_other_items(run, tmp_path):
    other = other_run(tmp_path, MANIFEST, record=CLEAN)
    rewrite(run, lambda record: record)
    rewrite(other, lambda record: replace(record, items_hash="something else"))
    refused(run, other, "say something else")


def test_worked_examples_change_what_items_say_and_are_a_factor_of_their_own(run, tmp_path):
    other = other_run(tmp_path, MANIFEST, record=CLEAN)
    rewrite(run, lambda record: replace(record, options={"examples": 0}))
    rewrite(other, lambda r: replace(r, options={"examples": 3}, items_hash="with examples"))
    undeclared = control_of(runs_table(run, other).lines[1]).comparison
    assert undeclared.confounds == ("evaluation.held_out.options.examples",)
    table = runs_table(run, other, vary=["evaluate.held_out.options.examples"])
    kinds = {d.path: d.kind for d in table.differences}
    assert kinds == {
        "evaluation.held_out.options.examples": "declared",
        "evaluation.held_out.items_hash": "follows",
    }


def test_two_versions_of_a_benchmarks_checker_are_refused(run, tmp_path):
    other = other_run(tmp_path, MANIFEST, SFT, record=replace(CLEAN, checker="bfcl-eval==2025"))
    refused(run, other, "bfcl-eval==2025")


def test_two_versions_of_the_reward_that_scores_an_evaluation_are_refused(run, tmp_path):
    def manifest(**known_by: Any) -> dict[str, Any]:
        reward = {"tools.ast": {"weight": 1.0, **known_by}}
        return {**MANIFEST, "evaluation": {"held_out": {"reward": reward, "role": "report"}}}

    write_manifest(run, manifest(source_sha256="a" * 64))
    other = other_run(tmp_path, manifest(source_sha256="b" * 64), SFT, record=CLEAN)
    refused(run, other, r"'tools.ast'.* another version .*aaaaaaaa.*bbbbbbbb")
    write_manifest(other, manifest(source_sha256="a" * 64))
    assert runs_table(run, other).differences == ()


def test_a_setting_of_another_report_bears_on_nothing(run, tmp_path):
    other = {"role": "report", "sampling": {"temperature": 0.7}}
    choosing = {"role": "select", "sampling": {"temperature": 0.7}}
    changed = other_run(tmp_path, {**MANIFEST, "evaluation": {"sampled": other}}, SFT, "a", CLEAN)
    assert runs_table(run, changed).differences == ()
    chooses = other_run(tmp_path, {**MANIFEST, "evaluation": {"dev": choosing}}, SFT, "b", CLEAN)
    confounds = control_of(runs_table(run, chooses).lines[1]).comparison.confounds
    assert confounds == ("evaluation.dev.role", "evaluation.dev.sampling.temperature")


TRAINED = {**MANIFEST, "stages": {"rl": {"algorithm": "grpo", "steps": 40}}}


def test_beside_a_model_before_training_the_training_is_what_is_compared(run, tmp_path):
    base = other_run(tmp_path, {**MANIFEST, "data": {}}, SFT, "untrained", CLEAN)
    write_manifest(run, TRAINED)
    table = runs_table(ArmRequest(base, "base"), run)
    assert {d.kind for d in table.differences} == {"tested"}, "nobody declared it"
    assert control_of(table.lines[1]).comparison.verdict == "better"
    both = runs_table(ArmRequest(base, "base"), ArmRequest(run, "base"))
    assert both.differences == ()


def save_weights(run: RunDirectory, values: list[float]) -> None:
    import torch
    from safetensors.torch import save_file

    folder = run.checkpoint("rl", 30)
    folder.mkdir(parents=True)
    save_file({"w": torch.tensor(values)}, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("values", "severity", "words"),
    [
        ([1.0, 2.0, 3.0, 4.0], "error", "are the same weights"),
        ([1.0, 2.0, 3.0, 5.0], "warning", "25.00%"),
        (None, "warning", "weights not looked at"),
    ],
)
def test_runs_that_answer_the_same_are_flagged_with_what_their_weights_say(
    run, tmp_path, values, severity, words
):
    other = other_run(tmp_path, MANIFEST, RL, record=CLEAN)
    save_weights(run, [1.0, 2.0, 3.0, 4.0])
    if values is not None:
        save_weights(other, values)
    (found,) = runs_table(run, other).findings
    assert found.severity == severity
    said = english(found)
    assert words in f"{said.what}; {said.evidence}"


def test_an_accepted_difference_that_is_none_is_remarked_and_accepts_nothing(run, tmp_path):
    other = other_run(tmp_path, {**MANIFEST, "code": {"commit": "x"}}, SFT, record=CLEAN)
    assert runs_table(run, other, allow=["code"]).allowed == ("code.commit",)
    table = runs_table(run, other, allow=["code.comit"])
    (found,) = [each for each in table.findings if each.code == "allowed_the_same"]
    assert "differ in code.comit," in english(found).what
    assert english(found).evidence == "they differ in code.commit"
    assert table.allowed == ()


def test_a_declared_factor_that_does_not_differ_is_found(run, tmp_path):
    other = other_run(tmp_path, TRAINED, SFT, record=CLEAN)
    (found,) = runs_table(run, other, vary=["stage", "stage.rl.kl.coef"]).findings
    assert found.code == "factor_the_same" and "stage.rl.kl.coef:" in english(found).evidence
    assert runs_table(run, other, vary=["stage"]).findings == ()
    table = runs_table(ArmRequest(run, "base"), ArmRequest(run), vary=["stage.rl.kl.coef"])
    assert table.findings == ()


LAST = "rl.step-000030"


def measured(root: Path, name: str, loosely: int) -> RunDirectory:
    """A run of which the first so many answers of each record were scored by a fallback metric."""

    def mark(line: dict[str, Any]) -> dict[str, Any]:
        number = int(line["item_id"].rpartition("_")[2])
        return line | {"parts": f'{{"fallback": {float(number < loosely)}}}'}

    run = empty_run(root, name)
    for checkpoint, scores in (("base", [0.0] * len(RL)), (LAST, RL)):
        add_scores(run, checkpoint, scores, CLEAN, mark)
    return run


@pytest.mark.parametrize(
    ("one", "other"), [(0, len(RL)), (0, 1), (1, 1), (1, len(RL)), (len(RL), 0)]
)
def test_runs_whose_metrics_differ_or_mix_are_refused_whatever_is_allowed(
    tmp_path: Path, one: int, other: int
):
    runs = measured(tmp_path, "one", one), measured(tmp_path, "other", other)
    for allow in ((), EVERYTHING, ("evaluation.metric",)):
        with pytest.raises(
            InputError, match=rf"mixed metrics: a fallback scored {one} of 20 answers"
        ):
            runs_table(*runs, allow=allow)


@pytest.mark.parametrize("loosely", [0, len(RL)])
def test_runs_of_one_metric_are_compared(tmp_path: Path, loosely: int):
    runs = measured(tmp_path, "one", loosely), measured(tmp_path, "other", loosely)
    table = runs_table(*runs)
    assert control_of(table.lines[1]).comparison.verdict != "not comparable"
    assert len([f for f in table.findings if f.code == "fallback_scores"]) == (2 if loosely else 0)


@pytest.mark.parametrize(("loosely", "mixed"), [(0, False), (1, True), (len(RL), False)])
def test_checkpoints_of_a_run_with_both_metrics_get_no_verdict(
    tmp_path: Path, loosely: int, mixed: bool
):
    run = measured(tmp_path, "one", loosely)
    comparison = control_of(compare_checkpoints(run, "held_out").lines[1]).comparison
    assert (comparison.verdict == "not comparable") == mixed
    assert comparison.confounds == ((MIXED.path,) if mixed else ())


def test_records_that_name_no_metric_have_one(tmp_path: Path):
    run = empty_run(tmp_path, "one")
    record = add_scores(run, LAST, RL, CLEAN)
    assert one_metric([load_arm(Provenance(run, LAST, record))]) and one_metric([])
