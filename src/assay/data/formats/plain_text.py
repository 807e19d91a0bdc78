"""Turns rows into plain messages that another tool's template writes as the tokens of a rendering.

verl and TRL's GRPO cannot be given tools row by row, and ms-swift writes them in its own way. They
get the text of a rendering instead: its system text as a system message; all that follows, earlier
turns included, as one user message, since templates rewrite earlier answers; and the answer. What
the tool's tokenizer would not turn into the rendering's tokens is refused: a control token that a
message spells, characters that merge across messages, text that the model's own template adds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

from assay.data.encoding import BREAK, Codec
from assay.data.episode import tokens_of
from assay.data.renderings.rendering import RENDERINGS, Renderer
from assay.data.renderings.template import (
    CHATML,
    PROBE,
    RenderingError,
    apply_template,
    template_source,
)
from assay.data.row import Message, Row

BEYOND = "the end of an answer alone: what the template writes behind it is trained too"
FIX = "take the row out, or name another rendering"


@dataclass(frozen=True, slots=True)
class TemplateLayout:
    """What a chat template writes around plain messages."""

    question: str
    """Before a first question."""
    system: str
    """Before a system text; "" where the template takes none."""
    opening: str
    """Between a system text and the question."""
    answer: str
    """Between a question and an answer."""
    generation: str
    """Behind the last question: the same, and what the template writes for the assistant."""
    again: str
    """Between an answer and the next question."""


def layout_of(tokenizer: Any) -> TemplateLayout:
    """The layout of a tokenizer's own template, by trial. Raises RenderingError."""
    source = template_source(tokenizer)
    first, later, reply = PROBE + "a", PROBE + "b", PROBE + "c"
    question, answer = Message("user", first), Message("assistant", reply)
    opening = apply_template(tokenizer, source, (question,), (), True)
    whole = apply_template(tokenizer, source, (question, answer, Message("user", later)), (), True)
    system, between = "", ""
    try:
        headed = (Message("system", reply), question)
        text = apply_template(tokenizer, source, headed, (), True)
        if reply in text:
            system, between = text.partition(first)[0].split(reply)
    except RenderingError:
        pass  # such a template has no place for a system text, and says so
    head, _, generation = opening.partition(first)
    behind = whole.partition(first)[2].partition(reply)
    again = behind[2].partition(later)[0]
    made = TemplateLayout(head, system, between, behind[0], generation, again)
    if not (made.answer and made.generation.startswith(made.answer)):
        problem = "the chat template writes an answer's beginning otherwise than it asks for one"
        raise RenderingError(problem, fix="use a model with another template")
    return made


