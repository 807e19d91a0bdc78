"""Renders conversations as token ids, by named renderings, with loss masks on token spans.

Boundaries are never searched for in a message's text. Each assistant message is rendered as a
prompt (the messages before it and the generation prompt) and again with the message added; the
second must begin with the first, and the rest, up to the template's end-of-turn token, is the
message's span. Where the template writes no end, the tokenizer's end-of-sequence token is added to
what is trained, because a model that never sees an end never stops. Each piece is tokenised alone,
so `prompt(messages[:-1])` is an exact prefix of `conversation(messages)` even where a tokenizer
would merge characters across the boundary: the model samples after the prompt's tokens and has to
be trained after the same ones. Control tokens in messages are handled by `data.encoding`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any, Literal

from assay.data.encoding import Codec
from assay.data.episode import Turn
from assay.data.hashing import canonical_json, sha256_text
from assay.data.message_parts import refuse_images
from assay.data.renderings import hermes, qwen
from assay.data.renderings.template import (
    PROBE,
    RenderingError,
    render_template,
    template_source,
    writes,
)
from assay.data.row import Message
from assay.errors import nearest

BEFORE, AFTER = 12, 8
"""Tokens shown around the first difference of two sequences."""

TEXT_ONLY = "take the row out, or ask a model behind an endpoint with rendering = 'auto'"

Loss = Literal["all", "last"]
Tools = Sequence[Mapping[str, Any]]


class UnknownRenderingError(RenderingError):
    """A rendering that nobody registered."""


class PrefixMismatchError(RenderingError):
    """A prompt is not the beginning of the conversation that it leads to."""


class HistoryRewrittenError(RenderingError):
    """The template rewrites earlier assistant messages, so one sequence cannot train them all."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """A way of writing conversations."""

    text: Callable[[Any, Sequence[Message], Tools, bool], str]
    """(tokenizer, messages, tools, generation) -> text; `generation` adds the generation prompt."""
    version: str
    """Changes whenever the text changes that is made from the same template."""
    control: tuple[str, ...] = ()
    """Special tokens that the layout writes itself; without any it is the tokenizer's template
    that writes them."""
    reads_template: bool = True
    """Whether the text depends on the tokenizer's template."""


def _hermes(tokenizer: Any, messages: Sequence[Message], tools: Tools, generation: bool) -> str:
    return render_template(tokenizer, hermes.flatten(messages, tools), (), generation)


def _bare(tokenizer: Any, messages: Sequence[Message], tools: Tools, generation: bool) -> str:
    return render_template(tokenizer, messages, tools, generation, bare=True)


def _qwen3(tokenizer: Any, messages: Sequence[Message], tools: Tools, generation: bool) -> str:
    return qwen.qwen3(messages, tools, generation)


def _qwen3_fc(tokenizer: Any, messages: Sequence[Message], tools: Tools, generation: bool) -> str:
    return qwen.qwen3_fc(messages, tools, generation, _codec_of(tokenizer).break_up)


def _completion(tokenizer: Any, messages: Sequence[Message], tools: Tools, generation: bool) -> str:
    if tools or any(m.tool_calls or m.reasoning or m.role == "tool" for m in messages):
        problem = "the rendering 'completion' has no place for tools and reasoning"
        raise RenderingError(problem, field="rendering", fix="use rendering = 'template'")
    # An answer stands on the line below its question; an empty line ends it.
    ends = {"user": "\n"}
    return "".join(message.content + ends.get(message.role, "\n\n") for message in messages)


@lru_cache(maxsize=8)
def _codec_of(tokenizer: Any) -> Codec:
    return Codec(tokenizer)


RENDERINGS: dict[str, Rendering] = {
    "template": Rendering(render_template, "1"),
    "template_bare": Rendering(_bare, "1"),
    "completion": Rendering(_completion, "1", reads_template=False),
    "hermes": Rendering(_hermes, "2 " + hermes.INSTRUCTION),
    "qwen3": Rendering(_qwen3, "1", qwen.CONTROL, reads_template=False),
    "qwen3_fc": Rendering(_qwen3_fc, "1", qwen.CONTROL, reads_template=False),
}


def automatic(tokenizer: Any) -> str:
    """The rendering for a tokenizer whose user names none: its own template where that writes
    tools and calls, else "hermes". Raises RenderingError if the tokenizer has no template.
    """
    source = template_source(tokenizer, tools=True)
    able = all(writes(tokenizer, source, what) for what in ("tools", "tool calls"))
    return "template" if able else "hermes"


@dataclass(frozen=True, slots=True)
class RenderedConversation:
    """T tokens and where the assistant speaks in them."""

    tokens: tuple[int, ...]
    message_spans: tuple[tuple[int, int, int], ...]
    """(message index, start, end) of each assistant message, its end-of-turn token included."""
    rewritten: tuple[int, ...] = ()
    """Assistant messages that read otherwise here than when they were generated: without a span."""


