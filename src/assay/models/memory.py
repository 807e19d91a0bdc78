"""How much memory a training step takes, by formula, in bytes and by part.

On the packed path it adds up the tensors that are saved for the backward pass; on the plain path,
whose layers are Transformers', it estimates them from the weights that are there. Tests compare
both with what autograd keeps.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import psutil
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from assay.models import matmul
from assay.models.plain_forward import BATCH_TOKENS, LOGITS_BYTES
from assay.models.scoring import CACHED_ROWS, CHUNK_BYTES, KEPT_BYTES
from assay.models.supported import field_of, why_plain

OptimizerName = Literal["adamw", "adamw8bit"]
MOMENT_BYTES: dict[OptimizerName, float] = {"adamw": 8.0, "adamw8bit": 2.0 + 2 * 4 / 256}
"""Per trained weight: two fp32 moments, or two bytes and one fp32 scale for each block of 256."""

HEADROOM = 1.25
"""Allocator slack. Updates of SmolLM2-135M on a CPU peaked up to 10 % above the estimate, namely
those of two micro-batches (`python -m benchmarks.memory measure`)."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a model that its memory depends on."""

    parameters: int
    layers: int
    hidden: int
    query: int
    """Query heads times their size."""
    key: int
    """Key heads times their size."""
    heads: int
    intermediate: int
    vocabulary: int
    normed_queries: bool
    """Queries and keys are normalised (Qwen3)."""
    kept: float = 0.0
    """Plain path: numbers that all layers together keep of a token; 0 on the packed path."""
    scores: int = 0
    """Plain path: heads of all layers whose attention is kept whole, for each pair of tokens."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one micro-batch of a training step holds."""

    tokens: int
    """Tokens that go through the layers, prompts counted once."""
    logit_rows: int = 0
    """Positions at which words are scored."""
    trainable: int | None = None
    """Trained weights; None is all of them."""
    optimizer: OptimizerName = "adamw"
    bf16: bool = False
    """Matrix products run in bf16 under autocast."""
    checkpointing: bool = False
    """Layers keep their input alone and are run again in the backward pass."""
    longest: int = 0
    """Tokens of the longest sequence, whose words the plain path scores at once."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by part; `total` is the peak, with gradients and all moments in place."""

    weights: float
    """fp32 master weights."""
    casts: float
    """bf16 copies of the weights that autocast keeps until the end of the backward pass."""
    gradients: float
    """Accumulated ones, and the head's of one micro-batch, which comes first in a backward pass."""
    moments: float
    activations: float
    logits: float
    """Scores over the vocabulary, turned into their gradient in place."""
    working: float
    """What one layer's backward pass makes beyond the scores, which are gone by then."""
    checkpointing: bool

    @property
    def parts(self) -> dict[str, float]:
        """The parts by name, in bytes."""
        values = asdict(self)
        del values["checkpointing"]
        return values

    @property
    def total(self) -> float:
        """All parts together, in bytes."""
        return sum(self.parts.values())

    def fits(self, available: float) -> bool:
        """Whether the total with headroom lies within `available` bytes.

        They count from before the model was loaded: its weights are a part of the total.
        """
        return self.total * HEADROOM <= available


def model_shape(config: PreTrainedConfig) -> ModelShape:
    """Read the sizes off a config; weights are counted on a model without storage."""
    text = config.get_text_config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    if why_plain(config):
        return plain_shape(config, model)
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return ModelShape(
        parameters=sum(p.numel() for p in model.parameters()),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        query=text.num_attention_heads * size,
        key=text.num_key_value_heads * size,
        heads=text.num_attention_heads,
        intermediate=text.intermediate_size,
        vocabulary=text.vocab_size,
        normed_queries=any(name.endswith(".q_norm") for name, _ in model.named_modules()),
    )


