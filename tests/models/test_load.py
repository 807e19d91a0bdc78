"""A model folder loads completely in fp32 or not at all; only its end tokens steer sampling."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import GenerationConfig

from assay.errors import InputError
from assay.models.load import chat_end_token, end_token_ids, load_model, weight_fingerprint
from assay.models.precision import choose_precision
from tests.models.conftest import SaveModel
from tests.models.edits import edit_json, edited_weights
from tests.models.folders import CHAT, tiny_model, tiny_tokenizer

FP32 = choose_precision("fp32", "cpu")
END, START, IM_END = 256, 257, 258


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_what_was_saved_is_what_is_loaded(save_model: SaveModel, kind: str, tied: bool) -> None:
    model = tiny_model(kind, tied=tied)
    loaded = load_model(save_model(model), FP32)
    assert loaded.fingerprint == weight_fingerprint(model)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(loaded.model(ids).logits, model.eval()(ids).logits)
    assert not loaded.model.training


def test_bf16_shards_become_fp32_master_weights(save_model: SaveModel) -> None:
    model = tiny_model(tied=False).bfloat16()
    folder = save_model(model, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    loaded = load_model(folder, FP32)
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    assert loaded.fingerprint == weight_fingerprint(model.float())


def test_every_missing_unexpected_and_misshapen_key_stops_the_load(save_model: SaveModel) -> None:
    folder = save_model(tiny_model("qwen2", tied=False))
    with edited_weights(folder / "model.safetensors") as state:
        del state["model.norm.weight"], state["model.layers.1.self_attn.q_proj.bias"]
        state["model.layers.9.mlp.up_proj.weight"] = torch.zeros(2)
        state["model.layers.0.mlp.up_proj.weight"] = torch.zeros(63, 32)
    with pytest.raises(InputError) as caught:
        load_model(folder, FP32)
    said = str(caught.value)
    assert "2 missing: model.layers.1.self_attn.q_proj.bias, model.norm.weight; " in said
    assert "1 unexpected: model.layers.9.mlp.up_proj.weight; " in said
    assert "1 wrong shape: model.layers.0.mlp.up_proj.weight [63, 32] for [64, 32]" in said


def test_a_shard_that_lost_a_key_of_the_index_stops_the_load(save_model: SaveModel) -> None:
    folder = save_model(tiny_model(), max_shard_size="20KB")
    shard = next(f for f in folder.glob("model-*.safetensors") if len(load_file(f)) > 1)
    with edited_weights(shard) as state:
        gone = sorted(state)[0]
        del state[gone]
    with pytest.raises(InputError) as caught:
        load_model(folder, FP32)
    assert f"1 missing: {gone}" in str(caught.value)


def test_a_head_that_contradicts_its_tie_stops_the_load(save_model: SaveModel) -> None:
    folder = save_model(tiny_model(tied=False))
    edit_json(folder / "config.json", tie_word_embeddings=True)
    with pytest.raises(InputError, match=r"tied but different: lm_head\.weight = model\.embed"):
        load_model(folder, FP32)


def test_other_architectures_are_refused_with_both_names(save_model: SaveModel) -> None:
    folder = save_model(tiny_model())
    edit_json(folder / "config.json", architectures=["LlamaForSequenceClassification"])
    with pytest.raises(InputError, match=r"ForSequence.*LlamaForCausalLM"):
        load_model(folder, FP32)
    edit_json(folder / "config.json", model_type="nonsense")
    with pytest.raises(InputError, match=r"'nonsense'.*llama, mistral, qwen2, qwen3"):
        load_model(folder, FP32)


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3"])
def test_positions_of_fixed_frequencies_are_taken(save_model: SaveModel, kind: str) -> None:
    folder = save_model(tiny_model())
    rope = {"rope_type": kind, "factor": 8.0, "rope_theta": 1e4}
    rope |= {"original_max_position_embeddings": 32} if kind != "linear" else {}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
    edit_json(folder / "config.json", rope_parameters=rope)
    assert load_model(folder, FP32).model.config.rope_parameters["rope_type"] == kind


def test_a_tokenizer_with_more_ids_than_the_embedding_is_refused(save_model: SaveModel) -> None:
    folder = save_model(tiny_model(vocab_size=258))
    with pytest.raises(InputError, match=r"ids up to 258, the embedding has 258 rows"):
        load_model(folder, FP32)


def test_the_models_own_sampling_settings_do_not_survive(save_model: SaveModel) -> None:
    model = tiny_model()
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=0.2, top_k=3, repetition_penalty=1.3, eos_token_id=[END, START]
    )
    loaded = load_model(save_model(model), FP32)
    kept = loaded.model.generation_config
    assert kept is not None
    plain = GenerationConfig(eos_token_id=kept.eos_token_id, pad_token_id=kept.pad_token_id)
    assert kept.to_diff_dict() == plain.to_diff_dict()
    assert loaded.end_tokens == frozenset({END, START, IM_END})


def test_end_tokens_are_the_union_of_all_that_state_one() -> None:
    model, tokenizer = tiny_model(), tiny_tokenizer()
    assert end_token_ids(model, tokenizer) == {END, IM_END}
    tokenizer.chat_template = ""
    assert end_token_ids(model, tokenizer) == {END}
    model.config.eos_token_id = [3, 4]
    assert model.generation_config is not None
    model.generation_config.eos_token_id = 5
    assert end_token_ids(model, tokenizer) == {3, 4, 5, END}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHAT, IM_END),
        ("{% for m in messages %}{{ m['content'] }}<|endoftext|>{% endfor %}", END),
        ("{% for m in messages %}<|im_start|>{{ m['content'] }}\n{% endfor %}", None),
    ],
)
def test_the_token_after_an_assistant_message_is_read_off_the_template(
    template: str, expected: int | None
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    assert chat_end_token(tokenizer) == expected
