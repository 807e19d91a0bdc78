"""`completion` is bare text without roles: questions and answers, one after the other; and
every trained answer ends with a trained end token."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from assay.data.episode import tokens_of
from assay.data.renderings.checkpoint_template import chat_template
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError, apply_template
from assay.data.row import Message, ToolCall
from assay.engines.environments import ask, folder_of
from tests.data.chat import SPECIAL, build, metaspace, tokenizer
from tests.data.renderings.test_rendering import RENDERERS
from tests.models.folders import tiny_tokenizer

SHOTS = (
    Message("system", "Name the animal."),
    Message("user", "It barks.\nAnimal:"),
    Message("assistant", "dog"),
    Message("user", "It purrs.\nAnimal:"),
)
TEXT = "Name the animal.\n\nIt barks.\nAnimal:\ndog\n\nIt purrs.\nAnimal:\n"


def endless():
    made = copy.deepcopy(tokenizer("chatml"))
    made.eos_token = "<|im_end|>"
    return made


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(endless(), "completion")


def test_the_prompt_is_the_text_and_nothing_else(renderer):
    assert renderer.tokenizer.decode(renderer.prompt(SHOTS)) == TEXT


def test_a_trained_answer_continues_its_prompt_and_ends(renderer):
    whole = renderer.conversation((*SHOTS, Message("assistant", "cat")))
    prompt = renderer.prompt(SHOTS)
    assert whole.tokens[: len(prompt)] == prompt
    _, start, end = whole.message_spans[-1]
    assert start == len(prompt)
    assert whole.tokens[start:end] == (*renderer.text("cat"), renderer.end_token)


def test_other_programs_write_the_same_text(renderer):
    written = apply_template(renderer.tokenizer, chat_template(renderer), SHOTS, (), True)
    assert written == TEXT


@pytest.mark.parametrize(
    "message",
    [Message("assistant", "", (ToolCall("f", {}),)), Message("assistant", "x", (), "", "r")],
)
def test_what_has_no_place_is_refused(renderer, message):
    with pytest.raises(RenderingError, match="no place for tools and reasoning"):
        renderer.prompt((SHOTS[1], message, SHOTS[3]))


TALK = (Message("user", "Oslo 2+2="), Message("assistant", "4"))


def beginning(made: Any, end: str = "") -> Any:
    """The tokenizer with `<|im_start|>` before every text that no template writes, as Llama has
    `<|begin_of_text|>`, and `end` behind it, as T5 has `</s>`."""
    ids = [(token, made.convert_tokens_to_ids(token)) for token in SPECIAL["chatml"]]
    layout = f"<|im_start|> $A {end}".strip()
    made.backend_tokenizer.post_processor = TemplateProcessing(single=layout, special_tokens=ids)
    made.bos_token, made.eos_token = SPECIAL["chatml"]
    return made


@pytest.mark.parametrize("end", ["", "<|im_end|>"])
@pytest.mark.parametrize("kind", ["bytes", "spaces"])
def test_completions_begin_as_the_tokenizer_begins_texts(kind: str, end: str) -> None:
    plain = metaspace() if kind == "spaces" else build(SPECIAL["chatml"], None, [])
    bare = plain.encode("Oslo 2+2=\n", add_special_tokens=False)
    made = Renderer(beginning(plain, end), "completion")
    start = made.tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert list(made.prompt(TALK[:1])) == [start, *bare]
    (turn,) = made.turns(TALK)
    assert tokens_of(turn.context) == made.prompt(TALK[:1])
    assert turn.actions[-1] == made.end_token and turn.actions.count(made.end_token) == 1


def test_other_programs_begin_so_too_and_the_fingerprint_tells() -> None:
    without = Renderer(build(SPECIAL["chatml"], None, []), "completion")
    made = Renderer(beginning(build(SPECIAL["chatml"], None, [])), "completion")
    assert made.fingerprint != without.fingerprint
    carried = made.tokenizer
    carried.chat_template = chat_template(made)
    text = carried.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
    assert text == "<|im_start|>a\n"


SCRIPT = """
import json, sys
from datasets import Dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

asked = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(asked["folder"])
config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8,
                     num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
