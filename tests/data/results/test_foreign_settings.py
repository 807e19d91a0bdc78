"""The arguments of a model in a foreign log: which model, how it answers, how it is reached."""

import pytest

from assay.data.results.foreign_settings import arguments, comparable, model_arguments


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
    "idle", ["dtype=auto", "load_in_4bit=False", "revision=main", "tokenizer=m", "peft=None"]
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
