"""A tokenizer that has one word per token id, so that token ids pass through text unchanged.

`<17>` is id 17. It serves trainers that insist on text, and models that have no words.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def id_tokenizer(vocabulary: int, end: int) -> PreTrainedTokenizerFast:
    """The tokenizer of ids below `vocabulary`, padding with 0; `end` may lie past them."""
    words = {f"<{i}>": i for i in range(max(vocabulary, end + 1))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<0>", eos_token=f"<{end}>", padding_side="left"
    )


def as_text(tokens: Sequence[int]) -> str:
    """The text that the tokenizer turns into exactly these ids."""
    return " ".join(f"<{token}>" for token in tokens)
