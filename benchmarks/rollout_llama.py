"""llama.cpp as a sampling engine: one decode a step for all sequences, through its C interface.

Each prompt is prefilled once and its cells are handed to the other sequences of its group. The
cache is laid out in one buffer for all sequences or in one per sequence, whichever takes less CPU
time on the first request of a shape. Tokens are drawn by llama.cpp's own samplers, one row after
the other. Runs in llama.cpp's environment.
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp as c  # type: ignore[import-not-found]

UNIFIED, SEPARATE = "one buffer", "a buffer per sequence"
PAGE = 256
"""Cells of a sequence come in this many."""


class Context:
    """A llama.cpp context that fits requests of one shape."""

    def __init__(
        self,
        model: Any,
        prompts: int,
        group: int,
        length: int,
        tokens: int,
        threads: int,
        kind: str,
    ):
        self.group, self.rows = group, prompts * group
        if self.rows > c.llama_max_parallel_sequences():
            raise ValueError(f"{self.rows} sequences; llama.cpp decodes at most 256 together")
        settings = c.llama_context_default_params()
        settings.n_seq_max = self.rows
        settings.kv_unified = kind == UNIFIED
        cells = prompts * length + self.rows * tokens
        pages = -(-(cells if kind == UNIFIED else length + tokens) // PAGE)
        settings.n_ctx = pages * PAGE * (1 if kind == UNIFIED else self.rows)
        settings.n_batch = max(prompts * length, self.rows)
        settings.n_threads = settings.n_threads_batch = threads
        settings.no_perf = True
        self.context = c.llama_init_from_model(model, settings)
        self.memory = c.llama_get_memory(self.context)
        self.batch = c.llama_batch_init(settings.n_batch, 0, 1)

    def close(self) -> None:
        """Give the memory back."""
        c.llama_batch_free(self.batch)
        c.llama_free(self.context)

    def decode(self, entries: Sequence[tuple[int, int, int, bool]]) -> None:
        """Run (token, position, sequence, whether logits are wanted) through the model."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for n, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[n], batch.pos[n], batch.logits[n] = token, position, wanted
            batch.n_seq_id[n], batch.seq_id[n][0] = 1, sequence
        status = c.llama_decode(self.context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")

    def sample(
        self, sampler: Any, prompts: Sequence[Sequence[int]], tokens: int
    ) -> list[list[int]]:
        """Completions of exactly `tokens`, those of a prompt together."""
        c.llama_memory_clear(self.memory, False)
        length, ends = len(prompts[0]), self.prefill(prompts)
        drawn = [[c.llama_sampler_sample(sampler, self.context, end)] for end in ends]
        for position in range(length, length + tokens - 1):
            self.decode([(row[-1], position, n, True) for n, row in enumerate(drawn)])
            for n, row in enumerate(drawn):
                row.append(c.llama_sampler_sample(sampler, self.context, n))
        return drawn

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Read each prompt once; for every sequence the place of its logits in the batch."""
        last = len(prompts[0]) - 1
        self.decode(
            [
                (token, place, which * self.group, place == last)
                for which, prompt in enumerate(prompts)
                for place, token in enumerate(prompt)
            ]
        )
        for first in range(0, self.rows, self.group):
            for sequence in range(first + 1, first + self.group):
                c.llama_memory_seq_cp(self.memory, first, sequence, -1, -1)
        return [row // self.group * (last + 1) + last for row in range(self.rows)]


def make_sampler(file: str, threads: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A sampling engine on the GGUF file."""
    silent = c.llama_log_callback(lambda *_: None)
    c.llama_log_set(silent, ctypes.c_void_p(0))
    c.llama_backend_init()
    model = c.llama_model_load_from_file(file.encode(), c.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp does not load {file}")
    chosen: dict[tuple[int, ...], tuple[str, Context]] = {}

    def sample(request: dict[str, Any], _keep: Any = silent) -> dict[str, Any]:
        prompts, tokens = request["prompts"], request["tokens"]
        shape = (len(prompts), request["group"], len(prompts[0]), tokens)
        if shape not in chosen:
            for _, old in chosen.values():
                old.close()
            chosen.clear()
            chosen[shape] = fastest(model, shape, request, threads)
        layout, context = chosen[shape]
        return {"completions": run(context, request), "layout": layout}

    return sample


def fastest(
    model: Any, shape: tuple[int, ...], request: dict[str, Any], threads: int
) -> tuple[str, Context]:
    """The layout that serves the request with less CPU time the second time, and its context."""
    trials = []
    for kind in (UNIFIED, SEPARATE):
        context = Context(model, *shape, threads, kind)  # type: ignore[misc]
        run(context, request)
        start = time.process_time()
        run(context, request)
        trials.append((time.process_time() - start, kind, context))
    (_, kind, context), (_, _, slower) = sorted(trials, key=lambda trial: trial[0])
    slower.close()
    return kind, context


def run(context: Context, request: dict[str, Any]) -> list[list[int]]:
    """Serve a request in a context of its shape."""
    sampler = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    last = (
        c.llama_sampler_init_greedy()
        if request["greedy"]
        else c.llama_sampler_init_dist(request["seed"])
    )
    c.llama_sampler_chain_add(sampler, last)
    drawn = context.sample(sampler, request["prompts"], request["tokens"])
    c.llama_sampler_free(sampler)
    return drawn
