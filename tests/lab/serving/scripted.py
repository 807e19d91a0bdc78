"""A tiny model's tokenizer behind a server, with answers that tests write themselves."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from assay.data.episode import Turn
from assay.data.rendering import Renderer
from assay.lab.serving.app import Endpoint
from assay.lab.serving.batching import Batcher
from assay.lab.serving.served import Served
from assay.rl.policy import SampleKey
from assay.rollout.engine import Watch
from assay.rollout.sampling import Sampling
from tests.models.folders import tiny_tokenizer

TOKEN, MODEL, CONTEXT = "secret", "tiny", 2000
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
Answer = Callable[[str, SampleKey], str]


class Says:
    """Samples what `answer` says to the prompt's text, one token a step, as the engine would."""

    def __init__(self, answer: Answer):
        self.tokenizer = tiny_tokenizer()
        self.answer = answer
        self.batches: list[list[str]] = []
        self.limits: list[int] = []
        self.released = threading.Event()
        self.released.set()

    def sample(
        self,
        contexts: Sequence[tuple[int, ...]],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
        watch: Watch | None = None,
    ) -> list[Turn]:
        prompts = [str(self.tokenizer.decode(list(context))) for context in contexts]
        self.batches.append(prompts)
        self.limits.append(sampling.max_tokens)
        assert self.released.wait(20)
        said = [self.answer(prompt, key) for prompt, key in zip(prompts, keys, strict=True)]
        turns = []
        for number, (context, text) in enumerate(zip(contexts, said, strict=True)):
            tokens = [*self.tokenizer.encode(text), end_token(self.tokenizer)]
            drawn = tokens[: sampling.max_tokens]
            for count, token in enumerate(drawn, 1):
                if watch is not None and watch(np.array([number]), np.array([token]))[0]:
                    drawn = drawn[:count]
                    break
            ended = "stop" if len(drawn) == len(tokens) else "length"
            logps = tuple(-float(n) for n in range(len(drawn)))
            turns.append(Turn(context, tuple(drawn), (True,) * len(drawn), logps, ended))
        return turns


def end_token(tokenizer) -> int:
    """The token that ends an answer."""
    return tokenizer.convert_tokens_to_ids("<|im_end|>")


def served(sampler: Says, context: int = CONTEXT) -> Served:
    """The scripted model as the server knows it."""
    ends = frozenset({end_token(sampler.tokenizer)})
    renderer = Renderer(sampler.tokenizer, "hermes")
    return Served(MODEL, renderer, ends, context, sampler, Path("nowhere"))


@contextmanager
def client(answer: Answer | str) -> Iterator[tuple[TestClient, Says]]:
    """A client of the application, with the token."""
    sampler = Says(answer if callable(answer) else lambda *_: answer)
    batcher = Batcher(sampler)
    app = Endpoint(served(sampler), batcher, TOKEN).app()
    with TestClient(app, headers=HEADERS, raise_server_exceptions=False) as test_client:
        yield test_client, sampler
    sampler.released.set()
    batcher.close()
