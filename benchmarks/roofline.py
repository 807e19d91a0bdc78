"""The least time that a rollout or an update can take on a machine: formulas and measured rates.

Needed work is counted part by part from the model's sizes: floating-point operations of products,
and bytes that have to come from memory. A part takes at least the longer of its operations at the
measured rate and its bytes at the measured bandwidth; parts follow each other. What a perfect
program could keep in registers counts as nothing: norms, activations, rotary embeddings, masks.
All rates are those of one thread, in CPU-seconds. Runs no model.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial

import torch
from torch.nn.functional import linear

from assay.models.matmul import onednn
from assay.models.memory import ModelShape

WIDTH = {"fp32": 4, "bf16": 2}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TRIAL_SECONDS = 0.3
"""A rate is the best of the calls that fit into this many CPU-seconds, of three at least."""


@dataclass(frozen=True)
class Load:
    """What is sampled or trained on: each prompt once, `group` completions behind each."""

    prompts: int
    group: int
    prompt: int
    completion: int

    @property
    def rows(self) -> int:
        """Completions."""
        return self.prompts * self.group

    @property
    def trained_tokens(self) -> int:
        """Tokens through the layers in an update: the last of a completion is not fed."""
        return self.prompts * self.prompt + self.rows * (self.completion - 1)

    @property
    def pairs(self) -> float:
        """Pairs of a token and a token that it sees, in an update."""
        fed = self.completion - 1
        inside = self.prompts * self.prompt * (self.prompt + 1) / 2
        return inside + self.rows * (fed * self.prompt + fed * (fed + 1) / 2)

    @property
    def scored_positions(self) -> int:
        """Positions that need logits in an update; a group shares the one behind its prompt."""
        return self.prompts + self.rows * (self.completion - 1)


@dataclass(frozen=True)
class Part:
    """One part of the needed work."""

    name: str
    flops: float
    bytes: float
    rate: float
    """Operations per second that its products reach when run alone."""
    bandwidth: float

    @property
    def seconds(self) -> float:
        """The least time."""
        return max(self.flops / self.rate, self.bytes / self.bandwidth)

    def record(self) -> dict[str, object]:
        """The part as JSON holds it."""
        return {**asdict(self), "seconds": self.seconds}


@dataclass(frozen=True)
class Rates:
    """Rates of one thread for a model in a number format, measured when first asked for."""

    shape: ModelShape
    dtype: str

    @property
    def bandwidth(self) -> float:
        """Bytes per second, of one thread."""
        return measured_bandwidth()

    def layers_rate(self, rows: int) -> float:
        """Operations per second over all products of a layer with `rows` tokens."""
        work = [(inputs, outputs) for inputs, outputs in layer_products(self.shape)]
        flops = sum(2.0 * rows * inputs * outputs for inputs, outputs in work)
        seconds = sum(
            2.0 * rows * inputs * outputs / product_rate(self.dtype, rows, inputs, outputs)
            for inputs, outputs in work
        )
        return flops / seconds

    def head_rate(self, rows: int) -> float:
        """Operations per second of the product with the vocabulary."""
        return product_rate(self.dtype, rows, self.shape.hidden, self.shape.vocabulary)

    def best_rate(self) -> float:
        """Operations per second of a large square product."""
        return product_rate(self.dtype, 1536, 1536, 1536)

    def parts(self, *work: tuple[str, float, float, float]) -> list[Part]:
        """Parts of this machine, from name, operations, bytes, and rate of the products."""
        return [Part(*numbers, self.bandwidth) for numbers in work]


def layer_products(shape: ModelShape) -> list[tuple[int, int]]:
    """Inputs and outputs of each linear map of a layer."""
    hidden, inner = shape.hidden, shape.intermediate
    attention = [(hidden, shape.query), (hidden, shape.key), (hidden, shape.key)]
    return [*attention, (shape.query, hidden), (hidden, inner), (hidden, inner), (inner, hidden)]


def layer_weights(shape: ModelShape) -> float:
    """Weights in the linear maps of all layers."""
    return float(shape.layers * sum(a * b for a, b in layer_products(shape)))


def update_parts(rates: Rates, load: Load) -> list[Part]:
    """An update: forward and backward over every token once, then the optimizer.

    A product costs three of its forward form: itself and one for each of the two gradients.
    Weights are read for each of the passes and their gradient is written. Attention has two
    products forward and four backward. AdamW reads four numbers and writes three, the clipping
    norm reads one; bf16 adds the copy that is computed with, written once and read from fp32.
    """
    shape = rates.shape
    width, weights = WIDTH[rates.dtype], layer_weights(shape)
    tokens, scored = load.trained_tokens, load.scored_positions
    head = shape.hidden * shape.vocabulary
    optimizer = 32.0 + (6.0 if rates.dtype == "bf16" else 0.0)
    passes = 2 * width + 4
    return rates.parts(
        ("linear layers", 6.0 * tokens * weights, passes * weights, rates.layers_rate(tokens)),
        ("attention", 12.0 * shape.query * shape.layers * load.pairs, 0.0, rates.best_rate()),
        ("vocabulary", 6.0 * scored * head, float(passes * head), rates.head_rate(scored)),
        ("optimizer", 0.0, optimizer * shape.parameters, rates.best_rate()),
    )


def rollout_parts(rates: Rates, load: Load) -> list[Part]:
    """A rollout: each prompt read once, then one step per token for all rows together.

    A step reads the weights once, the keys and values of each prompt once for its whole group, and
    every row's own. Logits are written once and read twice, by the maximum and by the draw.
    """
    shape = rates.shape
    width, weights = WIDTH[rates.dtype], layer_weights(shape)
    rows, steps, read = load.rows, load.completion - 1, load.prompts * load.prompt
    inside = load.prompts * load.prompt * (load.prompt + 1) / 2
    seen = steps * load.prompt + steps * (steps + 1) / 2
    cached = steps * read + rows * steps * (steps + 1) / 2
    head = shape.hidden * shape.vocabulary
    logits = rows * load.completion * shape.vocabulary * 4.0
    queries = 4.0 * shape.query * shape.layers
    cache_bytes = 2.0 * width * shape.key * shape.layers * cached
    reading = 2.0 * read * weights + queries * inside
    stepped = steps * width * weights
    vocabulary = 2.0 * (load.prompts + rows * steps) * head
    return rates.parts(
        ("prompts", reading, width * weights, rates.layers_rate(read)),
        ("linear layers", 2.0 * rows * steps * weights, stepped, rates.layers_rate(rows)),
        ("attention", queries * rows * seen, cache_bytes, rates.best_rate()),
        ("vocabulary", vocabulary, float((1 + steps) * width * head), rates.head_rate(rows)),
        ("drawing", 0.0, 3.0 * logits, rates.best_rate()),
    )


@cache
def product_rate(dtype: str, rows: int, inputs: int, outputs: int) -> float:
    """Operations per second of (rows, inputs) times (inputs, outputs), as a linear map does it.

    The fastest of torch's own product and oneDNN's over weights as they are and laid out for it.
    """
    rows_RI = torch.randn(rows, inputs).to(DTYPES[dtype])
    weight_OI = torch.randn(outputs, inputs).to(DTYPES[dtype])
    ways: list[Callable[[], object]] = [lambda: linear(rows_RI, weight_OI)]
    if torch.backends.mkldnn.is_available():
        for weight in (weight_OI, torch.ops.mkldnn._reorder_linear_weight(weight_OI, rows)):
            ways.append(partial(onednn, rows_RI, weight, None))
    with torch.no_grad():
        return 2.0 * rows * inputs * outputs / min(map(best_seconds, ways))


@cache
def measured_bandwidth() -> float:
    """Bytes per second, the better of reading a long array and copying it."""
    source, target = torch.ones(2**27), torch.zeros(2**27)
    size = source.numel() * source.element_size()
    copying = 2.0 * size / best_seconds(lambda: target.copy_(source))
    return max(copying, size / best_seconds(source.sum))


def best_seconds(action: Callable[[], object]) -> float:
    """CPU-seconds of the fastest call."""
    action()
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < TRIAL_SECONDS:
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return min(taken)
