"""Turns rows into plain messages that another tool's template writes as the tokens of a rendering.

verl and TRL's GRPO cannot be given tools row by row, and ms-swift writes them in its own way. They
get the text of a rendering instead: its system text as a system message; all that follows, earlier
turns included, as one user message, since templates rewrite earlier answers; and the answer. What
the tool's tokenizer would not turn into the rendering's tokens is refused: a control token that a
message spells, characters that merge across messages, text that the model's own template adds.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from assay.data.episode import Turn, tokens_of
from assay.data.renderings.rendering import RENDERINGS, Renderer
from assay.data.renderings.template import (
    CHATML,
    PROBE,
    RenderingError,
    apply_template,
    template_source,
)
from assay.data.row import Message, Row

REWRITTEN = "the template rewrites earlier answers, so that no one sequence trains them all"
FIX = "take the row out, or name another rendering"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a chat template writes around plain messages."""

    question: str
    """Before a first question."""
    system: str
    """Before a system text; "" where the template takes none."""
    asked: str
    """Between a system text and the question."""
    answer: str
    """Between a question and an answer."""
    generation: str
    """Behind the last question: the same, and what the template writes for the assistant."""
    again: str
    """Between an answer and the next question."""


def layout_of(tokenizer: Any) -> Layout:
    """The layout of a tokenizer's own template, by trial. Raises RenderingError."""
    source = template_source(tokenizer)
    first, later, said = PROBE + "a", PROBE + "b", PROBE + "c"
    question, answer = Message("user", first), Message("assistant", said)
    asked = apply_template(tokenizer, source, (question,), (), True)
    whole = apply_template(
        tokenizer, source, (question, answer, Message("user", later)), (), True
    )
    system, between = "", ""
    try:
        headed = (Message("system", said), question)
        text = apply_template(tokenizer, source, headed, (), True)
        if said in text:
            system, between = text.partition(first)[0].split(said)
    except RenderingError:
        pass  # such a template has no place for a system text, and says so
    head, _, generation = asked.partition(first)
    behind = whole.partition(first)[2].partition(said)
    again = behind[2].partition(later)[0]
    made = Layout(head, system, between, behind[0], generation, again)
    if not (made.answer and made.generation.startswith(made.answer)):
        problem = "the chat template writes an answer's beginning otherwise than it asks for one"
        raise RenderingError(problem, fix="use a model with another template")
    return made


class PlainText:
    """Writes rows in the rendering `name`, for a model whose tokenizer is given.

    Without a tokenizer the plain messages are meant for a template that writes ChatML and nothing
    else. Raises UnknownRenderingError and RenderingError.
    """

    def __init__(self, name: str, tokenizer: Any = None) -> None:
        if tokenizer is None and name in RENDERINGS and RENDERINGS[name].reads_template:
            fix = "name the model or the experiment: --for"
            raise RenderingError(f"{name!r} reads a model's template", field="--rendering", fix=fix)
        self.tokenizer = _bytes() if tokenizer is None else tokenizer
        self.renderer = Renderer(self.tokenizer, name)

    @cached_property
    def layout(self) -> Layout:
        """What stands around the plain messages."""
        return layout_of(self.tokenizer)

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The messages before the answer. Raises RenderingError where they cannot be equal."""
        tokens = self.renderer.prompt(row.prompt, row.tools)
        messages = self._context(tokens)
        self._check(row, messages, tokens)
        return messages

    def completion(self, row: Row) -> tuple[Message, ...]:
        """`prompt` with the answer behind it. Raises RenderingError."""
        turn = self.renderer.turns((*row.prompt, row.messages[-1]), row.tools, "last")[-1]
        opened = self.layout.generation.removeprefix(self.layout.answer)
        text = self._decode(turn.actions).removesuffix(self._end)
        messages = (*self._context(tokens_of(turn.context)), Message("assistant", opened + text))
        self._check(row, messages, (*tokens_of(turn.context), *turn.actions))
        return messages

    def conversation(self, row: Row) -> tuple[Message, ...]:
        """The one sequence that is trained, where an assistant message is what one is trained on;
        what the template writes for the assistant is one that is not.

        Raises RenderingError where there are several sequences, or they cannot be equal.
        """
        turn, *others = self.renderer.turns(row.messages, row.tools)
        if others:
            raise RenderingError(REWRITTEN, fix="--expand each_turn writes a row for each answer")
        context = tokens_of(turn.context)
        messages = [*self._context(context), *self._opened()]
        pieces = [context]
        at = 0
        for trained, run in groupby(turn.loss_mask):
            pieces.append(turn.actions[at : (at := at + len(list(run)))])
            text = self._decode(pieces[-1])
            if trained:
                messages.append(Message("assistant", text.removesuffix(self._end)))
            else:
                again = self.layout.again.removeprefix(self._end)
                messages.append(Message("user", self._inner(text, again)))
                messages += self._opened()
        for piece in pieces:
            if self._encode(self._decode(piece)) != list(piece):
                raise self._differs(row)
        return tuple(messages)

    def _context(self, tokens: tuple[int, ...]) -> tuple[Message, ...]:
        text, layout = self._decode(tokens), self.layout
        if text.startswith(layout.question):
            return (Message("user", self._inner(text, layout.question)),)
        own, between, _ = text.removeprefix(layout.system).partition(layout.asked)
        if not (layout.system and between and text.startswith(layout.system)):
            problem = "the rendering begins in a way that the model's own template cannot write"
            raise RenderingError(problem, field="rendering", fix="use the model's own template")
        rest = self._inner(text, layout.system + own + between)
        return Message("system", own), Message("user", rest)

    def _inner(self, text: str, before: str) -> str:
        """What stands between `before` and the generation prompt."""
        after = self.layout.generation
        if not (text.startswith(before) and text.endswith(after)):
            problem = "the rendering asks in a way that the model's own template cannot write"
            raise RenderingError(problem, field="rendering", fix="use the model's own template")
        return text.removeprefix(before).removesuffix(after)

    def _opened(self) -> list[Message]:
        opened = self.layout.generation.removeprefix(self.layout.answer)
        return [Message("assistant", opened, loss=False)] if opened else []

    def _check(self, row: Row, messages: tuple[Message, ...], tokens: tuple[int, ...]) -> None:
        """Whether the model's own template makes these tokens of the plain messages."""
        asks = messages[-1].role != "assistant"
        source = template_source(self.tokenizer)
        text = apply_template(self.tokenizer, source, messages, (), asks)
        made = self._encode(text)
        if made[: len(tokens)] != list(tokens) or (asks and len(made) > len(tokens)):
            raise self._differs(row)

    def _differs(self, row: Row) -> RenderingError:
        problem = f"row {row.id}: no plain messages make the tokens of {self.renderer.name!r}"
        return RenderingError(problem, field="messages", fix=FIX)

    @property
    def _end(self) -> str:
        return self._decode((self.renderer.end_token,))

    def _decode(self, tokens: tuple[int, ...]) -> str:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return self.tokenizer.decode(list(tokens), **options)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)


def _bytes() -> Any:
    """A tokenizer of bytes with ChatML's tokens, for renderings that read no template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    base = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(alphabet))}, merges=[]))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    base.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=base)
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    made.chat_template = CHATML
    return made
