"""A tiny model's tokenizer behind a server, with answers that tests write themselves."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from assay.data.episode import Turn
from assay.data.renderings.rendering import Renderer
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.batcher import Batcher
from assay.rollout.engines.cpu.sampler import Watch
from assay.serve.server import Served, ServedEndpoint
from tests.models.folders import tiny_tokenizer

TOKEN, MODEL, CONTEXT = "secret", "tiny", 2000
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
Answer = Callable[[str, SampleKey], str]


class ScriptedSampler:
    """Draws what `script` says, one token a step, as the engine would."""

    def __init__(self, ends: frozenset[int]) -> None:
        self.end_tokens = ends
        self.rows: list[int] = []
        """What is under way."""
        self.pause = 0.0
        self.released = threading.Event()
        """Without it no step is made."""
        self.released.set()

    def script(self, context: tuple[int, ...], key: SampleKey, begins: bool) -> list[int]:
        raise NotImplementedError

    def conversations(self) -> AbstractContextManager[None]:
        return nullcontext()

    def sample(
        self,
        contexts: Sequence[tuple[int, ...]],
        keys: Sequence[SampleKey],
        sampling: Sampling,
        policy_version: int = 0,
        watch: Watch | None = None,
        drawn: Sequence[int] | None = None,
    ) -> list[Turn]:
        assert watch is not None and drawn is not None
        asked = zip(contexts, keys, drawn, strict=True)
        scripts = [self.script(c[: len(c) - begun], key, not begun) for c, key, begun in asked]
        actions: list[list[int]] = [[] for _ in scripts]
        self.rows = list(range(len(scripts)))
        for place in range(sampling.max_tokens):
            assert self.released.wait(20)
            time.sleep(self.pause)
            tokens = [scripts[row][drawn[row] + place] for row in self.rows]
            over = watch(np.array(self.rows), np.array(tokens))
            for row, token in zip(self.rows, tokens, strict=True):
                actions[row].append(token)
            whole = [drawn[row] + place + 1 == len(scripts[row]) for row in self.rows]
            ends = zip(self.rows, over.tolist(), whole, strict=True)
            self.rows = [row for row, out, last in ends if not out and not last]
            if not self.rows:
                break
        self.rows = []
        return [
            Turn(
                context,
                tuple(done),
                (True,) * len(done),
                tuple(-float(begun + n) for n in range(len(done))),
                "stop" if begun + len(done) == len(script) else "length",
            )
            for context, done, begun, script in zip(contexts, actions, drawn, scripts, strict=True)
        ]


class Says(ScriptedSampler):
    """Draws what `answer` says to the prompt's text."""

    def __init__(self, answer: Answer):
        self.tokenizer = tiny_tokenizer()
        super().__init__(frozenset({end_token(self.tokenizer)}))
        self.answer = answer
        self.prompts: list[str] = []
        """In the order of their coming."""

    def script(self, context: tuple[int, ...], key: SampleKey, begins: bool) -> list[int]:
        prompt = str(self.tokenizer.decode(list(context)))
        if begins:
            self.prompts.append(prompt)
        return [*self.tokenizer.encode(self.answer(prompt, key)), end_token(self.tokenizer)]


def end_token(tokenizer) -> int:
    """The token that ends an answer."""
    return tokenizer.convert_tokens_to_ids("<|im_end|>")


def served(sampler: Says, context: int = CONTEXT) -> Served:
    """The scripted model as the server knows it."""
    ends = frozenset({end_token(sampler.tokenizer)})
    renderer = Renderer(sampler.tokenizer, "hermes")
    return Served(MODEL, renderer, ends, context, sampler, Path("nowhere"))  # type: ignore[arg-type]


def batching(sampler: Says) -> Batcher:
    """The scripted model's batcher."""
    return Batcher(sampler)  # type: ignore[arg-type]


@contextmanager
def client(answer: Answer | str) -> Iterator[tuple[TestClient, Says]]:
    """A client of the application, with the token."""
    sampler = Says(answer if callable(answer) else lambda *_: answer)
    batcher = batching(sampler)
    endpoint = ServedEndpoint(served(sampler), batcher, TOKEN)
    with TestClient(endpoint.app(), headers=HEADERS, raise_server_exceptions=False) as test_client:
        yield test_client, sampler
    sampler.released.set()
    batcher.close()