args = SFTConfig(output_dir=asked["folder"] + "/out", report_to="none", use_cpu=True, bf16=False)
trainer = SFTTrainer(LlamaForCausalLM(config), args, processing_class=tokenizer,
                     train_dataset=Dataset.from_list(asked["rows"]))
row = trainer.train_dataset[0]
batch = trainer.data_collator([row])
print(json.dumps({key: batch[key][0].tolist() for key in ("input_ids", "labels")}))
"""


@pytest.mark.slow
def test_trl_trains_the_same_tokens(tmp_path: Path) -> None:
    if not (folder_of("trl") / "installed.json").is_file():
        pytest.skip("the environment of TRL is not installed")
    made = beginning(build(SPECIAL["chatml"], None, []))
    made.save_pretrained(tmp_path)
    script = tmp_path / "tokens.py"
    script.write_text(SCRIPT)
    # `completion` ends a question's line; the answer stands on the next one.
    rows = [{"prompt": TALK[0].content + "\n", "completion": TALK[1].content}]
    theirs = ask("trl", script, {"folder": str(tmp_path), "rows": rows})
    (turn,) = Renderer(made, "completion").turns(TALK)
    assert [*tokens_of(turn.context), *turn.actions] == theirs["input_ids"]
    assert [-100] * len(tokens_of(turn.context)) + [*turn.actions] == theirs["labels"]


ASKED, AGAIN = Message("user", "How are you?"), Message("user", "And you?")
TWO_ANSWERS = (
    ASKED,
    Message("assistant", "I am fine."),
    AGAIN,
    Message("assistant", "Fine, thank you."),
)
BARE = [("chatml", "template"), ("chatml", "template_bare")]
PLAIN = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""A template without any special token."""


def unending(template: str = PLAIN) -> Any:
    """A tokenizer whose template ends no answer, with an end-of-sequence token."""
    made = build(SPECIAL["chatml"], template, ["<think>"])
    made.eos_token = "<|im_end|>"
    return made


@pytest.mark.parametrize("loss", ["all", "last"])
@pytest.mark.parametrize(("style", "name"), [*RENDERERS, *BARE])
def test_where_the_template_ends_answers_nothing_is_added(style: str, name: str, loss: Any) -> None:
    made = Renderer(tokenizer(style), name)
    turns = made.turns(TWO_ANSWERS, (), loss)
    assert not made.adds_end
    for turn in turns:
        assert turn.actions[-1] == made.end_token and turn.loss_mask[-1]
    # The end stands where the template wrote it, once.
    whole = made.conversation(TWO_ANSWERS).tokens
    assert whole.count(made.end_token) == made.tokenizer.decode(list(whole)).count(
        made.tokenizer.decode([made.end_token])
    )
    last = turns[-1]
    assert tokens_of(last.context) + last.actions == whole[: whole_end(made)]


def whole_end(made: Renderer) -> int:
    return made.conversation(TWO_ANSWERS).message_spans[-1][2]


def test_where_the_template_ends_none_the_end_of_sequence_is_trained() -> None:
    made = Renderer(unending(), "template")
    end = made.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert made.adds_end and made.end_token == end
    decode = made.tokenizer.decode
    first, second = made.turns(TWO_ANSWERS)
    assert decode(list(first.actions)) == "I am fine.<|im_end|>"
    assert decode(list(second.actions)) == "Fine, thank you.<|im_end|>"
    for turn in (first, second):
        assert turn.actions[-1] == end and all(turn.loss_mask)
    (last,) = made.turns(TWO_ANSWERS, loss="last")
    assert last == second


def test_without_any_end_and_without_a_template_a_tokenizer_is_refused() -> None:
    none = build(SPECIAL["chatml"], PLAIN, [])
    with pytest.raises(RenderingError, match=r"no end-of-sequence token.*never learn to stop"):
        Renderer(none, "template").turns(TWO_ANSWERS)
    plain = tiny_tokenizer()
    plain.chat_template = None
    # With ChatML's tokens its layout is assumed, ends included; else there is nothing to render by.
    assert Renderer(plain, "template").turns(TWO_ANSWERS)[0].actions[-1] == 258
    with pytest.raises(RenderingError, match="no chat template"):
        Renderer(build(["<s>"], None, []), "template").turns(TWO_ANSWERS)