@dataclass(frozen=True)
class Renderer:
    """A tokenizer and the name of a rendering.

    Raises UnknownRenderingError when made, and RenderingError for a tokenizer without the control
    tokens that the rendering writes.
    """

    tokenizer: Any
    name: str

    def __post_init__(self) -> None:
        if self.name not in RENDERINGS:
            fix = nearest(self.name, RENDERINGS)
            raise UnknownRenderingError(
                f"unknown rendering {self.name!r}", field="rendering", fix=fix
            )
        missing = [token for token in self._rendering.control if token not in self._specials]
        if missing:
            problem = f"{self.name!r} writes {missing[0]}, no special token of this tokenizer"
            fix = "use a model of the Qwen family, or rendering = 'hermes'"
            raise RenderingError(problem, field="rendering", fix=fix)

    def prompt(self, messages: Sequence[Message], tools: Tools = ()) -> tuple[int, ...]:
        """The tokens that a model continues as the assistant. Raises RenderingError."""
        return self.rendered_prompt(messages, tools).tokens

    def text(self, text: str) -> tuple[int, ...]:
        """The tokens of what an assistant writes after a prompt, without the end of its turn."""
        return tuple(self._codec.encode(self._codec.break_up(text), first=False))

    def rendered_prompt(
        self, messages: Sequence[Message], tools: Tools = ()
    ) -> RenderedConversation:
        """`prompt`, and where earlier assistant messages stand in it. Raises RenderingError."""
        return self._render(messages, tools, generation=True)

    def conversation(self, messages: Sequence[Message], tools: Tools = ()) -> RenderedConversation:
        """All tokens of a conversation.

        Raises RenderingError, and PrefixMismatchError where the prompt of a final assistant
        message does not begin it.
        """
        return self._render(messages, tools, generation=False)

    def turns(
        self, messages: Sequence[Message], tools: Tools = (), loss: Loss = "all"
    ) -> tuple[Turn, ...]:
        """The conversation as stored turns to train on; end-of-turn tokens are trained.

        One turn, from the first trained message to the end of the last, with what lies between
        masked. Where the template rewrites history, "all" gives one turn for each assistant
        message instead, after the context that it really has. A message with `loss` false is never
        trained. Raises RenderingError.
        """
        whole = self.conversation(messages, tools)
        if loss == "last" or not whole.rewritten:
            spans = tuple(span for span in whole.message_spans if messages[span[0]].loss)
            return (_turn(replace(whole, message_spans=spans), loss),)
        return tuple(
            _turn(self.conversation(messages[: index + 1], tools), "last")
            for index, message in enumerate(messages)
            if message.role == "assistant" and message.loss
        )

    @cached_property
    def end_token(self) -> int:
        """The token that ends the assistant's turn, where sampling stops. Raises RenderingError."""
        return self.tokenizer.convert_tokens_to_ids(self._end_of_turn)

    @property
    def answer_end(self) -> tuple[int, ...]:
        """The tokens that end an answer: what the layout writes behind one where that is text, else
        the end-of-turn token. Raises RenderingError."""
        behind = self._behind if self.adds_end else ""
        return self.text(behind) if behind else (self.end_token,)

    @property
    def adds_end(self) -> bool:
        """Whether the end token is added, because the template writes none. Raises RenderingError
        as rendering does.
        """
        return self._template_end is None

    @property
    def fingerprint(self) -> str:
        """sha256 of the rendering's name and version, and of the template where that is read."""
        used = (False, True) if self._rendering.reads_template else ()
        sources = [template_source(self.tokenizer, tools) for tools in used]
        return sha256_text(canonical_json([self.name, self._rendering.version, sources]))

    @property
    def _rendering(self) -> Rendering:
        return RENDERINGS[self.name]

    @property
    def _specials(self) -> set[str]:
        return {t.content for t in self.tokenizer.added_tokens_decoder.values() if t.special}

    @cached_property
    def _codec(self) -> Codec:
        return _codec_of(self.tokenizer)

    def _render(
        self, messages: Sequence[Message], tools: Tools, generation: bool
    ) -> RenderedConversation:
        refuse_images(messages, f"rendering {self.name!r}", TEXT_ONLY)
        safe = [self._codec.break_message(message) for message in messages]
        safe_tools = [self._codec.break_up(tool) for tool in tools]
        text = self._text(safe, safe_tools, generation)
        tokens: list[int] = []
        spans, rewritten, done = [], [], 0
        for index, message in enumerate(safe):
            if message.role != "assistant":
                continue
            target = index == len(safe) - 1 and not generation
            start, upto = self._bounds(safe[: index + 1], safe_tools, target)
            if start is None or start < done or not text.startswith(upto):
                rewritten.append(index)
                continue
            tokens += self._codec.encode(text[done:start], first=done == 0)
            begin = len(tokens)
            tokens += self._codec.encode(text[start : len(upto)], first=start == 0)
            tokens += [self.end_token] if self.adds_end else []
            spans.append((index, begin, len(tokens)))
            done = len(upto)
        tokens += self._codec.encode(text[done:], first=done == 0)
        return RenderedConversation(tuple(tokens), tuple(spans), tuple(rewritten))

    def _bounds(
        self, messages: Sequence[Message], tools: Tools, target: bool
    ) -> tuple[int | None, str]:
        """Where the last of `messages`, an assistant's, starts in the text, and that text up to
        its end of turn. None if its prompt does not begin that text, which raises for the target of
        training, and where the end is added: later prompts are without it.
        """
        before = self._text(messages[:-1], tools, generation=True)
        after = self._text(messages, tools, generation=False)
        if not after.startswith(before):
            if target:
                raise self._mismatch(before, after)
            return None, after
        if self.adds_end:
            return (len(before), after.removesuffix(self._behind)) if target else (None, after)
        specials = self._codec.template_specials(after[len(before) :])
        if not specials:
            if target:
                raise self._endless()
            return None, after
        # A template may end a call, or the last message, with a token of its own.
        ends = [end for token, end in specials if token == self._end_of_turn] or [specials[-1][1]]
        return len(before), after[: len(before) + ends[-1]]

    @cached_property
    def _end_of_turn(self) -> str:
        """The special token that ends an assistant message, followed by another or not: the
        template's, else the tokenizer's end of a sequence."""
        end = self._template_end or self.tokenizer.eos_token
        if end is None or end not in self._specials:
            raise self._endless()
        return end

    @cached_property
    def _template_end(self) -> str | None:
        """The special token that the template ends an assistant message with, if it does."""
        messages = (Message("user", "a"), Message("assistant", PROBE))
        last = self._text(messages, (), generation=False)
        followed = self._text((*messages, Message("user", "c")), (), generation=False)
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(last, followed, strict=False))
        for text in ("".join(character for character, _ in alike), last):
            specials = self._codec.template_specials(text.rpartition(PROBE)[2])
            if PROBE in text and specials:
                return specials[-1][0]
        return None

    @cached_property
    def _behind(self) -> str:
        """What the template writes behind the text of a last assistant message."""
        messages = (Message("user", "a"), Message("assistant", PROBE))
        return self._text(messages, (), generation=False).rpartition(PROBE)[2]

    def _endless(self) -> RenderingError:
        problem = "the chat template ends an assistant message without a special token"
        problem += ", and the tokenizer has no end-of-sequence token to add"
        return RenderingError(problem, fix="the model could never learn to stop; add one")

    def _text(self, messages: Sequence[Message], tools: Tools, generation: bool) -> str:
        return self._rendering.text(self.tokenizer, messages, tools, generation)

    def _mismatch(self, before: str, after: str) -> PrefixMismatchError:
        left, right = (self._codec.encode(text, first=True) for text in (before, after))
        difference = first_difference(self.tokenizer, left, right)
        return PrefixMismatchError(
            f"the prompt of the last message does not begin the conversation: {difference}",
            fix="the chat template writes the generation prompt and the message differently",
        )


