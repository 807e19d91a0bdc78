"""Every part of a run that fairness names is told from the others by the paths of its values."""

import pytest

from assay.judge.confounds import OTHER, differences, part_of


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("base_weights.sha256", "base weights"),
        ("data.train.train.row_ids_sha256", "rows"),
        ("data.train.split.dev", "split"),
        ("data.train.prompts_sha256", "prompt rendering"),
        ("stages.rl.reward.accuracy.source_sha256", "reward"),
        ("stages.rl.kl.coef", "estimator"),
        ("stages.rl.optimizer.lr", "hyper-parameters"),
        ("evaluation.test.sampling.temperature", "sampling"),
        ("evaluation.dev.reward.accuracy.source_sha256", "checker"),
        ("evaluation.test.items_hash", "items"),
        ("packages.torch", "packages and machine"),
        ("sandbox", OTHER),
    ],
)
def test_a_path_belongs_to_the_part_it_is_a_setting_of(path, part):
    assert part_of(path) == part


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
