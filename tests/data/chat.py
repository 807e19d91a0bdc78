"""Tiny tokenizers with chat templates of the three common styles, built without downloads."""

from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

LINES = [
    "What is the weather in Paris? The weather in Paris is sunny and 21 degrees.",
    "You can call functions. # Tools tool_call tool_response think system user assistant tool",
    '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n\n\n',
    "Hello there, how are you today? I am fine, thank you.\n\nAnd you?",
]

CHATML = """{% for message in messages %}{% if loop.first and message['role'] != 'system' %}\
{{ '<|im_start|>system\nYou are tiny.<|im_end|>\n' }}{% endif %}\
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

LLAMA = """{{ bos_token }}{% if messages[0].role == 'system' %}\
{% set system = messages[0].content %}{% set messages = messages[1:] %}{% else %}\
{% set system = '' %}{% endif %}\
{{ '<|start|>system<|head|>\n\nToday: ' + date_string + '\n' + system }}\
{% if tools %}{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}{% endif %}<|eot|>\
{% for message in messages %}{{ '<|start|>' + message.role + '<|head|>\n\n' }}\
{{ message.content | trim }}\
{% if message.tool_calls %}{% for call in message.tool_calls %}\
{{ '{"name": ' + call.function.name | tojson + ', "parameters": ' \
+ call.function.arguments | tojson + '}' }}{% endfor %}{% endif %}<|eot|>{% endfor %}\
{% if add_generation_prompt %}{{ '<|start|>assistant<|head|>\n\n' }}{% endif %}"""

# Reasoning is written after the last real question only, and the last message always has a think
# block: earlier messages change as the conversation grows.
QWEN3 = """{% if tools %}{{ '<|im_start|>system\n' }}\
{% if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}\
{{ '# Tools\n<tools>' }}{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}\
{{ '\n</tools><|im_end|>\n' }}{% elif messages[0].role == 'system' %}\
{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% endif %}\
{% set ns = namespace(last=-1) %}{% for message in messages %}\
{% if message.role == 'user' and not message.content.startswith('<tool_response>') %}\
{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
{% for message in messages %}{% if message.role == 'user' %}\
{{ '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}\
{% elif message.role == 'tool' %}\
{{ '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}\
{% elif message.role == 'assistant' %}{% set content = message.content %}\
{% set reasoning = message.reasoning_content or '' %}\
{% if '</think>' in content %}\
{% set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}\
{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}\
{{ '<|im_start|>assistant\n' }}\
{% if loop.index0 > ns.last and (loop.last or reasoning) %}\
{{ '<think>\n' + reasoning + '\n</think>\n\n' }}{% endif %}{{ content }}\
{% for call in message.tool_calls or [] %}{% if content or not loop.first %}{{ '\n' }}{% endif %}\
{{ '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}\
{{ call.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}\
{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

SPECIAL = {
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "llama": ["<|begin|>", "<|start|>", "<|head|>", "<|eot|>"],
    "qwen3": ["<|im_start|>", "<|im_end|>"],
}
TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "qwen3": QWEN3}


@cache
def tokenizer(style: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with the special tokens and the template of a style."""
    return build(SPECIAL[style], TEMPLATES[style], ["<think>", "</think>", "<tool_call>"])


def build(special: list[str], template: str | None, words: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer trained on LINES; `words` are added tokens that are not special."""
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    base.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    base.train_from_iterator(
        LINES * 3, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet)
    )
    made = PreTrainedTokenizerFast(tokenizer_object=base)
    made.add_tokens(words)
    made.add_special_tokens({"additional_special_tokens": special})
    made.bos_token = special[0]
    made.chat_template = template
    return made


def metaspace() -> PreTrainedTokenizerFast:
    """A tokenizer that puts a space before the text it is given, as SentencePiece does."""
    base = Tokenizer(models.BPE(unk_token="<unk>"))
    base.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    base.decoder = decoders.Metaspace(prepend_scheme="first")
    alphabet = sorted(set("".join(LINES)) | set("▁<>|_/"))
    trainer = trainers.BpeTrainer(
        vocab_size=200, initial_alphabet=alphabet, special_tokens=["<unk>"]
    )
    base.train_from_iterator(LINES * 3, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=base)
    made.add_special_tokens({"additional_special_tokens": SPECIAL["chatml"]})
    made.chat_template = CHATML
    return made
