"""The memory formula adds up to what autograd really keeps, and says what fits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmarks.families import tiny_family
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from assay.models import matmul, memory, scoring
from assay.models.adapt import save_activations
from assay.models.memory import (
    ModelShape,
    StepLoad,
    choose_checkpointing,
    estimate_memory,
    head_gradient_bytes,
    layer_bytes,
    logits_bytes,
    model_shape,
    score_bytes,
)
from assay.models.plain_forward import BATCH_TOKENS, score_padded
from assay.models.scoring import Reads, head_logps, score_actions
from tests.models.folders import VOCABULARY, tiny_model

SIZES: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_attention_heads": 6,
    "head_dim": 32,
}
CASES = [(kind, bf16) for kind in ("llama", "qwen2", "qwen3") for bf16 in (False, True)]


class Made(TorchDispatchMode):
    """Notes the storage of everything that an operation gave, but for casts of weights."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.weights = {tuple(p.shape) for p in model.parameters()}
        self.weights |= {shape[::-1] for shape in self.weights}
        self.known = {p.untyped_storage()._cdata for p in model.parameters()}
        self.made: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and not self.is_weight(tensor):
                storage = tensor.untyped_storage()
                self.made[storage._cdata] = StorageWeakRef(storage)
        return result

    def is_weight(self, tensor: Tensor) -> bool:
        """Whether it is a weight or one's cast."""
        cast = tensor.dtype == torch.bfloat16 and tuple(tensor.shape) in self.weights
        return cast or tensor.untyped_storage()._cdata in self.known


def kept_bytes(model: PreTrainedModel, bf16: bool, forward: Callable[[], Any]) -> int:
    """Bytes that are alive between the forward and the backward pass, weights left out."""
    model.train()
    forward()  # makes what is kept for all calls
    with Made(model) as storages, torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        result = forward()
    assert result
    alive = [torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in storages.made.values()]
    return sum(storage.nbytes() for storage in alive if storage is not None)


def kept_by(kind: str, bf16: bool, layers: int, completions: int) -> int:
    """Bytes kept for completions of 66 tokens behind one prompt of 128."""
    model = tiny_model(kind, num_hidden_layers=layers, **SIZES)
    contexts = [tuple(t % 250 for t in range(128))] * completions
    actions_S = torch.arange(completions * 66) % VOCABULARY
    offsets_N1 = torch.arange(completions + 1) * 66
    return kept_bytes(model, bf16, lambda: score_actions(model, contexts, actions_S, offsets_N1))


@pytest.mark.parametrize("completions", [1, 4])
@pytest.mark.parametrize(("kind", "bf16"), CASES)
def test_a_layer_keeps_what_the_formula_says(kind: str, bf16: bool, completions: int) -> None:
    kept = (kept_by(kind, bf16, 3, completions) - kept_by(kind, bf16, 1, completions)) / 2
    shape = model_shape(tiny_model(kind, **SIZES).config)
    tokens = 128 + completions * 65
    assert kept == pytest.approx(tokens * layer_bytes(shape, bf16), rel=5e-3)


@pytest.mark.parametrize("bf16", [False, True])
def test_what_is_kept_behind_the_layers_is_what_the_formula_says(bf16: bool) -> None:
    kept = kept_by("llama", bf16, 1, 4)
    shape = model_shape(tiny_model(num_hidden_layers=1, **SIZES).config)
    tokens, rows = 128 + 4 * 65, 1 + 4 * 65
    load = StepLoad(tokens=tokens, logit_rows=rows, bf16=bf16)
    # Beside the formula: positions' cosines and sines, and numbers of one word for each token.
    small = tokens * (2 * 4 * 32 + 100)
    formula = estimate_memory(shape, load).activations + score_bytes(shape, rows, bf16)
    assert 0 <= kept - formula <= small


