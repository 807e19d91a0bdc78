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
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Literal

from assay.data.conversation import in_call_order
from assay.data.encoding import BREAK, Codec
from assay.data.episode import Turn, common
from assay.data.files import canonical_json, sha256_text
from assay.data.message_parts import refuse_images
from assay.data.renderings import hermes, qwen
from assay.data.renderings.left_out import lacks_reasoning, left_out, split_reasoning
from assay.data.renderings.prefixes import answer_pairs
from assay.data.renderings.template import (
    PROBE,
    PROBE_TALK,
    RenderingError,
    apply_template,
    render_template,
    template_source,
)
from assay.data.row import Message, ToolCall
from assay.errors import nearest

BEFORE, AFTER = 12, 8
"""Tokens shown around the first difference of two sequences."""

THINK_TAG = "think>"

THINKING_OPTION = "enable_thinking"
"""The variable by which most thinking templates are told whether to think."""

TEXT_ONLY = "take the row out, or ask a model behind an endpoint with rendering = 'auto'"

Loss = Literal["all", "last"]
Tools = Sequence[Mapping[str, Any]]


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
    begins: bool = False
    """Whether the tokenizer's own beginning of a text goes before it, such as `<bos>`; templates
    write theirs."""
    keeps_texts: bool = True
    """Whether earlier answers keep what they say beside calls."""
    plain: Callable[[Sequence[Message], Tools], tuple[Sequence[Message], Tools]] | None = None
    """The messages and tools that the tokenizer's template is given, where it writes the text."""


def _hermes(tokenizer: Any, messages: Sequence[Message], tools: Tools, generation: bool) -> str:
    return render_template(tokenizer, hermes.flatten(messages, tools), (), generation)


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
def _codec_of(tokenizer: Any, kept: tuple[str, ...] = ()) -> Codec:
    return Codec(tokenizer, kept)


RENDERINGS: dict[str, Rendering] = {
    "template": Rendering(render_template, "1", plain=lambda messages, tools: (messages, tools)),
    "template_bare": Rendering(partial(render_template, bare=True), "1"),
    "completion": Rendering(_completion, "1", reads_template=False, begins=True),
    "hermes": Rendering(
        _hermes,
        "2 " + hermes.INSTRUCTION,
        plain=lambda messages, tools: (hermes.flatten(messages, tools), ()),
    ),
    "qwen3": Rendering(lambda _, *args: qwen.qwen3(*args), "1", qwen.CONTROL, reads_template=False),
    "qwen3_fc": Rendering(_qwen3_fc, "1", qwen.CONTROL, reads_template=False, keeps_texts=False),
}


CALL = ToolCall("f", {"x": PROBE}, "call00001")
CALLING = (
    Message("user", "a"),
    Message("assistant", "", (CALL,)),
    Message("tool", "b", (), CALL.id),
    Message("assistant", "c"),
)
TOOL = {
    "name": "f",
    "description": PROBE,
    "parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "d"}}},
}


def automatic(tokenizer: Any) -> str:
    """The rendering for a tokenizer whose user names none: its own template where that writes
    tools, calls and results, else "hermes". Raises RenderingError if the tokenizer has no template.
    """
    source = template_source(tokenizer, tools=True)
    try:
        text = apply_template(tokenizer, source, CALLING, [TOOL], False)
    except RenderingError:
        return "hermes"
    return "hermes" if left_out(CALLING, [TOOL], text) else "template"


@dataclass(frozen=True, slots=True)
class RenderedConversation:
    """T tokens and where the assistant speaks in them."""

    tokens: tuple[int, ...]
    message_spans: tuple[tuple[int, int, int], ...]
    """(message index, start, end) of each assistant message, its end-of-turn token included."""
    rewritten: tuple[int, ...] = ()
    """Assistant messages that read otherwise here than when they were generated: without a span."""
    doubtful: tuple[int, ...] = ()
    """Those of them that may not be whole in their own beginning of the conversation either."""

    def prompt_before(self, index: int) -> "RenderedConversation | None":
        """The prompt that the last message answered; None where that has no span here."""
        *spans, (answer, start, _) = self.message_spans or ((-1, 0, 0),)
        if answer != index:
            return None
        return replace(self, tokens=self.tokens[:start], message_spans=tuple(spans))