KEPT, KEPT_RECURRENT = 2.0, 5.0
"""Numbers that Transformers' layers keep of a token, in units of what goes in and out of their
products: tiny models of 30 families show 0.5 to 1.9 with attention, up to 4.9 with recurrence."""


def plain_shape(config: Any, model: PreTrainedModel) -> ModelShape:
    """The sizes of a model of any family, by the weights that it has, on the plain path.

    Of a mixture, only the experts that a token goes through count.
    """
    heads = field_of(config, "num_attention_heads") or 1
    key_heads = field_of(config, "num_key_value_heads") or heads
    size = field_of(config, "head_dim") or config.hidden_size // heads
    ends: tuple[Any, ...] = (model.get_input_embeddings(), model.get_output_embeddings())
    tables = {id(layer.weight) for layer in ends if layer is not None}
    products = sum(
        ends_of(p, config) for p in model.parameters() if id(p) not in tables and p.dim() > 1
    )
    kept = KEPT_RECURRENT if model._is_stateful else KEPT
    return ModelShape(
        parameters=sum(p.numel() for p in model.parameters()),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        query=heads * size,
        key=key_heads * size,
        heads=heads,
        intermediate=field_of(config, "intermediate_size") or 4 * config.hidden_size,
        vocabulary=config.vocab_size,
        normed_queries=False,
        kept=kept * products,
        scores=0 if type(model)._supports_sdpa else heads * config.num_hidden_layers,
    )


def ends_of(weight: Tensor, config: Any) -> float:
    """Numbers that go in and out of a weight's product for a token."""
    if weight.dim() == 2:
        return sum(weight.shape)
    active = getattr(config, "num_experts_per_tok", None)
    # Three dimensions are the experts of a mixture, or a convolution over time.
    return active * sum(weight.shape[1:]) if active else 2.0 * weight.shape[0]


def estimate_memory(shape: ModelShape, load: StepLoad) -> MemoryEstimate:
    """The memory of one training step of `load` on a model of `shape`."""
    trainable = shape.parameters if load.trainable is None else load.trainable
    parts = plain_parts(shape, load) if shape.kept else packed_parts(shape, load)
    head = 0.0 if shape.kept else head_gradient_bytes(shape, load)
    return MemoryEstimate(
        weights=4.0 * shape.parameters,
        casts=2.0 * shape.parameters if load.bf16 else 0.0,
        gradients=4.0 * trainable + head,
        moments=MOMENT_BYTES[load.optimizer] * trainable,
        **parts,
        checkpointing=load.checkpointing,
    )


def packed_parts(shape: ModelShape, load: StepLoad) -> dict[str, float]:
    """Activations, scores and what the backward pass of a layer makes, on the packed path."""
    logits = logits_bytes(shape, load.logit_rows, load.bf16)
    layer = load.tokens * layer_bytes(shape, load.bf16)
    body = layer * shape.layers
    if load.checkpointing:
        inputs = load.tokens * 4 * shape.hidden * shape.layers
        body = inputs + layer + load.tokens * read_bytes(shape, load.bf16)
    return {
        # The final norm keeps its input and the head the normalised values, where words are scored.
        "activations": body + 8.0 * load.logit_rows * shape.hidden,
        "logits": logits,
        # Twice: it leaves holes in the heap that the next layer's, aligned anew, do not fit into.
        "working": max(2 * load.tokens * working_bytes(shape, load.bf16) - logits, 0.0),
    }


def plain_parts(shape: ModelShape, load: StepLoad) -> dict[str, float]:
    """The same on the plain path, where one batch is held at a time.

    Prompts are computed for each completion, so a batch is full whatever the micro-batch holds.
    """
    tokens = max(load.tokens, BATCH_TOKENS)
    # Scores before and after the mask and the softmax, in at least fp32.
    body = 4.0 * shape.kept * tokens + 12.0 * shape.scores * tokens * load.tokens
    if load.checkpointing:
        body = body / shape.layers + 4.0 * tokens * shape.hidden * shape.layers
    # The scores, widened, their log-softmax and its gradient.
    rows = score_bytes(shape, max(load.logit_rows, BATCH_TOKENS), False)
    alone = score_bytes(shape, min(load.longest, load.logit_rows), False)
    logits = 4.0 * max(min(rows, LOGITS_BYTES), alone)
    return {"activations": body, "logits": logits, "working": 0.0}


