"""The next context holds the tokens that were sampled wherever the history reads the same."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from assay.data.episode import Turn, tokens_of
from assay.data.renderings.rendering import Renderer
from assay.data.row import Message
from assay.tasks.rendered_dialogue import RenderedDialogue
from assay.tasks.task import Asked
from tests.models.folders import CHAT, tiny_tokenizer

TRIM = CHAT.replace("m['content'] +", "(m['content'] | trim) +")
STRIP = CHAT.replace(
    "m['content'] +",
    "(m['content'].split('</think>')[-1] if m['role'] == 'assistant' and not loop.last and "
    "messages[loop.index0:] | selectattr('role', 'equalto', 'user') | list else m['content']) +",
)


def tokenizer(template: str = CHAT, merged: bool = False) -> Any:
    """Bytes, and with `merged` a token "ab" that two other tokens spell as well."""
    if not merged:
        made = tiny_tokenizer()
    else:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {letter: n for n, letter in enumerate(letters)} | {"ab": len(letters)}
        raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        raw.decoder = decoders.ByteLevel()
        made = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|endoftext|>")
        made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})  # type: ignore[arg-type]
    made.chat_template = template
    return made


@dataclass
class Repeats:
    """Asks again and again, whatever is said; `asked` are the user's messages."""

    asked: tuple[str, ...] = ("Say it.", "Again.", "Once more.")
    said: list[Message] = field(default_factory=list)
    heard: list[tuple[str, str]] = field(default_factory=list)

    def asks(self) -> Asked | None:
        turn = len(self.heard)
        if turn == len(self.asked):
            return None
        return Asked((Message("user", self.asked[0]), *self.said))

    def hears(self, text: str, ended: str) -> None:
        self.heard.append((text, ended))
        self.said.append(Message("assistant", text))
        if len(self.heard) < len(self.asked):
            self.said.append(Message("user", self.asked[len(self.heard)]))

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self.said)


def world(made: Any) -> tuple[RenderedDialogue, Repeats]:
    ends = set(made.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))
    dialogue = Repeats()

    def decode(tokens):
        return made.decode([t for t in tokens if t not in ends], skip_special_tokens=False)

    return RenderedDialogue(dialogue, Renderer(made, "template"), decode), dialogue  # type: ignore[arg-type]


def seen(turn: Turn) -> tuple[int, ...]:
    """The tokens that the policy read."""
    return tokens_of(turn.context)


def context(place: RenderedDialogue) -> tuple[Any, ...]:
    """What the policy reads next."""
    read = place.context()
    assert read is not None
    return read


def rendered(place: RenderedDialogue, dialogue: Repeats) -> tuple[Any, ...]:
    """What the dialogue asks next, encoded anew."""
    asked = dialogue.asks()
    assert asked is not None
    return place.renderer.prompt(asked.messages, asked.tools)


def say(
    place: RenderedDialogue, made: Any, text_tokens: list[int], end: str | None = "<|im_end|>"
) -> Turn:
    """Let the model write tokens; its turn."""
    actions = (*text_tokens, *([made.convert_tokens_to_ids(end)] if end else []))
    turn = Turn(place.context(), actions, (True,) * len(actions), ended="stop" if end else "length")
    place.act(turn)
    return turn


def test_sampled_tokens_are_kept_where_encoding_them_anew_would_merge_them():
    made = tokenizer(merged=True)
    place, dialogue = world(made)
    a, b = made.convert_tokens_to_ids(["a", "b"])
    turn = say(place, made, [a, b, a])
    assert dialogue.heard == [("aba", "stop")]
    following = context(place)
    assert following[: len(seen(turn)) + 4] == seen(turn) + turn.actions
    anew = rendered(place, dialogue)
    assert anew != following, "the text's own tokens are others"
    assert made.decode(list(anew)) == made.decode(list(following))


@given(st.lists(st.lists(st.integers(0, 257), max_size=12), min_size=2, max_size=2))
def test_every_next_context_begins_with_the_one_before_and_what_was_sampled(said):
    made = tokenizer()
    place, _ = world(made)
    ends = set(made.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))
    for tokens in said:
        turn = say(place, made, [t for t in tokens if t not in ends])
        following = context(place)
        assert following[: len(seen(turn)) + len(turn.actions)] == seen(turn) + turn.actions


@pytest.mark.parametrize("end", [None, "<|endoftext|>"])
def test_a_turn_that_ended_otherwise_gets_the_templates_end_behind_its_tokens(end):
    made = tokenizer(merged=True)
    place, dialogue = world(made)
    a, b, stop = made.convert_tokens_to_ids(["a", "b", "<|im_end|>"])
    turn = say(place, made, [a, b], end)
    assert dialogue.heard == [("ab", "length" if end is None else "stop")]
    following = context(place)
    assert following[: len(seen(turn)) + 3] == (*seen(turn), a, b, stop)


def test_history_that_the_template_writes_otherwise_is_the_history_the_turn_has():
    made = tokenizer(TRIM, merged=True)
    place, dialogue = world(made)
    a, b, space = made.convert_tokens_to_ids(["a", "b", "Ġ"])
    turn = say(place, made, [a, b, space])
    following = context(place)
    assert following == rendered(place, dialogue)
    assert following[: len(seen(turn))] == seen(turn)
    again = say(place, made, [a, b])
    third = context(place)
    # The trimmed message stays as the template writes it, the other one as it was sampled.
    assert third[: len(following) + 3] == following + again.actions


def test_thoughts_that_the_template_strips_are_not_in_later_contexts():
    made = tokenizer(STRIP)
    place, dialogue = world(made)
    turn = say(place, made, made.encode("<think>hm</think>yes"))
    following = context(place)
    assert "hm" not in made.decode(list(following))
    assert following == rendered(place, dialogue)
    assert dialogue.said[0].content == "<think>hm</think>yes", "rewards see what was written"
    assert following != seen(turn) + turn.actions
