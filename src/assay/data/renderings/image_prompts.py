"""Renders conversations with images by the chat template of a model that reads both.

The template writes one token for each image; the caller says what text stands for it, because how
many tokens an image takes depends on its size. As in `rendering`, messages cannot spell control
tokens. Only the model's own template is known here, and what is trained is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.data.encoding import Codec
from assay.data.files import canonical_json, sha256_text
from assay.data.renderings.template import DATE, MEND, PROBE, PROBE_TALK, RenderingError
from assay.data.row import Message, TextPart
from assay.errors import nearest

RENDERINGS_WITH_IMAGES = ("auto", "template")
"""Both mean the model's own template."""


@dataclass(frozen=True)
class ImageRenderer:
    """A tokenizer, a chat template and the token that it writes for an image."""

    tokenizer: Any
    source: str
    """The template."""
    image: str

    def prompt(self, messages: Sequence[Message], written: Sequence[str]) -> tuple[int, ...]:
        """The tokens that a model continues as the assistant; `written` is the text that stands
        for each image, in order. Raises RenderingError.
        """
        text = self._text(self._safe(messages), generation=True)
        pieces = text.split(self.image)
        if len(pieces) - 1 != len(written):
            problem = f"the chat template writes {len(pieces) - 1} of {len(written)} images"
            raise RenderingError(problem, fix=MEND)
        whole = pieces[0] + "".join(w + p for w, p in zip(written, pieces[1:], strict=True))
        return tuple(self._codec.encode(whole, first=True))

    def text(self, answer: str) -> tuple[int, ...]:
        """The tokens of what an assistant writes after a prompt, without the end of its turn."""
        text = self._lead + self._codec.break_up(answer) if answer else ""
        return tuple(self._codec.encode(text, first=False))

    @cached_property
    def answer_end(self) -> tuple[int, ...]:
        """The tokens that end an answer: what the template writes behind one, up to its first
        control token. Raises RenderingError."""
        behind = self._text(PROBE_TALK, generation=False).rpartition(PROBE)[2]
        specials = self._codec.specials(behind)
        if not specials:
            problem = "the chat template ends an assistant message without a special token"
            raise RenderingError(problem, fix=MEND)
        return tuple(self._codec.encode(behind[: specials[0][1]], first=False))

    def check(self) -> None:
        """Raise RenderingError unless the template writes texts and images."""
        messages = (Message("user", PROBE), Message("assistant", PROBE), Message("user", PROBE))
        if self._text(messages, generation=True).count(PROBE) < len(messages):
            raise RenderingError("the chat template does not write the messages", fix=MEND)
        assert self.answer_end
        shown = [{"role": "user", "content": [{"type": "image"}, _text_part(PROBE)]}]
        if self._applied(shown, True).count(self.image) != 1:
            raise RenderingError("the chat template does not write the images", fix=MEND)

    @property
    def fingerprint(self) -> str:
        """sha256 of the template."""
        return sha256_text(canonical_json(["images", "1", self.source]))

    @cached_property
    def _codec(self) -> Codec:
        return Codec(self.tokenizer)

    @cached_property
    def _lead(self) -> str:
        """What the template writes between the generation prompt and an answer: SmolVLM's writes a
        space."""
        before = self._text(PROBE_TALK[:1], generation=True)
        after = self._text(PROBE_TALK, generation=False)
        lead = after.removeprefix(before).partition(PROBE)[0]
        return lead if after.startswith(before) and not lead.strip() else ""

    def _safe(self, messages: Sequence[Message]) -> list[Message]:
        safe = []
        for message in messages:
            if message.tool_calls or message.role == "tool" or message.reasoning:
                problem = "a model that reads images is asked here without tools and reasoning"
                raise RenderingError(problem, fix="ask another model")
            parts = tuple(
                TextPart(self._codec.break_up(part.text)) if isinstance(part, TextPart) else part
                for part in message.parts
            )
            content = self._codec.break_up(message.content)
            if self.image in content:
                problem = f"a {message.role} message spells {self.image}, the token of an image"
                raise RenderingError(problem, fix="take it out, or mark the token as special")
            safe.append(Message(message.role, content, parts=parts))
        return safe

    def _text(self, messages: Sequence[Message], generation: bool) -> str:
        return self._applied([_in_parts(message) for message in messages], generation)

    def _applied(self, messages: list[dict[str, Any]], generation: bool) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                messages,
                chat_template=self.source,
                add_generation_prompt=generation,
                tokenize=False,
                date_string=DATE,
            )
        except Exception as error:
            # A template is a program: it can raise whatever a program can.
            why = " ".join(str(error).split()) or type(error).__name__
            raise RenderingError(f"the chat template failed: {why}", fix=MEND) from error


def _in_parts(message: Message) -> dict[str, Any]:
    """A message as templates with images take it: its content is always a list."""
    parts: Sequence[Any] = message.parts or (TextPart(message.content),)
    return {
        "role": message.role,
        "content": [
            _text_part(part.text) if isinstance(part, TextPart) else {"type": "image"}
            for part in parts
        ],
    }


def _text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def refuse_rendering(name: str) -> None:
    """Raise RenderingError for a rendering that writes no images."""
    if name not in RENDERINGS_WITH_IMAGES:
        fix = nearest(name, RENDERINGS_WITH_IMAGES)
        problem = f"{name!r} writes no images; a model that reads them has its own template"
        raise RenderingError(problem, field="rendering", fix=fix)
