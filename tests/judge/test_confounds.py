"""Fairness: what differs between two manifests and what of it was declared."""

import copy
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.confounds import ABSENT, OTHER, Confound, differences, part_of


def confounds(control: Mapping, other: Mapping, vary: Sequence[str] = ()) -> list[Confound]:
    """The differences that make two runs not comparable: neither declared nor mere notes."""
    return [c for c in differences(control, other, vary) if c.kind == "confound"]


MANIFEST = {
    "name": "verl7",
    "base_weights": "sha256:1",
    "data": {"train": {"file_sha256": "a", "row_ids_sha256": "b", "rows": 1000}},
    "rendering": {"template_sha256": "t"},
    "reward": {"name": "tools.strict_binary", "source_sha256": "r"},
    "stages": {"rl": {"algorithm": {"name": "grpo", "clip": 0.2}, "steps": 15, "kl": {"coef": 0}}},
    "evaluation": {"bfcl": {"items_hash": "i", "checker": "bfcl-eval 1", "repeats": 5}},
    "code": {"commit": "c"},
    "machine": {"cpu": 2},
    "packages": {"torch": "2.13.0"},
}


def changed(path: str, value: object) -> dict:
    manifest = copy.deepcopy(MANIFEST)
    *above, last = path.split(".")
    table = manifest
    for part in above:
        table = table[part]
    table[last] = value
    return manifest


@pytest.mark.parametrize(
    "path",
    [
        "base_weights",
        "data.train.row_ids_sha256",
        "rendering.template_sha256",
        "reward.source_sha256",
        "stages.rl.steps",
        "evaluation.bfcl.checker",
        "code.commit",
    ],
)
def test_every_part_that_shapes_a_result_is_a_confound(path):
    (found,) = confounds(MANIFEST, changed(path, "other"))
    assert (found.path, found.other) == (path, "other")


@pytest.mark.parametrize("path", ["name", "machine.cpu", "packages.torch"])
def test_notes_are_listed_and_do_not_confound(path):
    other = changed(path, "other")
    assert [d.kind for d in differences(MANIFEST, other)] == ["note"]
    assert confounds(MANIFEST, other) == []


def test_the_declared_factor_covers_all_beneath_it_in_the_words_of_the_experiment_file():
    other = changed("stages.rl.algorithm", {"name": "egpo", "clip": 0.3, "lambda": 0.4})
    assert confounds(MANIFEST, other, vary=["stage.rl.algorithm"]) == []
    assert len(confounds(MANIFEST, other)) == 3


def test_a_prefix_covers_whole_words_only():
    other = changed("stages.rl.steps", 30)
    assert len(confounds(MANIFEST, other, vary=["stages.rl.step"])) == 1
    assert confounds(MANIFEST, other, vary=["stages"]) == []


def test_a_part_that_one_run_lacks_is_a_difference():
    other = copy.deepcopy(MANIFEST)
    del other["reward"]
    found = confounds(MANIFEST, other)
    assert [(f.path, f.other) for f in found] == [
        ("reward.name", ABSENT),
        ("reward.source_sha256", ABSENT),
    ]


LEAVES = st.none() | st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2)
TABLES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | LEAVES, max_size=3),
    max_leaves=8,
)


@given(TABLES, TABLES)
def test_manifests_differ_exactly_when_a_difference_is_listed(one, other):
    forth, back = differences(one, other), differences(other, one)
    assert (forth == []) == (one == other)
    assert [(d.path, d.other, d.control) for d in back] == [
        (d.path, d.control, d.other) for d in forth
    ]


def test_a_path_with_a_dot_in_a_name_is_allowed_as_it_is_printed():
    one, other = ({"stages": {"rl": {"reward": {"tools.ast": {"weight": w}}}}} for w in (1.0, 0.5))
    (found,) = differences(one, other)
    for prefix in (found.path, "stage.rl.reward.tools.ast", "stages.rl.reward"):
        assert [c.kind for c in differences(one, other, allow=[prefix])] == ["allowed"]
    assert [c.kind for c in differences(one, other, allow=["stages.rl.rew"])] == ["confound"]


def test_a_table_that_is_empty_on_one_side_is_no_difference_beside_its_values():
    one, other = {"model_args": {}}, {"model_args": {"dtype": "float16"}}
    assert [d.path for d in differences(one, other)] == ["model_args.dtype"]
    assert [d.path for d in differences(other, one)] == ["model_args.dtype"]


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
        ("model_args.load_in_4bit", "precision and engine"),
        ("model_args.enable_thinking", "prompt rendering"),
        ("model_args.max_gen_toks", "sampling"),
        ("machine.device", "precision and engine"),
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
