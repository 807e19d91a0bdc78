"""A tiny model's tokenizer behind a server, with answers that tests write themselves."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from assay.data.renderings.rendering import Renderer
from assay.lab.evaluate.opened_model import Served
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.batcher import Batcher
from assay.rollout.engines.cpu.continuous_batch import Row, Step
from assay.serve.app import Endpoint
from tests.models.folders import tiny_tokenizer

TOKEN, MODEL, CONTEXT = "secret", "tiny", 2000
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
Answer = Callable[[str, SampleKey], str]


class Says:
    """Draws what `answer` says to the prompt's text, one token a step, as the engine would."""

    def __init__(self, answer: Answer):
        self.tokenizer = tiny_tokenizer()
        self.answer = answer
        self.prompts: list[str] = []
        """In the order of their coming."""
        self.settings: list[Sampling] = []
        self.rows: dict[Row, tuple[str, SampleKey]] = {}
        """What is under way, with its prompt."""
        self.released = threading.Event()
        """Without it no step is made."""
        self.released.set()

    def join(self, context: Sequence[int], key: SampleKey, sampling: Sampling) -> Row:
        prompt = str(self.tokenizer.decode(list(context)))
        self.prompts.append(prompt)
        self.settings.append(sampling)
        row = Row(list(context), len(context), np.uint64(0), sampling)
        self.rows[row] = prompt, key
        return row

    def step(self) -> Step:
        assert self.released.wait(20)
        step = Step()
        for row, (prompt, key) in list(self.rows.items()):
            try:
                said = self.answer(prompt, key)
            except Exception as error:
                del self.rows[row]
                step.failed.append((row, error))
                continue
            script = [*self.tokenizer.encode(said), end_token(self.tokenizer)]
            step.drawn.append((row, script[row.drawn], -float(row.drawn)))
            row.tokens.append(script[row.drawn])
        return step

    def leave(self, row: Row) -> None:
        del self.rows[row]

    def clear(self) -> None:
        self.rows.clear()


def end_token(tokenizer) -> int:
    """The token that ends an answer."""
    return tokenizer.convert_tokens_to_ids("<|im_end|>")


def served(sampler: Says, context: int = CONTEXT) -> Served:
    """The scripted model as the server knows it."""
    ends = frozenset({end_token(sampler.tokenizer)})
    renderer = Renderer(sampler.tokenizer, "hermes")
    return Served(MODEL, renderer, ends, context, sampler, Path("nowhere"))


def batching(sampler: Says) -> Batcher:
    """The scripted model's batcher."""
    return Batcher(sampler, frozenset({end_token(sampler.tokenizer)}))


@contextmanager
def client(answer: Answer | str) -> Iterator[tuple[TestClient, Says]]:
    """A client of the application, with the token."""
    sampler = Says(answer if callable(answer) else lambda *_: answer)
    batcher = batching(sampler)
    endpoint = Endpoint(served(sampler), batcher, TOKEN)
    with TestClient(endpoint.app(), headers=HEADERS, raise_server_exceptions=False) as test_client:
        yield test_client, sampler
    sampler.released.set()
    batcher.close()
