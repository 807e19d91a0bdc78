"""The chat template of a checkpoint, which makes other programs render as its stage was trained.

A template that already gives the same text is kept. Control tokens that a message merely spells are
parsed as control tokens by other programs; no template can prevent that.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.data.renderings.rendering import Renderer, Tools
from assay.data.renderings.template import (
    DATED,
    IN_PARTS,
    OPTIONS,
    PROBES,
    STORED,
    RenderingError,
    bare_template,
    hermes_beginning,
    qwen_template,
    reads_parts_alone,
    template_source,
    undressed,
    write_tokenizer,
)
from assay.data.row import Message

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
    answered = messages[-1].role == "assistant"
    whole = renderer.conversation(messages, tools).tokens if answered else ()
    return (*renderer.prompt(messages, tools), *whole)
