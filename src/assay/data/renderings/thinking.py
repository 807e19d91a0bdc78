"""What a rendering does with reasoning, tried out on probes: a template's text proves nothing.

Nothing is judged here.
"""

from dataclasses import dataclass

from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import PROBE, RenderingError
from assay.data.row import Message, ToolCall

QUESTION = Message("user", "a")
CALL = ToolCall("f", {}, "call00001")


@dataclass(frozen=True, slots=True)
class ThinkHandling:
    """Where a rendering writes reasoning. None: it refuses such a conversation."""

    prefilled: bool
    """The prompt ends inside an open `<think>`."""
    written: bool | None
    """The reasoning of the answer itself is written, and trained."""
    empty_block: bool
    """An answer without reasoning is trained behind an empty think block, or behind the end of the
    one that the prompt opened."""
    in_step: bool | None
    """Reasoning before a call is still there when its result has come."""
    in_history: bool | None
    """Reasoning is still there after a later question."""


def think_handling(renderer: Renderer) -> ThinkHandling:
    """What a rendering does with a tokenizer. Raises RenderingError as rendering does."""
    prompt = _text(renderer, renderer.prompt((QUESTION,)))
    (turn,) = renderer.turns((QUESTION, Message("assistant", PROBE)))
    before_answer = _text(renderer, turn.actions).partition(PROBE)[0]
    spoken = Message("assistant", "b", reasoning=PROBE)
    calling = Message("assistant", "", (CALL,), reasoning=PROBE)
    result = Message("tool", "c", (), CALL.id)
    return ThinkHandling(
        prefilled=prompt.rfind("<think>") > prompt.rfind("</think>"),
        written=_holds_probe(renderer, (QUESTION, spoken)),
        empty_block="</think>" in before_answer,
        in_step=_holds_probe(renderer, (QUESTION, calling, result)),
        in_history=_holds_probe(renderer, (QUESTION, spoken, QUESTION)),
    )


def _holds_probe(renderer: Renderer, messages: tuple[Message, ...]) -> bool | None:
    """Whether reasoning is in the text; None where the rendering refuses to write it."""
    answers = messages[-1].role == "assistant"
    try:
        tokens = renderer.conversation(messages).tokens if answers else renderer.prompt(messages)
    except RenderingError:
        return None
    return PROBE in _text(renderer, tokens)


def _text(renderer: Renderer, tokens: tuple[int, ...]) -> str:
    return renderer.tokenizer.decode(list(tokens))
