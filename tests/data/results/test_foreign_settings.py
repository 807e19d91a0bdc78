"""The arguments of a model in a foreign log: which model, how it answers, how it is reached."""

import pytest

from assay.data.results.foreign_result import (
    arguments,
    comparable,
    model_arguments,
    quantisation,
)


def test_the_model_is_named_by_some_arguments_and_every_other_may_change_an_answer():
    text = "pretrained=a/b,revision=v2,peft=c,load_in_4bit=True,max_gen_toks=32,house_option=x"
    found = model_arguments(text)
    assert found.identity == {"pretrained": "a/b", "revision": "v2", "peft": "c"}
    assert found.answers == {"load_in_4bit": True, "max_gen_toks": 32, "house_option": "x"}
    assert found.transport == {} and found.device is None


def test_text_and_table_of_the_same_arguments_are_equal():
    text = "pretrained=m,dtype=bfloat16,add_bos_token=false,temperature=0.5,prefix_token_id=7"
    table = {"pretrained": "m", "dtype": "torch.bfloat16", "add_bos_token": False}
    assert arguments(text) == arguments({**table, "temperature": 0.5, "prefix_token_id": 7})
    assert arguments(None) == arguments("") == {}


@pytest.mark.parametrize(
    "idle",
    [
        "dtype=auto",
        "kv_cache_dtype=auto",
        "load_in_4bit=False",
        "revision=main",
        "tokenizer=m",
        "peft=None",
    ],
)
def test_an_argument_that_says_what_its_absence_says_is_absent(idle: str):
    assert model_arguments(f"pretrained=m,{idle}") == model_arguments("pretrained=m")


def test_where_a_model_runs_is_apart_and_a_device_has_no_number():
    found = model_arguments("pretrained=m,device=cuda:1,parallelize=True,batch_size=8")
    assert found.transport == {"parallelize": True, "batch_size": 8}
    assert (found.device, found.answers) == ("cuda", {})


def test_addresses_of_functions_are_no_settings():
    first, second = ({"f": [f"<function f at 0x7f{n}>"]} for n in ("00ab", "11cd"))
    assert comparable(first) == comparable(second) == {"f": ["<function f>"]}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("org/base-7B-Instruct", ""),
        ("org/model-2-2b-it", ""),
        ("org/model-v0.1-bf16", ""),
        ("org/model-unquantized", ""),
        ("reports-2025-q3", ""),
        ("org/model-AWQ", "awq"),
        ("org/model-GPTQ-Int4", "gptq int4"),
        ("org/model-FP8-dynamic", "fp8"),
        ("org/model-bnb-4bit", "4bit bnb"),
        ("org/model-8-bit", "8bit"),
        ("org/model.w8a8", "w8a8"),
        ("org/model-NVFP4A16", "nvfp4a16"),
        ("org/model_mxfp4", "mxfp4"),
        ("org/model-4.65bpw-h6-exl2", "4.65bpw exl2"),
        ("/models/model-IQ2_XXS.gguf", "gguf iq2xxs"),
        ("model:8b-instruct-q4_K_M", "q4km"),
        ("org/model-int4wo-hqq", "hqq int4wo"),
    ],
)
def test_a_models_name_says_how_it_is_quantised(name: str, form: str):
    assert quantisation(name) == form
    for argument in ("pretrained", "model", "gguf_file", "subfolder", "revision"):
        assert model_arguments({argument: name}).answers.get("quantisation", "") == form
    assert model_arguments("peft=x-4bit,pretrained=m").answers == {}
