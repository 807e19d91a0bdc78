"""How much memory a training step takes, by formula, in bytes and by part.

For dense decoders built like Llama: Llama, Mistral, Qwen2, Qwen3; not for mixtures of experts.
Adds up the tensors that are saved for the backward pass; tests compare the sums with what autograd
keeps.
"""

from dataclasses import asdict, dataclass, replace

import psutil
import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig

from assay.models import matmul
from assay.models.head import CACHED_ROWS, CHUNK_BYTES
from assay.models.optimizer import OptimizerName

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


def estimate_memory(shape: ModelShape, load: StepLoad) -> MemoryEstimate:
    """The memory of one training step of `load` on a model of `shape`."""
    trainable = shape.parameters if load.trainable is None else load.trainable
    layer = load.tokens * layer_bytes(shape, load.bf16)
    inputs = load.tokens * 4 * shape.hidden * shape.layers
    body = layer * shape.layers
    if load.checkpointing:
        body = inputs + layer + load.tokens * read_bytes(shape, load.bf16)
    return MemoryEstimate(
        weights=4.0 * shape.parameters,
        casts=2.0 * shape.parameters if load.bf16 else 0.0,
        gradients=4.0 * trainable + head_gradient_bytes(shape, load),
        moments=MOMENT_BYTES[load.optimizer] * trainable,
        # The final norm keeps its input and the head the normalised values, where words are scored.
        activations=body + 8.0 * load.logit_rows * shape.hidden,
        logits=logits_bytes(shape, load.logit_rows, load.bf16),
        checkpointing=load.checkpointing,
    )


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


def score_bytes(shape: ModelShape, rows: int, bf16: bool) -> int:
    """Bytes of the scores of `rows` positions over the vocabulary."""
    return rows * shape.vocabulary * (2 if bf16 else 4)


def logits_bytes(shape: ModelShape, rows: int, bf16: bool) -> float:
    """Bytes of the scores that are alive at once, and of their softmax.

    One chunk's scores are there at a time. Softmax takes a few rows at a time:
    scaled and shifted scores, probabilities and their product, fp32.
    """
    softmax = 16.0 * min(rows, CACHED_ROWS) * shape.vocabulary
    return min(score_bytes(shape, rows, bf16), CHUNK_BYTES) + softmax


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