@dataclass(frozen=True)
class Renderer:
    """A tokenizer and the name of a rendering.

    Raises RenderingError when made, and RenderingError for a tokenizer without the control
    tokens that the rendering writes.
    """

    tokenizer: Any
    name: str
    kept: tuple[str, ...] = ()
    """Special tokens that assistant messages may hold; others are broken up."""

    def __post_init__(self) -> None:
        if self.name not in RENDERINGS:
            fix = nearest(self.name, RENDERINGS)
            raise RenderingError(f"unknown rendering {self.name!r}", field="rendering", fix=fix)
        missing = [token for token in self._rendering.control if token not in self._specials]
        if missing:
            problem = f"{self.name!r} writes {missing[0]}, no special token of this tokenizer"
            fix = "use a model of the Qwen family, or rendering = 'hermes'"
            raise RenderingError(problem, field="rendering", fix=fix)
        if self.kept and self._end_of_turn in self.kept:
            problem = f"{self._end_of_turn!r} ends answers, so none can hold it"
            raise RenderingError(problem, field="keep_special", fix="remove it")
        if unknown := [token for token in self.kept if token not in self._specials]:
            problem = f"{unknown[0]!r} is no special token of this tokenizer"
            fix = nearest(unknown[0], self._specials)
            raise RenderingError(problem, field="keep_special", fix=fix)

    def prompt(self, messages: Sequence[Message], tools: Tools = ()) -> tuple[int, ...]:
        """The tokens that a model continues as the assistant. Raises RenderingError."""
        return self.rendered_prompt(messages, tools).tokens

    def text(self, text: str) -> tuple[int, ...]:
        """The tokens of what an assistant writes after a prompt, without the end of its turn."""
        return tuple(self._codec.encode(self._codec.break_answer(text), first=False))

    def rendered_prompt(
        self, messages: Sequence[Message], tools: Tools = ()
    ) -> RenderedConversation:
        """`prompt`, and where earlier assistant messages stand in it. Raises RenderingError."""
        return self._render(messages, tools, generation=True)

    def conversation(self, messages: Sequence[Message], tools: Tools = ()) -> RenderedConversation:
        """All tokens of a conversation.

        Raises RenderingError, and RenderingError where the prompt of a final assistant
        message does not begin it.
        """
        return self._render(messages, tools, generation=False)

    def turns(
        self,
        messages: Sequence[Message],
        tools: Tools = (),
        loss: Loss = "all",
        whole: RenderedConversation | None = None,
    ) -> tuple[Turn, ...]:
        """The conversation as stored turns to train on; end-of-turn tokens are trained.

        One turn, from the first trained message to the end of the last, with what lies between
        masked. Where the template rewrites history, "all" gives one turn for each assistant
        message instead, after the context that it really has. A message with `loss` false is never
        trained. `whole` is the conversation, where it was rendered before. Raises RenderingError.
        """
        whole = whole or self.conversation(messages, tools)
        if loss == "last" or not whole.rewritten:
            spans = tuple(span for span in whole.message_spans if messages[span[0]].loss)
            return (_turn(replace(whole, message_spans=spans), loss),)
        draft = replace(self._draft(messages, tools), encode=self._codec.encoder())
        return tuple(
            _turn(self._rendered(draft, index + 1), "last")
            for index in spoken_of(messages)
            if messages[index].loss
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
        # What most renderings have none of leaves no trace, so that older fingerprints stay.
        more = [each for each in (self.kept, self._beginning) if each]
        return sha256_text(canonical_json([self.name, self._rendering.version, sources, *more]))

    @cached_property
    def maker(self) -> str:
        """The sha256 of what tokens depend on beside conversation and code: the rendering and the
        tokenizer; "" for a tokenizer that is no table of words."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        special = {k: str(v) for k, v in self.tokenizer.special_tokens_map.items()}
        parts = [self.fingerprint, special, backend and backend.to_str()]
        return sha256_text(canonical_json(parts)) if backend else ""

    @property
    def beginning(self) -> str:
        """The text of the tokens that begin every conversation, where no template writes them."""
        return "".join(self.tokenizer.convert_ids_to_tokens(self._beginning))

    @property
    def reads_template(self) -> bool:
        """Whether the text depends on the tokenizer's template."""
        return self._rendering.reads_template

    @property
    def _rendering(self) -> Rendering:
        return RENDERINGS[self.name]

    @property
    def _specials(self) -> set[str]:
        return {t.content for t in self.tokenizer.added_tokens_decoder.values() if t.special}

    @cached_property
    def _codec(self) -> Codec:
        return _codec_of(self.tokenizer, self.kept)

    @cached_property
    def _beginning(self) -> list[int]:
        """The tokens that the tokenizer puts before a text that no template writes."""
        if not self._rendering.begins:
            return []
        whole = self.tokenizer.encode("a")
        bare = self.tokenizer.encode("a", add_special_tokens=False)
        starts = (i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        return whole[: next(starts, 0)]

    def _render(
        self, messages: Sequence[Message], tools: Tools, generation: bool
    ) -> RenderedConversation:
        draft = self._draft(messages, tools, generation)
        return self._rendered(draft, len(draft.messages), generation)

    def _draft(
        self, messages: Sequence[Message], tools: Tools, generation: bool = False
    ) -> "_Draft":
        refuse_images(messages, f"rendering {self.name!r}", TEXT_ONLY)
        safe = [self._codec.break_message(message) for message in in_call_order(messages)]
        safe_tools = [self._codec.break_up(tool) for tool in tools]
        pairs, whole = {}, ""
        if self._rendering.plain is not None:
            plain = self._rendering.plain(safe, safe_tools)
            pairs, whole = answer_pairs(self.tokenizer, *plain, spoken_of(safe), generation)
        return _Draft(safe, safe_tools, pairs, whole, self._codec.encode)

    def _rendered(
        self, draft: "_Draft", count: int, generation: bool = False
    ) -> RenderedConversation:
        """The first `count` messages, which are all of them or end with an assistant's."""
        messages, pairs = draft.messages[:count], draft.pairs
        spoken = spoken_of(messages)
        target = None if generation or spoken[-1:] != [count - 1] else spoken.pop()
        answer = None
        if target is not None:
            answer = self._bounds(messages, draft.tools, pairs.get(target), target=True)
        text = (
            answer.text if answer else draft.text or self._text(messages, draft.tools, generation)
        )
        self._refuse_left_out(messages, draft.tools, text, target)
        for index in spoken:
            if index not in draft.places:
                own = messages[: index + 1], draft.tools, pairs.get(index)
                draft.places[index] = self._bounds(*own)
        places = [(index, draft.places[index]) for index in spoken]
        tokens: list[int] = [*self._beginning]
        spans, rewritten, done = [], [], 0
        for index, place in (*places, *([] if target is None else [(target, answer)])):
            if place is None or place.start < done or not text.startswith(place.text[: place.end]):
                rewritten.append(index)
                continue
            tokens += draft.encode(text[done : place.start], done == 0)
            begin = len(tokens)
            tokens += draft.encode(text[place.start : place.end], place.start == 0)
            tokens += [self.end_token] if self.adds_end else []
            spans.append((index, begin, len(tokens)))
            done = place.end
        tokens += draft.encode(text[done:], done == 0)
        doubtful = [
            index
            for index, place in places
            if index in rewritten
            and (place is None or left_out(messages[index : index + 1], (), place.answer))
        ]
        return RenderedConversation(tuple(tokens), tuple(spans), tuple(rewritten), tuple(doubtful))

    def _bounds(
        self,
        messages: Sequence[Message],
        tools: Tools,
        pair: tuple[str, str] | None = None,
        target: bool = False,
    ) -> "_Answer | None":
        """Where the last of `messages`, an assistant's, stands in the text up to it.

        None where it reads otherwise than when it was generated, which raises for the target of
        training: if its prompt does not begin that text, if the template forgets its reasoning, and
        where the end is added, as later prompts are without it.
        """
        before, after = pair or (
            self._text(messages[:-1], tools, generation=True),
            self._text(messages, tools, generation=False),
        )
        begins = after.startswith(before)
        shared = len(before) if begins else common(before, after)
        forgets = lacks_reasoning(messages[-1], after[shared:])
        if forgets or (target and not begins):
            thinking = self._with_thought(messages, tools, before, after)
            if thinking is None and forgets:
                place = f"message {len(messages)} (assistant)"
                raise self._left_out(f"the reasoning of {place}")
            if not target:
                return None
            if thinking is None:
                raise self._mismatch(messages, before, after)
            after = thinking
        elif not begins:
            return None
        if self.adds_end:
            end = len(after.removesuffix(self._behind))
            return _Answer(after, len(before), end) if target else None
        specials = self._codec.specials(after[len(before) :])
        # A template may end a call, or the last message, with a token of its own.
        ends = [end for token, end in specials if token == self._end_of_turn]
        ends = ends or [end for token, end in specials if token not in self.kept]
        if ends:
            return _Answer(after, len(before), len(before) + ends[-1])
        if target:
            raise self._endless()
        return None

    def _with_thought(
        self, messages: Sequence[Message], tools: Tools, before: str, after: str
    ) -> str | None:
        """The text with the reasoning of the last message where a template leaves it out because it
        thinks: it cuts an answer's text at `</think>`, or its prompts end with `<think>`, as
        R1's do. None for another template."""
        message = messages[-1]
        thought, answer = split_reasoning(message)
        opening = before.rstrip().endswith(hermes.THINK)
        head = before[: before.rindex(hermes.THINK)] if opening else before
        writes_block = THINK_TAG in after[len(head) :]
        if not thought and (writes_block or not opening):
            return None
        block = f"{hermes.THINK}\n{thought}\n{hermes.THINK_END}"
        gap = "\n\n"
        if thought and not message.reasoning:
            block = thought + hermes.THINK_END
            gap = answer[: len(answer) - len(answer.lstrip("\n"))]
            answer = answer[len(gap) :]
        spelled = replace(message, content=block + gap + answer, reasoning="")
        after = self._text((*messages[:-1], spelled), tools, generation=False)
        rest = after[len(head) :]
        if opening and after.startswith(before) and not lacks_reasoning(message, rest):
            return after
        if not after.startswith(head) or THINK_TAG in rest.replace(answer, ""):
            return None
        if opening:
            block = block.lstrip().removeprefix(before[len(head) :].strip()).removeprefix("\n")
            block = block if before.endswith("\n") else "\n" + block
        return before + block + (rest if rest.startswith(gap) else gap + rest)

    def _refuse_left_out(
        self, messages: Sequence[Message], tools: Tools, text: str, target: int | None
    ) -> None:
        """Raise RenderingError where the text lacks what the conversation says."""
        earlier = [index for index in spoken_of(messages) if index != target]
        if what := left_out(messages, tools, text, () if self._rendering.keeps_texts else earlier):
            raise self._left_out(what)

    def _left_out(self, what: str) -> "RenderingError":
        fix = "leave it out of the rows, or use a model whose template writes it"
        if self.name in ("template", "template_bare"):
            fix = "use rendering = 'hermes', or leave it out of the rows"
        problem = f"the text that {self.name!r} writes lacks {what.replace(BREAK, '')}"
        return RenderingError(problem, field="rendering", fix=fix)

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
        last = self._text(PROBE_TALK, (), generation=False)
        followed = self._text((*PROBE_TALK, Message("user", "c")), (), generation=False)
        for text in (last[: common(last, followed)], last):
            specials = self._codec.specials(text.rpartition(PROBE)[2])
            if PROBE in text and specials:
                return specials[-1][0]
        return None

    @cached_property
    def _behind(self) -> str:
        """What the template writes behind the text of a last assistant message."""
        return self._text(PROBE_TALK, (), generation=False).rpartition(PROBE)[2]

    def _endless(self) -> RenderingError:
        problem = "the chat template ends an assistant message without a special token"
        problem += ", and the tokenizer has no end-of-sequence token to add"
        return RenderingError(problem, fix="the model could never learn to stop; add one")

    def _text(self, messages: Sequence[Message], tools: Tools, generation: bool) -> str:
        return self._rendering.text(self.tokenizer, messages, tools, generation)

    def _mismatch(self, messages: Sequence[Message], before: str, after: str) -> RenderingError:
        left, right = (self._codec.encode(text, first=True) for text in (before, after))
        difference = first_difference(self.tokenizer, left, right)
        fix = "the chat template writes the generation prompt and the message differently"
        if THINKING_OPTION in template_source(self.tokenizer) and self._rendering.reads_template:
            thinks = "true" if split_reasoning(messages[-1])[0] else "false"
            fix = f"set template_options = {{ {THINKING_OPTION} = {thinks} }} for such rows"
        problem = f"the prompt of the last message does not begin the conversation: {difference}"
        return RenderingError(problem, fix=fix)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The text up to an assistant's message, and where that stands in it, its end included."""

    text: str
    start: int
    end: int

    @property
    def answer(self) -> str:
        """The message, its end included."""
        return self.text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class _Draft:
    """What the beginnings of one conversation share."""

    messages: Sequence[Message]
    tools: Tools
    pairs: Mapping[int, tuple[str, str]]
    """See `answer_pairs`."""
    text: str
    """Of the whole, where that is known."""
    encode: Callable[[str, bool], list[int]]
    places: dict[int, _Answer | None] = field(default_factory=dict)
    """Where answers stand in what follows them."""


def spoken_of(messages: Sequence[Message]) -> list[int]:
    """The places of the assistant's messages."""
    return [index for index, message in enumerate(messages) if message.role == "assistant"]


def loss_mask(rendered: RenderedConversation, which: Loss = "all") -> tuple[bool, ...]:
    """T flags: the tokens of all assistant messages, or of the last one, ends of turn included.

    Raises RenderingError for "all" where the template rewrites earlier messages.
    """
    if which == "all" and rendered.rewritten:
        problem = f"the template rewrites message {rendered.rewritten[0]} once more follow it"
        raise RenderingError(problem, fix="train on turns(), or loss = 'last'")
    spans = rendered.message_spans if which == "all" else rendered.message_spans[-1:]
    mask = [False] * len(rendered.tokens)
    for _, start, end in spans:
        mask[start:end] = [True] * (end - start)
    return tuple(mask)


def first_difference(tokenizer: Any, left: Sequence[int], right: Sequence[int]) -> str | None:
    """In words, the first token where two sequences differ, what comes before it and after it.

    None if `left` begins `right`.
    """
    index = common(left, right)
    if index == len(left):
        return None
    other = repr(tokenizer.decode([right[index]])) if index < len(right) else "the end"
    context = tokenizer.decode(list(left[max(0, index - BEFORE) : index]))
    here = tokenizer.decode([left[index]])
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