def loss_mask(rendered: RenderedConversation, which: Loss = "all") -> tuple[bool, ...]:
    """T flags: the tokens of all assistant messages, or of the last one, ends of turn included.

    Raises HistoryRewrittenError for "all" where the template rewrites earlier messages.
    """
    if which == "all" and rendered.rewritten:
        problem = f"the template rewrites message {rendered.rewritten[0]} once more follow it"
        raise HistoryRewrittenError(problem, fix="train on turns(), or loss = 'last'")
    spans = rendered.message_spans if which == "all" else rendered.message_spans[-1:]
    mask = [False] * len(rendered.tokens)
    for _, start, end in spans:
        mask[start:end] = [True] * (end - start)
    return tuple(mask)


def first_difference(tokenizer: Any, left: Sequence[int], right: Sequence[int]) -> str | None:
    """In words, the first token where two sequences differ, what comes before it and after it.

    None if `left` begins `right`.
    """
    for index, token in enumerate(left):
        if index >= len(right) or right[index] != token:
            break
    else:
        return None
    other = repr(tokenizer.decode([right[index]])) if index < len(right) else "the end"
    context = tokenizer.decode(list(left[max(0, index - BEFORE) : index]))
    here = tokenizer.decode([token])
    ways = [tokenizer.decode(list(way[index : index + AFTER])) for way in (left, right)]
    return (
        f"token {index} is {here!r} in one and {other} in the other, after {context!r}; "
        f"one reads on {ways[0]!r}, the other {ways[1]!r}"
    )


def _turn(rendered: RenderedConversation, loss: Loss) -> Turn:
    mask = loss_mask(rendered, loss)
    if True not in mask:
        raise RenderingError("there is no assistant message to train on")
    start, end = mask.index(True), rendered.message_spans[-1][2]
    return Turn(rendered.tokens[:start], rendered.tokens[start:end], mask[start:end])