def choose_checkpointing(shape: ModelShape, load: StepLoad, available: float) -> MemoryEstimate:
    """The estimate of `load` as it stands where that fits, else with activation checkpointing.

    The result may still not fit: the caller asks it.
    """
    plain = estimate_memory(shape, load)
    if plain.fits(available):
        return plain
    return estimate_memory(shape, replace(load, checkpointing=True))


def layer_bytes(shape: ModelShape, bf16: bool) -> float:
    """Bytes per token that one decoder layer saves for its backward pass, w = 2 or 4 a number.

    Two norms on the fp32 residual: their input, 8 h, and a number for each row. Attention: query
    and output, key and value, 2 (q + k) w. Norms of queries and keys: their input, (q + k) w, and
    a number for each head and key head. MLP: gate and up, 2 f w. Outputs of norms and activation
    that products read are computed again (`layers.made_again`).
    """
    width = 2 if bf16 else 4
    attention = 2 * (shape.query + shape.key) * width
    norms = 8 * shape.hidden + 8
    if shape.normed_queries:
        norms += width * (shape.query + shape.key) + 4 * shape.heads * (1 + shape.key / shape.query)
    return norms + attention + 2 * shape.intermediate * width


def read_bytes(shape: ModelShape, bf16: bool) -> float:
    """Bytes per token of products' inputs that a layer keeps when it is run again as a whole.

    The outputs of two norms and of the activation; otherwise `layers.made_again` computes them.
    """
    return (2 * shape.hidden + shape.intermediate) * (2 if bf16 else 4)


def working_bytes(shape: ModelShape, bf16: bool) -> float:
    """Bytes per token that the backward pass of a layer makes at its most, in the MLP.

    The gradient of what the last product read and that itself, the gradients of gate and up, and
    two fp32 gradients of the stream.
    """
    return 4 * shape.intermediate * (2 if bf16 else 4) + 8 * shape.hidden


def score_bytes(shape: ModelShape, rows: int, bf16: bool) -> int:
    """Bytes of the scores of `rows` positions over the vocabulary."""
    return rows * shape.vocabulary * (2 if bf16 else 4)


def logits_bytes(shape: ModelShape, rows: int, bf16: bool) -> float:
    """Bytes of the scores that are alive at once, and of their softmax.

    Where they are too many to be kept, one chunk's are there at a time, beside the hole that the
    last one left in the heap. Softmax takes a few rows at a time: scaled and shifted scores,
    probabilities and their product, fp32.
    """
    softmax = 16.0 * min(rows, CACHED_ROWS) * shape.vocabulary
    whole = score_bytes(shape, rows, bf16)
    return (whole if whole <= KEPT_BYTES else 2 * CHUNK_BYTES) + softmax


def head_gradient_bytes(shape: ModelShape, load: StepLoad) -> float:
    """Bytes of the head's gradient in the making; 0 where not all weights are trained.

    One fp32 matrix, to which every chunk adds; under autocast the product gives another in bf16,
    and in fp32 oneDNN copies the weight.
    """
    if load.trainable is not None and load.trainable < shape.parameters:
        return 0.0
    if not load.logit_rows:
        return 0.0
    another = 2.0 if load.bf16 else 4.0 * matmul.prefers_onednn()
    return (4.0 + another) * shape.vocabulary * shape.hidden


def available_memory(device: str) -> float:
    """Free bytes on `cuda`, or of the machine's main memory."""
    if device == "cuda":
        return float(torch.cuda.mem_get_info()[0])
    return float(psutil.virtual_memory().available)
