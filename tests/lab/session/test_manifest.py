"""Fingerprints: they change with what they are of, and a resumed run must find its own again."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.experiment.toml_write import experiment_toml
from assay.lab.monitor.observer import Silent
from assay.lab.session.manifest import (
    check_manifest,
    code_fingerprint,
    make_manifest,
    prompts_sha256,
)
from assay.lab.session.reward_parts import source_sha256
from assay.lab.session.session import Session
from assay.labs.math.task import TASK
from assay.runs.run_directory import create_run, read_manifest, write_manifest
from tests.tiny_labs import make_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    return make_lab(folder)


def session(file: Path, *overrides: str, seed: int = 7) -> Session:
    experiment = read_experiment(file, overrides)
    run = create_run(
        file.parent, experiment.name, seed=seed, spec=experiment_toml(experiment), new=True
    )
    return Session(experiment, run, seed, Silent())


@pytest.fixture(scope="module")
def made(lab: Path) -> tuple[Session, dict[str, Any]]:
    here = session(lab)
    return here, make_manifest(here)


def test_a_manifest_is_json_and_comes_out_the_same_twice(lab, made):
    _, first = made
    again = make_manifest(session(lab))
    again["time"] = first["time"]
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(first))


def test_everything_the_design_names_has_a_fingerprint(made):
    _, manifest = made
    train = manifest["data"]["sums"]
    assert (train["total"], train["train"]["rows"], train["dev"]["rows"]) == (16, 12, 4)
    hashes = [
        manifest["base_weights"]["sha256"],
        *(train[k] for k in ("file_sha256", "contents_sha256", "prompts_sha256")),
        train["train"]["row_ids_sha256"],
        manifest["stages"]["rl"]["rendering"]["sha256"],
        manifest["evaluation"]["test"]["prompts_sha256"],
        manifest["code"]["source_sha256"],
    ]
    assert all(len(h) == 64 for h in hashes)
    assert manifest["stages"]["rl"]["reward"]["accuracy"]["version"] == 1
    assert manifest["evaluation"]["dev"]["reward"]["accuracy"]["version"] == 1
    assert manifest["packages"]["torch"].startswith("2.")
    assert manifest["machine"]["precision"]["master"] == "float32"


def test_a_resumed_run_finds_itself_again_and_notes_when(made):
    here, manifest = made
    write_manifest(here.run, manifest)
    elsewhere = json.loads(json.dumps(manifest))
    elsewhere["machine"]["torch_threads"] = 99
    elsewhere["time"]["started"] = "2027-01-01T00:00:00+00:00"
    check_manifest(here.run, manifest)
    check_manifest(here.run, elsewhere)
    first, second = read_manifest(here.run)["time"]["resumed"]
    assert first == {"at": manifest["time"]["started"], "changed": {}}
    threads = manifest["machine"]["torch_threads"]
    assert second == {
        "at": "2027-01-01T00:00:00+00:00",
        "changed": {"machine.torch_threads": [threads, 99]},
    }
    kept = read_manifest(here.run)
    del kept["time"]["resumed"]
    assert kept == json.loads(json.dumps(manifest))


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_run_goes_on_in_the_precision_that_it_began_in(lab, made, compute):
    begun = session(lab)
    manifest = json.loads(json.dumps(made[1]))
    manifest["machine"]["precision"] |= {"compute": compute, "device": "cpu", "reason": "as begun"}
    write_manifest(begun.run, manifest)
    again = Session(begun.experiment, begun.run, 7, Silent()).precision
    assert again.record() == manifest["machine"]["precision"]


def test_a_run_whose_data_changed_is_not_resumed(lab, made):
    here, manifest = made
    write_manifest(here.run, manifest)
    changed = json.loads(json.dumps(manifest))
    changed["data"]["sums"]["file_sha256"] = "f" * 64
    changed["base_weights"]["sha256"] = "e" * 64
    with pytest.raises(InputError) as raised:
        check_manifest(here.run, changed)
    was = manifest["base_weights"]["sha256"]
    assert str(raised.value) == (
        f"{here.run.path}: base_weights.sha256 was '{was}' and is now '{'e' * 64}' "
        "(restore it, or start another run with --new; 1 more)"
    )
    assert "resumed" not in read_manifest(here.run)["time"]


def test_the_checkpoint_that_a_model_is_stands_by_its_folder(lab, made):
    here, _ = made
    folder = here.run.checkpoint("sft", 40)
    folder.parent.mkdir(parents=True)
    folder.symlink_to(lab.parent / "model", target_is_directory=True)
    manifest = make_manifest(session(lab, f"model=run:tiny/{here.run.id}@sft.last"))
    assert manifest["base_weights"]["checkpoint"] == (
        f"runs/tiny/{here.run.id}/checkpoints/sft/step-000040"
    )


def test_prompts_are_told_apart_by_tokens_order_and_borders():
    prints = {
        prompts_sha256(prompts)
        for prompts in ([[1, 2], [3]], [[1], [2, 3]], [[3], [1, 2]], [[1, 2, 3]], [[12], [3]], [])
    }
    assert len(prints) == 6
    assert prompts_sha256([(1, 2)]) == prompts_sha256([[1, 2]])


def test_a_reward_is_known_by_the_module_that_defines_it():
    class Scorer:
        def __call__(self) -> int:
            return 1

    accuracy = TASK.rewards["accuracy"]
    assert source_sha256(accuracy) == source_sha256(accuracy)
    assert source_sha256(accuracy) != source_sha256(prompts_sha256)
    own = source_sha256(test_a_reward_is_known_by_the_module_that_defines_it)
    assert source_sha256(Scorer()) == own


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "thing"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("x = 1\n")
    return folder


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True
    )


def test_code_under_git_is_known_by_commit_and_changes(package):
    root = package.parents[1]
    git(root, "init")
    git(root, "add", ".")
    git(root, "commit", "-m", "one")
    clean = code_fingerprint(package)
    assert len(clean["commit"]) == 40
    assert clean["diff_sha256"] == ""
    (package / "__init__.py").write_text("x = 2\n")
    dirty = code_fingerprint(package)
    assert dirty["commit"] == clean["commit"]
    assert len(dirty["diff_sha256"]) == 64
    assert dirty["source_sha256"] != clean["source_sha256"]


def test_a_package_that_git_does_not_track_is_not_given_the_repositorys_commit(package):
    root = package.parents[1]
    (root / ".gitignore").write_text("src\n")
    git(root, "init")
    git(root, "add", ".")
    git(root, "commit", "-m", "one")
    assert list(code_fingerprint(package)) == ["source_sha256"]