class Alive(TorchDispatchMode):
    """Notes the most bytes of matrices of so many columns that were alive after any operation."""

    def __init__(self, columns: int):
        super().__init__()
        self.columns = columns
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.dim() == 2 and result.shape[1] == self.columns:
            storage = result.untyped_storage()
            self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {key: seen for key, seen in self.alive.items() if not seen[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return result


ROWS, WORDS, HIDDEN = 320, 1000, 8
HEAD = ModelShape(WORDS * HIDDEN, 0, HIDDEN, 0, 0, 0, 0, WORDS, False)


def most_alive(columns: int, bf16: bool) -> int:
    """The most bytes of such matrices from the head's forward pass to its gradients."""
    hidden_KD = torch.randn(ROWS, HIDDEN, requires_grad=True)
    weight_VD = torch.nn.Parameter(torch.randn(WORDS, HIDDEN))
    reads = Reads(torch.arange(ROWS), torch.arange(ROWS), temperature=0.5, entropy=True)
    with Alive(columns) as matrices:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            logps_S, entropy_S = head_logps(hidden_KD, weight_VD, None, reads)
        assert entropy_S is not None
        (logps_S.sum() + entropy_S.sum()).backward()
    return matrices.peak


def scores_alive(bf16: bool) -> int:
    """Bytes of scores; the weight, which is read transposed, is none."""
    return most_alive(WORDS, bf16) - (2 if bf16 else 4) * WORDS * HIDDEN


def set_chunks(monkeypatch: pytest.MonkeyPatch, chunks: float, bf16: bool) -> None:
    """Let the scores of all rows be so many chunks."""
    for module in (scoring, memory):
        size = int(ROWS * WORDS * (2 if bf16 else 4) / chunks)
        for name in ("KEPT_BYTES", "CHUNK_BYTES"):
            monkeypatch.setattr(module, name, size)


@pytest.mark.parametrize("bf16", [False, True])
def test_the_scores_of_one_chunk_take_what_the_formula_says(bf16: bool) -> None:
    assert scores_alive(bf16) == logits_bytes(HEAD, ROWS, bf16)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("chunks", [1.5, 2, 5])
def test_the_scores_of_several_chunks_stay_within_the_formula(
    monkeypatch: pytest.MonkeyPatch, chunks: float, bf16: bool
) -> None:
    set_chunks(monkeypatch, chunks, bf16)
    # The hole that another chunk left in the heap is no tensor.
    formula = logits_bytes(HEAD, ROWS, bf16) - memory.CHUNK_BYTES
    softmax = 16 * 16 * WORDS
    assert formula - softmax < scores_alive(bf16) <= formula


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("chunks", [1, 2, 4, 5])
def test_the_heads_gradient_takes_what_the_formula_says(
    monkeypatch: pytest.MonkeyPatch, chunks: int, bf16: bool
) -> None:
    set_chunks(monkeypatch, chunks, bf16)
    load = StepLoad(tokens=0, logit_rows=ROWS, bf16=bf16)
    # Beside it: hidden states and their gradient, and under autocast the weight's cast.
    beside = 2 * ROWS * (2 if bf16 else 4) + (2 * WORDS if bf16 else 0)
    formula = head_gradient_bytes(HEAD, load) + beside * HIDDEN
    # The product of a later chunk is a tensor of its own until it is in its place.
    chunk = 4 * HIDDEN * ROWS // chunks if not bf16 else 0
    assert formula <= most_alive(HIDDEN, bf16) <= formula + chunk


def test_with_checkpointing_a_layer_keeps_its_input_alone() -> None:
    def kept(layers: int) -> int:
        model = tiny_model(num_hidden_layers=layers, **SIZES)
        save_activations(model)
        ids = tuple(range(64))
        given = [ids], torch.tensor([5]), torch.tensor([0, 1])
        return kept_bytes(model, False, lambda: score_actions(model, *given))

    measured = (kept(3) - kept(1)) / 2
    shape = model_shape(tiny_model(num_hidden_layers=1, **SIZES).config)
    deeper = replace(shape, layers=2)
    load = StepLoad(tokens=64, checkpointing=True)
    more = estimate_memory(deeper, load).activations - estimate_memory(shape, load).activations
    assert more == measured == 64 * 4 * 192


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_the_shape_is_read_off_the_config(kind: str, tied: bool) -> None:
    model = tiny_model(kind, tied=tied, **SIZES)
    shape = model_shape(model.config)
    weights = sum(p.numel() for p in model.parameters())
    assert shape == ModelShape(weights, 2, 192, 192, 64, 6, 512, VOCABULARY, kind == "qwen3")


SHAPE = ModelShape(1000, 4, 8, 8, 4, 2, 16, 100, False)


def test_the_parts_of_full_training_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "prefers_onednn", lambda: False)
    estimate = estimate_memory(SHAPE, StepLoad(tokens=10, logit_rows=5))
    layer = (8 * 8 + 8) + 2 * (8 + 4) * 4 + 2 * 16 * 4
    assert estimate.parts == {
        "weights": 4000,
        "casts": 0,
        "gradients": 4000 + 100 * 8 * 4,
        "moments": 8000,
        "activations": 10 * 4 * layer + 5 * 64,
        "logits": 5 * 100 * 4 + 5 * 100 * 16,
        "working": 0,
    }
    assert estimate.total == sum(estimate.parts.values())
    assert estimate.fits(estimate.total * 1.25)
    assert not estimate.fits(estimate.total * 1.24)


def test_8_bit_moments_a_small_share_and_bf16_each_save_their_part() -> None:
    full = estimate_memory(SHAPE, StepLoad(tokens=10))
    eight = estimate_memory(SHAPE, StepLoad(tokens=10, optimizer="adamw8bit"))
    assert eight.moments == 2000 + 1000 * 2 * 4 / 256
    lora = estimate_memory(SHAPE, StepLoad(tokens=10, trainable=50))
    assert (lora.weights, lora.gradients, lora.moments) == (4000, 200, 400)
    half = estimate_memory(SHAPE, StepLoad(tokens=10, bf16=True))
    assert half.casts == 2000
    assert half.activations < full.activations


def test_checkpointing_is_chosen_only_where_the_plain_step_does_not_fit() -> None:
    load = StepLoad(tokens=10)
    plain = estimate_memory(SHAPE, load)
    assert choose_checkpointing(SHAPE, load, plain.total * 1.25) == plain
    chosen = choose_checkpointing(SHAPE, load, plain.total * 1.24)
    assert chosen == estimate_memory(SHAPE, replace(load, checkpointing=True))


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(
    "family",
    [
        *("gemma3_text", "gemma2", "olmo2", "phi3 with a window", "gpt2", "opt"),
        "qwen3_moe",
        "mamba",
    ],
)
def test_the_plain_path_keeps_at_most_what_is_estimated(family: str, bf16: bool) -> None:
    model = tiny_family(family)
    shape = model_shape(model.config)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    contexts = [tuple(range(40, 72))] * 4
    actions, offsets = torch.arange(40, 72), torch.tensor([0, 8, 16, 24, 32])
    kept = kept_bytes(model, bf16, lambda: score_padded(model.eval(), contexts, actions, offsets))
    tokens = 4 * 39
    estimate = estimate_memory(shape, StepLoad(tokens, logit_rows=32, bf16=bf16))
    share = tokens / BATCH_TOKENS
    assert 0.1 < kept / (share * (estimate.activations + estimate.logits)) < 1.0
