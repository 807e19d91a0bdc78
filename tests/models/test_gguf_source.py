"""`path:FILE.gguf` is the model that the file was written of, or one line says what it lacks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from assay.errors import InputError
from assay.models.gguf_file import write_gguf
from assay.models.load import load_model
from assay.models.precision import choose_precision
from assay.models.source import parse_source, resolve
from assay.models.weight_files import save_weights
from tests.data.chat import tokenizer
from tests.few import few
from tests.models.folders import tiny_model

FP32 = choose_precision("fp32", "cpu")
TEXT = "12 apples, don't\n\n  you think? 你好"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(folder: Path, kind: str = "llama", tied: bool = True) -> tuple[Any, Any]:
    """A model, its tokenizer and the file `alone/x.gguf`."""
    words = tokenizer("chatml")
    model = tiny_model(kind, tied=tied, vocab_size=len(words) + 3, head_dim=16).eval()
    (folder / "hf").mkdir()
    (folder / "alone").mkdir()
    save_weights(model, folder / "hf", words)
    write_gguf(model, folder / "hf", folder / "alone" / "x.gguf")
    return model, words


def opened(root: Path) -> Path:
    return resolve(parse_source("path:alone/x.gguf"), relative_to=root)


def edited(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write the file's header again with other fields."""
    file = root / "alone" / "x.gguf"
    reader = gguf.GGUFReader(file)
    fields = {n: f for n, f in reader.fields.items() if not n.startswith("GGUF.")}
    values: dict[str, Any] = {name: field.contents() for name, field in fields.items()}
    change(values)
    writer = gguf.GGUFWriter(root / "new.gguf", values.pop("general.architecture"))
    for name, value in values.items():
        kinds = fields[name].types if name in fields else [gguf.GGUFValueType.STRING]
        sub = kinds[1] if len(kinds) > 1 else None
        writer.add_key_value(name, value, kinds[0], sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (root / "new.gguf").rename(file)


@few("tied", [True, False], fast=1)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_a_file_loads_as_the_model_it_was_written_of(tmp_path: Path, kind: str, tied: bool) -> None:
    model, words = written(tmp_path, kind, tied)
    loaded = load_model(opened(tmp_path), FP32)
    ids = words.encode(TEXT)
    assert loaded.tokenizer.encode(TEXT) == ids
    assert loaded.tokenizer.chat_template == words.chat_template
    assert words.convert_tokens_to_ids("<|im_end|>") in loaded.end_tokens
    with torch.no_grad():
        given = torch.tensor([ids])
        torch.testing.assert_close(loaded.model(given).logits, model(given).logits)


def test_another_file_of_the_same_name_is_another_model(tmp_path: Path) -> None:
    written(tmp_path)
    first = opened(tmp_path)
    assert opened(tmp_path) == first
    edited(tmp_path, lambda values: values.update({"general.name": "other"}))
    assert opened(tmp_path) != first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer.ggml.model": None}, "holds no tokenizer .*put the model's tokenizer.json"),
        ({"tokenizer.ggml.pre": "tekken"}, "not known here: 'tekken'"),
        ({"llama.rope.scaling.type": "yarn"}, "rotary positions are scaled"),
        ({"general.architecture": "gemma3"}, "architecture 'gemma3', and llama, qwen2, qwen3"),
    ],
)
def test_what_would_load_as_another_model_is_refused(
    tmp_path: Path, cache: Path, change: dict[str, Any], words: str
) -> None:
    written(tmp_path)

    def edit(values: dict[str, Any]) -> None:
        values.update(change)
        for name in [n for n, v in values.items() if v is None]:
            del values[name]

    edited(tmp_path, edit)
    with pytest.raises(InputError, match=words) as caught:
        opened(tmp_path)
    assert "x.gguf" in str(caught.value) and "\n" not in str(caught.value)
    assert not cache.exists()


def test_the_tokenizer_beside_a_file_is_taken(tmp_path: Path) -> None:
    _, words = written(tmp_path)
    edited(tmp_path, lambda values: values.update({"tokenizer.ggml.pre": "tekken"}))
    assert isinstance(words, PreTrainedTokenizerFast)
    words.save_pretrained(tmp_path / "alone")
    loaded = load_model(opened(tmp_path), FP32)
    assert loaded.tokenizer.encode(TEXT) == words.encode(TEXT)


@pytest.mark.parametrize("size", [0, 3, 200, -1000])
def test_a_cut_file_is_refused(tmp_path: Path, size: int) -> None:
    written(tmp_path)
    file = tmp_path / "alone" / "x.gguf"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(InputError, match="is not a whole GGUF file") as caught:
        opened(tmp_path)
    assert "\n" not in str(caught.value)


def test_any_other_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"x")
    with pytest.raises(InputError, match=r"model\.pt: is a file"):
        resolve(parse_source("path:model.pt"), relative_to=tmp_path)
