"""One decoding step: feeds every living row its last token and returns the next token's logits.

On a CPU products are of living rows only, and attention reads the positions in use, or the whole
cache where copying a part would cost more. A GPU would spend such a step launching a thousand small
kernels, so there the step has fixed shapes (all slots, lengths rounded up, empty places masked) and
is replayed from a CUDA graph. `engine` draws the tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from assay.models.inference import InferenceModel
from assay.models.matmul import moved
from assay.rollout.engines.cpu.kv_cache import Cache, DecodePlan, RunningRows, positions_read

LEAST_COLUMNS = 64
"""Completion positions of the first fixed shape; the next ones have twice as many."""

UNSEEN = -1e30
"""Added to the score of a hidden key."""

Decode = Callable[[RunningRows], Tensor]
"""Logits (A, V) after the last token of each living row, in the order of `alive_A`."""


def decoder(model: InferenceModel) -> Decode:
    """The way to decode on the model's device, for one call of the engine."""
    if model.device.type == "cuda":
        return StaticDecode(model, captured)
    return lambda running: decode_living(model, running)


def decode_living(model: InferenceModel, running: RunningRows) -> Tensor:
    """Compute the living rows only."""
    rows_A = running.alive_A
    fed_A = running.fed_B[rows_A]
    plan = living_plan(running, rows_A, fed_A)
    lengths_A = running.cache.prompt_lengths_U[plan.rows_A // running.cache.slots]
    tokens_A = moved(torch.from_numpy(running.tokens_BC[rows_A, fed_A]), model.device)
    return model.forward(tokens_A, lengths_A + plan.lengths_A, plan, None)


def living_plan(running: RunningRows, rows_A: np.ndarray, fed_A: np.ndarray) -> DecodePlan:
    """How the next token of each living row sees its prompt and its own tokens."""
    cache = running.cache
    device = cache.prompt_lengths_U.device
    sizes_U = np.array([len(running.contexts[u]) for u in np.unique(rows_A // cache.slots)])
    longest = positions_read(cache.prompt_keys[0], int(sizes_U.max()))
    own = positions_read(cache.own_keys[0], int(fed_A.max()) + 1)
    prompts = owns = None
    # No mask where every row fills all positions that are read.
    if longest != sizes_U.min():
        prompts = unseen_prompt(cache, longest)
    if own != fed_A.min() + 1:
        owns = unseen_own(cache, moved(torch.from_numpy(running.fed_B), device), own)
    rows, fed = (moved(torch.from_numpy(x), device) for x in (rows_A, fed_A))
    return DecodePlan(cache, rows, fed, longest, own, prompts, owns)


def unseen_prompt(cache: Cache, longest: int) -> Tensor:
    """Hides prompt positions that hold nothing: (U, 1, 1, P), to be added to scores."""
    lengths_U = cache.prompt_lengths_U
    positions_P = torch.arange(longest, device=lengths_U.device)
    return hiding(positions_P >= lengths_U[:, None], cache)


def unseen_own(cache: Cache, fed_B: Tensor, columns: int) -> Tensor:
    """Hides completion positions behind the token now fed: (B, 1, 1, C), to be added to scores."""
    return hiding(torch.arange(columns, device=fed_B.device) > fed_B[:, None], cache)


def hiding(hidden_BN: Tensor, cache: Cache) -> Tensor:
    """What hides these positions when added to scores, in the dtype of the cache."""
    mask = torch.zeros(hidden_BN.shape, dtype=cache.own_keys[0].dtype, device=hidden_BN.device)
    return mask.masked_fill_(hidden_BN, UNSEEN)[:, None, None]


def static_logits(
    model: InferenceModel, cache: Cache, token_B: Tensor, fed_B: Tensor, columns: int
) -> Tensor:
    """Logits (B, V) of every slot, at shapes that do not depend on what is in the slots.

    A dead slot is computed too, at its position 0, where its next completion begins anyway.
    """
    rows_B = torch.arange(len(token_B), device=token_B.device)
    longest = cache.prompt_keys[0].shape[2]
    unseen = unseen_prompt(cache, longest), unseen_own(cache, fed_B, columns)
    plan = DecodePlan(cache, rows_B, fed_B, longest, columns, *unseen)
    return model.forward(token_B, cache.prompt_lengths_U[rows_B // cache.slots] + fed_B, plan, None)


Step = Callable[[], Tensor]
"""Runs one step on inputs at fixed addresses."""


@dataclass
class StaticDecode:
    """Decodes at fixed shapes; `prepare` makes a step out of one that was run before."""

    model: InferenceModel
    prepare: Callable[[Step], Step]
    inputs: tuple[Tensor, Tensor] = (torch.empty(0), torch.empty(0))
    """Last tokens (B) and tokens in the cache (B)."""
    steps: dict[int, Step] = field(default_factory=dict)
    """By number of columns, for the cache as it is now."""
    version: int = -1

    def __call__(self, running: RunningRows) -> Tensor:
        """See `Decode`."""
        cache = running.cache
        if self.version != cache.version:
            # The cache has new tensors; steps made for the old ones must not run again.
            self.version, self.steps = cache.version, {}
            slots = len(running.turn_B)
            self.inputs = tuple(
                torch.zeros(slots, dtype=torch.long, device=self.model.device) for _ in range(2)
            )  # type: ignore[assignment]
        self.feed(running)
        columns = columns_for(int(running.fed_B[running.alive_A].max()) + 1, cache)
        if columns not in self.steps:
            self.steps[columns] = self.prepare(
                lambda: static_logits(self.model, cache, *self.inputs, columns)
            )
        logits_BV = self.steps[columns]()
        alive_A = running.alive_A
        if len(alive_A) == len(logits_BV):
            return logits_BV
        return logits_BV[moved(torch.from_numpy(alive_A), logits_BV.device)]

    def feed(self, running: RunningRows) -> None:
        """Put the living rows' last tokens and places where the steps read them."""
        living_B = running.turn_B >= 0
        fed_B = np.where(living_B, running.fed_B, 0)
        token_B = running.tokens_BC[np.arange(len(fed_B)), fed_B]
        for held, values in zip(self.inputs, (token_B, fed_B), strict=True):
            held.copy_(moved(torch.from_numpy(values), held.device))


def columns_for(own: int, cache: Cache) -> int:
    """The fixed number of completion positions that `own` positions are computed in."""
    columns = LEAST_COLUMNS
    while columns < own:
        columns *= 2
    return min(columns, cache.own_keys[0].shape[2])


def captured(step: Step) -> Step:
    """The step as a CUDA graph; its answer lies at one address and is overwritten by the next.

    It runs once outside the graph first, on another stream, as capturing asks for
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs). Running it twice is
    harmless: it writes the same keys to the same places.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits_BV = step()

    def replay() -> Tensor:
        graph.replay()
        return logits_BV

    return replay
