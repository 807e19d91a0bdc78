"""A server's log-probabilities of prompts: its likeliest words at each token, as vLLM tells them.

`prompt_logprobs` is vLLM's addition to OpenAI's completions, asked for with a prompt in token ids:
one object a token, of ids with `logprob` and `decoded_token`, in which the prompt's own token
stands beside the likeliest. What is told of an answer is kept as one text, as answers are.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.rollout.engines.endpoint.openai_text import Unusable, first_choice

LOWEST = -1e4
"""Below it no word's log-probability lies; vLLM writes -9999 for a word that cannot be."""
ROUNDED = 1e-3
"""Above 0 by rounding alone."""


@dataclass(frozen=True)
class LikelyWords:
    """Ids and log-probabilities (T, N), the likeliest first, and the texts of all that was told by
    id."""

    words_TN: np.ndarray
    logps_TN: np.ndarray
    texts: Mapping[int, str]


def asked_words(tokens: tuple[int, ...], count: int) -> dict[str, Any]:
    """The part of a request that asks for the `count` likeliest words at each token."""
    return {"prompt": list(tokens), "max_tokens": 1, "temperature": 0, "prompt_logprobs": count}


def told_words(answer: Any, begin: int, tokens: int, count: int) -> str:
    """What is told of the tokens from `begin` of a prompt of so many, as a text for `read_words`.
    Raises ValueError, and Unusable for a server that tells nothing of prompts."""
    told = first_choice(answer).get("prompt_logprobs")
    if not isinstance(told, list):
        raise Unusable("the server tells no prompt_logprobs, as vLLM's does")
    if len(told) != tokens:
        raise Unusable(f"it tells of {len(told)} tokens and was asked about {tokens}")
    places = [told_of(place) for place in told[begin:]]
    fewest = min(map(len, places))
    if fewest < count:
        raise Unusable(f"it tells {fewest} words of a token and was asked for {count}")
    best = [sorted(place.items(), key=lambda each: -each[1][0])[:count] for place in places]
    words = np.array([[word for word, _ in place] for place in best], dtype="<i4")
    logps = np.array([[logp for _, (logp, _) in place] for place in best], dtype="<f4")
    texts = {w: text for place in places for w, (_, text) in place.items() if text is not None}
    packed = [base64.b64encode(each.tobytes()).decode("ascii") for each in (words, logps)]
    return json.dumps({"count": count, "words": packed[0], "logps": packed[1], "texts": texts})


def told_of(place: Any) -> dict[int, tuple[float, str | None]]:
    """Log-probability and text of the words at a token, by id. Raises ValueError."""
    if not isinstance(place, dict):
        raise ValueError("a token of the prompt has no log-probabilities")
    found = {}
    for word, said in place.items():
        known = said if isinstance(said, dict) else {}
        logp, text = known.get("logprob"), known.get("decoded_token")
        if not (isinstance(logp, int | float) and LOWEST <= logp <= ROUNDED) or not is_id(word):
            raise ValueError(f"word {word!r} of the prompt has no log-probability")
        found[int(word)] = min(float(logp), 0.0), text if isinstance(text, str) else None
    return found


def is_id(word: str) -> bool:
    """Whether a key is a token's id."""
    return word.isascii() and word.isdigit() and len(word) < 10


def read_words(text: str) -> LikelyWords:
    """What `told_words` wrote."""
    held = json.loads(text)
    words, logps = (base64.b64decode(held[name]) for name in ("words", "logps"))
    shape = -1, held["count"]
    return LikelyWords(
        np.frombuffer(words, "<i4").reshape(shape).astype(np.int64),
        np.frombuffer(logps, "<f4").reshape(shape).copy(),
        {int(word): said for word, said in held["texts"].items()},
    )
