"""A dialogue as an environment of tokens: messages are rendered, what was sampled is decoded.

Token in, token out: where the rendered history reads the same as what the model wrote, the next
context holds the sampled tokens and not the text encoded again, so that it extends the context
before it. Where a rendering rewrites history (drops thoughts, writes calls in another form), the
context is the rendering, which is what the model really saw. What is asked next, and what follows
an answer, is decided by the dialogue.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.data.episode import Completion, Ended, Turn
from assay.data.renderings.rendering import RenderedConversation, Renderer
from assay.data.row import Message, Row
from assay.tasks.task import Asked, Dialogue, Task, Tools

Decode = Callable[[Sequence[int]], str]
"""Actions to the text that rewards see: without end tokens, everything else kept."""


@dataclass
class OneAnswer:
    """The dialogue of a row that is one question: it is over after one answer."""

    prompt: tuple[Message, ...]
    tools: Tools
    answered: bool = False

    def asks(self) -> Asked | None:
        """The row's own prompt."""
        return None if self.answered else Asked(self.prompt, self.tools)

    def hears(self, text: str, ended: Ended) -> None:
        """Take the answer, which ends the episode."""
        self.answered = True

    @property
    def messages(self) -> tuple[Message, ...]:
        """Empty: the answer is the completion's text."""
        return ()


def dialogue_of(task: Task, row: Row) -> Dialogue:
    """The dialogue of a row, also where it is a single question."""
    return task.dialogue(row) or OneAnswer(task.prompt(row), row.tools)


@dataclass
class RenderedDialogue:
    """One row's dialogue as a `rollout.episodes.Environment`."""

    dialogue: Dialogue
    renderer: Renderer
    decode: Decode
    turns: list[Turn] = field(default_factory=list)
    earlier: int = 0
    """Assistant messages that the first context held already."""
    _next: tuple[int, ...] | None = None

    def context(self) -> tuple[int, ...] | None:
        """The tokens of the dialogue's next prompt; None when it is over. Raises RenderingError."""
        if self._next is None:
            turn = self.dialogue.asks()
            if turn is None:
                return None
            if not self.turns:
                self.earlier = sum(m.role == "assistant" for m in turn.messages)
            self._next = self.tokens_of(turn)
        return self._next

    def act(self, turn: Turn) -> None:
        """Pass the turn's text to the dialogue."""
        self.turns.append(turn)
        self._next = None
        self.dialogue.hears(self.decode(turn.actions), turn.ended)

    def skips(self) -> bool:
        """Whether the dialogue goes on without the context that it gave last."""
        own = getattr(self.dialogue, "skips", None)
        self._next = None
        return own is not None and own()

    def completion(self, ended: Ended) -> Completion:
        """The episode as rewards see it."""
        return Completion(
            "\n".join(self.decode(turn.actions) for turn in self.turns),
            tuple(token for turn in self.turns for token in turn.actions),
            ended,
            self.dialogue.messages,
        )

    def tokens_of(self, turn: Asked) -> tuple[int, ...]:
        """The rendered prompt, with the model's own tokens where it reads the same."""
        rendered = self.renderer.rendered_prompt(turn.messages, turn.tools)
        order = [i for i, m in enumerate(turn.messages) if m.role == "assistant"]
        # Of several conversations the turns are the last ones.
        own = order[self.earlier :]
        sampled = dict(zip(reversed(own), reversed(self.turns), strict=False))

        def turns(index: int, before: Sequence[int]) -> Sequence[Turn]:
            return [sampled[index]] if index in sampled else ()

        return with_own_tokens(self.renderer.tokenizer, rendered, turns)


def with_own_tokens(
    tokenizer: Any,
    rendered: RenderedConversation,
    turns: Callable[[int, Sequence[int]], Sequence[Turn]],
) -> tuple[int, ...]:
    """A rendered prompt with a turn's own tokens in the place of each answer that reads the same:
    the first such of `turns`, which is given the answer's place and the tokens before it."""

    def text(tokens: Sequence[int]) -> str:
        return tokenizer.decode(list(tokens), skip_special_tokens=False)

    tokens: list[int] = []
    done = 0
    for index, start, end in rendered.message_spans:
        tokens += rendered.tokens[done:start]
        # The last token of a span ends the turn; it is the template's in every case.
        body, done = rendered.tokens[start : end - 1], end - 1
        for turn in turns(index, tokens):
            own = turn.actions[:-1] if turn.ended == "stop" else turn.actions
            if own == body or text(own) == text(body):
                body = own
                break
        tokens += body
    return (*tokens, *rendered.tokens[done:])