class PlainText:
    """Writes rows in the rendering `name`, for a model whose tokenizer is given.

    Without a tokenizer the plain messages are meant for a template that writes ChatML and nothing
    else. Raises RenderingError.
    """

    def __init__(self, name: str, tokenizer: Any = None) -> None:
        if tokenizer is None and name in RENDERINGS and RENDERINGS[name].reads_template:
            fix = "name the model or the experiment: --for"
            raise RenderingError(f"{name!r} reads a model's template", field="--rendering", fix=fix)
        self.merges = tokenizer is not None
        self.tokenizer: Any = tokenizer if self.merges else _bytes()
        self.renderer = Renderer(self.tokenizer, name)
        self._held: dict[str, tuple[Row, tuple[Message, ...]]] = {}

    @cached_property
    def layout(self) -> TemplateLayout:
        """What stands around the plain messages."""
        return layout_of(self.tokenizer)

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The messages before the answer. Raises RenderingError where they cannot be equal."""
        return self._once("prompt", row, self._prompt)

    def _prompt(self, row: Row) -> tuple[Message, ...]:
        if not self.merges:
            # Bytes never merge: only a control token that the row spells can make a difference.
            codec = Codec(self.tokenizer)
            safe = [codec.break_message(message) for message in row.prompt]
            write = RENDERINGS[self.renderer.name].text
            text = write(self.tokenizer, safe, [codec.break_up(t) for t in row.tools], True)
            if BREAK in text:
                raise self._differs
            return self._split(text)
        tokens = self.renderer.prompt(row.prompt, row.tools)
        messages = self._split(self.decode(tokens))
        if not self._makes(messages, tokens):
            raise self._differs
        return messages

    def completion(self, row: Row) -> tuple[Message, bool]:
        """The answer behind `prompt`, and whether the template makes the rendering's tokens of
        both. Raises RenderingError.
        """
        answer = row.messages[-1]
        trained = (*row.prompt, replace(answer, loss=True))
        turn = self.renderer.turns(trained, row.tools, "last")[0]
        text = self.opened + self.decode(turn.actions).removesuffix(self._end)
        plain = Message("assistant", text, loss=answer.loss)
        context = tokens_of(turn.context)
        messages = (*self._split(self.decode(context)), plain)
        return plain, self._makes(messages, (*context, *turn.actions))

    def sequences(self, row: Row) -> int:
        """How many sequences train the row: several where its earlier answers are rewritten."""
        return len(self.renderer.turns(row.messages, row.tools)) if _trained(row) else 1

    def conversation(self, row: Row) -> tuple[Message, ...]:
        """The sequence that trains the row: its assistant messages are what is trained on, with
        what the template writes for the assistant before them as one that is not.

        Raises RenderingError where the tokens cannot be equal.
        """
        return self._once("conversation", row, self._conversation)

    def _conversation(self, row: Row) -> tuple[Message, ...]:
        if not _trained(row):
            return self.prompt(row)
        (turn,) = self.renderer.turns(row.messages, row.tools)
        pieces = [tokens_of(turn.context)]
        messages = [*self._split(self.decode(pieces[0]))]
        again = self.layout.again.removeprefix(self._end)
        for trained, run in groupby(zip(turn.loss_mask, turn.actions, strict=True), itemgetter(0)):
            pieces.append(tuple(token for _, token in run))
            text = self.decode(pieces[-1])
            if not trained:
                messages.append(Message("user", self._inner(text, again)))
            elif self.opened:
                messages.append(Message("assistant", self.opened, loss=False))
            if trained:
                messages.append(Message("assistant", text.removesuffix(self._end)))
        if any(self._encode(self.decode(piece)) != list(piece) for piece in pieces):
            raise self._differs
        return tuple(messages)

    def _once(
        self, what: str, row: Row, make: Callable[[Row], tuple[Message, ...]]
    ) -> tuple[Message, ...]:
        """What was made of the row just now: a row is tried before it is written."""
        if what not in self._held or self._held[what][0] is not row:
            self._held[what] = row, make(row)
        return self._held[what][1]

    @property
    def _differs(self) -> RenderingError:
        problem = f"the tokens of {self.renderer.name!r} cannot be had of plain messages"
        return RenderingError(problem, field="messages", fix=FIX)

    def _split(self, text: str) -> tuple[Message, ...]:
        """The plain messages whose layout is a prompt's text."""
        layout = self.layout
        if layout.system and text.startswith(layout.system):
            own, between, _ = text.removeprefix(layout.system).partition(layout.opening)
            if between and (own or not text.startswith(layout.question)):
                rest = self._inner(text, layout.system + own + between)
                return Message("system", own), Message("user", rest)
        return (Message("user", self._inner(text, layout.question)),)

    def _inner(self, text: str, before: str) -> str:
        """What stands between `before` and the generation prompt."""
        after = self.layout.generation
        if not (text.startswith(before) and text.endswith(after)):
            raise self._differs
        return text.removeprefix(before).removesuffix(after)

    @cached_property
    def opened(self) -> str:
        """What the template writes for the assistant before its answer."""
        return self.layout.generation.removeprefix(self.layout.answer)

    @cached_property
    def tail(self) -> str:
        """What the template writes behind the end of a last answer."""
        messages = (Message("user", PROBE + "a"), Message("assistant", PROBE + "b"))
        text = apply_template(self.tokenizer, template_source(self.tokenizer), messages, (), False)
        return text.rpartition(PROBE + "b")[2].removeprefix(self._end)

    def _makes(self, messages: tuple[Message, ...], tokens: tuple[int, ...]) -> bool:
        """Whether the model's own template makes these tokens of the plain messages; what it writes
        behind an answer does not count.
        """
        asks = messages[-1].role != "assistant"
        source = template_source(self.tokenizer)
        made = self._encode(apply_template(self.tokenizer, source, messages, (), asks))
        return made[: len(tokens)] == list(tokens) and (not asks or len(made) == len(tokens))

    @cached_property
    def _end(self) -> str:
        return self.decode((self.renderer.end_token,))

    def decode(self, tokens: Sequence[int]) -> str:
        """Their text, special tokens included."""
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return self.tokenizer.decode(list(tokens), **options)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)


def plain_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Role and content of each, with `loss: false` on answers that are not trained on."""
    return [
        {"role": m.role, "content": m.content} | ({} if m.loss else {"loss": False})
        for m in messages
    ]


def _trained(row: Row) -> bool:
    return any(message.role == "assistant" and message.loss for message in row.messages)


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
