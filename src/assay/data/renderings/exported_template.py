"""Writes the chat template that makes other programs render as a stage was trained.

A template that already gives the same text is kept. Control tokens that a message merely spells are
parsed as control tokens by other programs; no template can prevent that.
"""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.data.renderings.rendering import Renderer, Tools
from assay.data.renderings.template import (
    DATED,
    IN_PARTS,
    OPTIONS,
    STORED,
    RenderingError,
    bare_template,
    hermes_beginning,
    qwen_template,
    reads_parts_alone,
    template_source,
    undressed,
)
from assay.data.row import Message, ToolCall

CALL = ToolCall("f", {"ort": "Zürich 苏黎世", "n": [1.5, None, True]}, "call00001")
TOOL = {
    "name": "f",
    "description": "天气 é",
    "parameters": {"type": "object", "properties": {"ort": {"type": "string"}}},
}
ASKED = (Message("system", "s"), Message("user", "你好"))
CALLED = Message("assistant", "", (CALL, CALL), reasoning="r")
ANSWERED = Message("assistant", "text", reasoning="t")
PROBES: tuple[tuple[Sequence[Message], Tools], ...] = (
    (ASKED[1:], ()),
    (ASKED, ()),
    (ASKED[1:], (TOOL,)),
    (ASKED, (TOOL, TOOL | {"name": "g"})),
    ((*ASKED, Message("assistant", "text")), (TOOL,)),
    ((*ASKED, ANSWERED), ()),
    ((*ASKED, CALLED, Message("tool", "1"), Message("tool", "2")), (TOOL,)),
    ((*ASKED, CALLED, Message("tool", "1"), ANSWERED), (TOOL,)),
    ((*ASKED, ANSWERED, Message("user", "?"), Message("assistant", "x", (CALL,))), (TOOL,)),
)
"""Conversations that two templates must write alike to be one: tools, several calls and turns,
reasoning, other scripts."""


COMPLETION = (
    "{% for message in messages %}{{ message['content'] }}"
    "{{ '\n' if message['role'] == 'user' else '\n\n' }}{% endfor %}"
)
"""The rendering `completion`, which has no generation prompt."""


def save_tokenizer(renderer: Renderer, folder: Path) -> None:
    """Save the tokenizer with the template of its rendering, as `chat_template.jinja`."""
    own = copy.copy(renderer.tokenizer)
    own.chat_template = chat_template(renderer)
    write_tokenizer(own, folder)


ADDS_BOS = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer")
"""Classes that begin a text with BOS in Transformers 4, and in 5 not, where nothing is said."""


def write_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer in words that Transformers 4 knows too, and 5 reads as its own."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    if settings["tokenizer_class"] in ADDS_BOS:
        settings["add_bos_token"] = tokenizer.bos_token_id in tokenizer("")["input_ids"]
    # Transformers 4 expects a table under this name, and stops at a list.
    if isinstance(extra := settings.pop("extra_special_tokens", None), list):
        settings["additional_special_tokens"] = extra
    elif extra is not None:
        settings["extra_special_tokens"] = extra
    text = json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    file.write_text(text, encoding="utf-8")


def chat_template(renderer: Renderer) -> Any:
    """Jinja that writes what the renderer writes; several by name where the model has several."""
    made = _template(renderer)
    if isinstance(made, dict):
        return {name: source.replace(OPTIONS, STORED) for name, source in made.items()}
    return made.replace(OPTIONS, STORED)


def _template(renderer: Renderer) -> Any:
    tokenizer = renderer.tokenizer

    def written_by(source: str) -> str:
        """A model's own template, with the date of training where it asks for a date."""
        made = bare_template(tokenizer, source) if renderer.name == "template_bare" else source
        return DATED + made if "date_string" in made else made

    if renderer.name == "hermes":
        own = template_source(tokenizer)
        parts = IN_PARTS if reads_parts_alone(tokenizer, own) else ""
        return written_by(hermes_beginning() + parts + own)
    if renderer.name == "completion":
        return renderer.beginning + COMPLETION
    if renderer.name.startswith("qwen3") and not written_by_own_template(renderer):
        return qwen_template(renderer.name == "qwen3_fc")
    if isinstance(tokenizer.chat_template, dict):
        sources = tokenizer.chat_template.items()
        return {name: written_by(undressed(source)) for name, source in sources}
    return written_by(template_source(tokenizer))


def written_by_own_template(renderer: Renderer) -> bool:
    """Whether the tokenizer's template writes all PROBES, prompt and whole, as the renderer."""
    own = Renderer(renderer.tokenizer, "template")
    try:
        return all(
            written(own, messages, tools) == written(renderer, messages, tools)
            for messages, tools in PROBES
        )
    except RenderingError:
        return False


def written(renderer: Renderer, messages: Sequence[Message], tools: Tools) -> tuple[int, ...]:
    """The tokens of a conversation as a prompt, and as a whole where the assistant speaks last."""
    prompt = renderer.prompt(messages, tools)
    if messages[-1].role != "assistant":
        return prompt
    return (*prompt, *renderer.conversation(messages, tools).tokens)
