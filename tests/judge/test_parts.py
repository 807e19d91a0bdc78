"""Every part of a run that fairness names is told from the others by the paths of its values."""

import pytest

from assay.judge.confounds import OTHER, PARTS, Confound, by_part, differences, part_of


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("base_weights.sha256", "base weights"),
        ("data.train.file_sha256", "data"),
        ("data.train.train.row_ids_sha256", "rows"),
        ("data.train.split.dev", "split"),
        ("data.train.prompts_sha256", "prompt rendering"),
        ("stages.rl.rendering.sha256", "prompt rendering"),
        ("stages.rl.reward.accuracy.source_sha256", "reward"),
        ("stages.rl.kl.coef", "estimator"),
        ("stages.rl.algorithm", "estimator"),
        ("stages.rl.optimizer.lr", "hyper-parameters"),
        ("stages.sft.loss_on", "hyper-parameters"),
        ("stages.rl.sampling.temperature", "sampling"),
        ("evaluation.test.sampling.temperature", "sampling"),
        ("evaluation.test.checker", "checker"),
        ("evaluation.dev.reward.accuracy.source_sha256", "checker"),
        ("evaluation.test.items_hash", "items"),
        ("code.commit", "code"),
        ("packages.torch", "packages and machine"),
        ("sandbox", OTHER),
    ],
)
def test_a_path_belongs_to_the_part_it_is_a_setting_of(path, part):
    assert part_of(path) == part


def test_parts_without_a_difference_are_the_same_and_the_worst_kind_counts():
    found = [
        Confound("stages.rl.steps", 1, 2, "declared"),
        Confound("stages.rl.optimizer.lr", 1, 2, "confound"),
        Confound("machine.cpu", 1, 2, "note"),
    ]
    states = {state.part: state.kind for state in by_part(found)}
    assert states.pop("hyper-parameters") == "confound"
    assert states.pop("packages and machine") == "note"
    assert set(states.values()) == {None} and states.keys() < PARTS.keys()


def test_a_difference_of_no_part_is_not_lost():
    (state,) = [s for s in by_part([Confound("new", 1, 2, "confound")]) if s.differences]
    assert (state.part, state.kind) == (OTHER, "confound")


FILE = {
    "base_weights": {"sha256": "w"},
    "data": {"a": {"file_sha256": "1", "contents_sha256": "1", "train": {"row_ids_sha256": "1"}}},
    "evaluation": {"t": {"options": {}, "items_hash": "1", "prompts_sha256": "1"}},
}


def with_data(**values: object) -> dict:
    return {**FILE, "data": {"a": {**FILE["data"]["a"], **values}}}


def test_a_fingerprint_follows_from_the_setting_it_is_worked_out_from():
    other = with_data(file_sha256="2", contents_sha256="2", train={"row_ids_sha256": "2"})
    kinds = {d.path: d.kind for d in differences(FILE, other, vary=["data.a.file_sha256"])}
    assert kinds == {
        "data.a.file_sha256": "declared",
        "data.a.contents_sha256": "follows",
        "data.a.train.row_ids_sha256": "follows",
    }


def test_a_fingerprint_that_nothing_explains_is_a_confound():
    (found,) = differences(FILE, with_data(contents_sha256="2"))
    assert (found.path, found.kind) == ("data.a.contents_sha256", "confound")


def test_what_another_data_set_changes_explains_nothing():
    other = with_data(contents_sha256="2")
    other["data"]["b"] = {"file_sha256": "9"}
    kinds = {d.path: d.kind for d in differences(FILE, other, vary=["data.b"])}
    assert kinds["data.a.contents_sha256"] == "confound"


def test_an_undeclared_cause_stays_a_confound():
    other = with_data(file_sha256="2", contents_sha256="2")
    assert [d.path for d in differences(FILE, other) if d.kind == "confound"] == [
        "data.a.file_sha256"
    ]
