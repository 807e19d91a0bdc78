"""The right reader is found by what a file holds, and a file of no known kind is refused."""

from pathlib import Path

import pytest

from assay.data.loaded import DataError
from assay.data.results.foreign_result import (
    model_arguments,
    quantisation,
)
from assay.data.results.readers import READERS, read_results, recognise
from assay.errors import InputError
from tests.data.results.produced import PRODUCED


@pytest.mark.parametrize("name", sorted(PRODUCED))
def test_files_of_every_tool_are_recognised(name: str):
    for file in PRODUCED[name]:
        assert recognise(file) == name, file


def test_every_reader_is_tried_on_a_file_that_its_tool_wrote():
    assert set(PRODUCED) | {"table"} == set(READERS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.json", b'{"loss": 1, "epoch": 2}', ("r.json", "epoch, loss", "--format", "lm-eval")),
        ("r.jsonl", b"not json\n", ("r.jsonl:1", "malformed JSON")),
        ("r.jsonl", b"", ("r.jsonl", "empty")),
        ("r.parquet", b"PAR1 and no more", ("r.parquet", "damaged parquet")),
        ("r.eval", b"PK and no more", ("r.eval", "damaged zip")),
        ("r.csv", b"item,score\n\xff,1\n", ("r.csv", "UTF-8")),
        ("rank_0.bin", b"\x93\x00\x81\x00", ("rank_0.bin", "binary file of no known format")),
    ],
)
def test_what_is_no_file_of_results_is_refused_by_name(
    tmp_path: Path, name: str, content: bytes, words: tuple[str, ...]
):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((InputError, DataError)) as refusal:
        read_results(tmp_path / name)
    assert all(word in str(refusal.value) for word in words), refusal.value


def test_the_model_is_named_by_some_arguments_and_every_other_may_change_an_answer():
    text = "pretrained=a/b,revision=v2,peft=c,load_in_4bit=True,max_gen_toks=32,house_option=x"
    found = model_arguments(text)
    assert found.identity == {"pretrained": "a/b", "revision": "v2", "peft": "c"}
    assert found.answers == {"load_in_4bit": True, "max_gen_toks": 32, "house_option": "x"}
    assert found.transport == {} and found.device is None


@pytest.mark.parametrize(
    "idle",
    [
        "dtype=auto",
        "load_in_4bit=False",
        "revision=main",
        "peft=None",
    ],
)
def test_an_argument_that_says_what_its_absence_says_is_absent(idle: str):
    assert model_arguments(f"pretrained=m,{idle}") == model_arguments("pretrained=m")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("org/base-7B-Instruct", ""),
        ("org/model-unquantized", ""),
        ("reports-2025-q3", ""),
        ("org/model-bnb-4bit", "4bit bnb"),
        ("org/model-NVFP4A16", "nvfp4a16"),
        ("org/model-4.65bpw-h6-exl2", "4.65bpw exl2"),
        ("/models/model-IQ2_XXS.gguf", "gguf iq2xxs"),
        ("model:8b-instruct-q4_K_M", "q4km"),
    ],
)
def test_a_models_name_says_how_it_is_quantised(name: str, form: str):
    assert quantisation(name) == form
    for argument in ("pretrained", "model", "gguf_file", "subfolder", "revision"):
        assert model_arguments({argument: name}).answers.get("quantisation", "") == form
    assert model_arguments("peft=x-4bit,pretrained=m").answers == {}
