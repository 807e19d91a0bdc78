"""LoRA adapters through peft: added, switched off for a while, merged.

`PackedLora` adds the low-rank part in place, because the tensors that peft's forward makes cost
more than the low-rank products; batches with more dimensions, adapters that are merged, switched
off or several, and dropout without a key take peft's way. Dropout masks are a function of
seed, step, micro-batch and layer, so a step repeated after a kill, or a forward run again for the
backward pass, drops the same values. Files are written and read by `weight_files`.
"""

import functools
import hashlib
import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora.layer import Linear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel

from assay.errors import InputError, nearest
from assay.models.matmul import project
from assay.models.supported import old_names_of_peft, reason


@dataclass(frozen=True, slots=True)
class Mask:
    """Which numbers of a tensor are dropped: the same for the same key and shape, in any type."""

    key: int
    share: float

    def __call__(self, values: Tensor) -> Tensor:
        """`values` with the dropped ones 0 and the others larger, so that the mean stays."""
        generator = torch.Generator(values.device).manual_seed(self.key)
        kept = torch.empty(values.shape, dtype=torch.bool, device=values.device)
        kept.bernoulli_(1 - self.share, generator=generator)
        return values * kept.to(values.dtype).div_(1 - self.share)


class KeyedDropout(nn.Dropout):
    """Dropout of one layer, with the mask of the place in training where the model is."""

    def __init__(self, share: float, name: str):
        """`share` of the numbers is dropped; `name` is the layer's, unlike every other's."""
        super().__init__(share)
        self.name = name
        self.place: tuple[int, int, int] = (0, 0, 0)
        """Seed, finished steps, micro-batch."""

    @property
    def mask(self) -> Mask | None:
        """What the layer drops now; None where the model answers."""
        if not self.training:
            return None
        text = "/".join(map(str, (*self.place, self.name)))
        digest = hashlib.sha256(text.encode()).digest()
        return Mask(int.from_bytes(digest[:8], signed=True), self.p)

    def forward(self, input: Tensor) -> Tensor:
        """What is left of the input."""
        mask = self.mask
        return input if mask is None else mask(input)


def begin_masks(module: nn.Module, seed: int, step: int) -> None:
    """Set every layer's mask to that of a step's first micro-batch."""
    for layer in _keyed(module):
        layer.place = seed, step, 0


def next_masks(module: nn.Module) -> None:
    """Set every layer's mask to that of the next micro-batch."""
    for layer in _keyed(module):
        seed, step, micro = layer.place
        layer.place = seed, step, micro + 1


def place_of_masks(module: nn.Module) -> tuple[int, int, int] | None:
    """Seed, finished steps and micro-batch of the layers' masks; None without such dropout."""
    keyed = _keyed(module)
    return keyed[0].place if keyed else None


def put_masks(module: nn.Module, place: tuple[int, int, int] | None) -> None:
    """Set every layer's mask to that of a place in training."""
    for layer in _keyed(module):
        assert place is not None
        layer.place = place


def _keyed(module: nn.Module) -> list[KeyedDropout]:
    return [part for part in module.modules() if isinstance(part, KeyedDropout)]


class PackedLora(Linear):
    """peft's LoRA of a linear layer, faster on rows (T, D)."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """W x + scaling B A x; Hu et al., 2021, https://arxiv.org/abs/2106.09685."""
        name = self._only_adapter()
        if x.dim() != 2 or name is None or args or kwargs:
            return super().forward(x, *args, **kwargs)
        down, up = self.lora_A[name].weight, self.lora_B[name].weight
        dropout = self.lora_dropout[name]
        mask = dropout.mask if isinstance(dropout, KeyedDropout) else None
        whole = project(self.base_layer, x)
        output: Any = AddLowRank.apply(whole, x, down, up, self.scaling[name], mask)
        return output

    def _only_adapter(self) -> str | None:
        """The adapter's name, where one plain adapter is all there is, its dropout keyed or off."""
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return None
        name = self.active_adapters[0]
        dropout = self.lora_dropout[name]
        keyless = not isinstance(dropout, nn.Identity | KeyedDropout)
        dropping = keyless and dropout.training
        return None if dropping else name


class AddLowRank(torch.autograd.Function):
    """output (T, O) + scaling * x (T, D) A' (D, R) B' (R, O), into `output` itself.

    A mask drops numbers of x.
    """

    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        rows: Tensor,
        down_RD: Tensor,
        up_OR: Tensor,
        scaling: float,
        mask: Mask | None = None,
    ) -> Tensor:
        """The output, changed in place. Products are in its type."""
        dtype = output.dtype
        left = rows if mask is None else mask(rows)
        low_TR = left.to(dtype) @ down_RD.to(dtype).t()
        output.addmm_(low_TR, up_OR.to(dtype).t(), alpha=scaling)
        ctx.mark_dirty(output)
        ctx.save_for_backward(rows, low_TR, down_RD, up_OR)
        ctx.scaling, ctx.mask = scaling, mask
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of output, rows, A and B."""
        rows, low_TR, down_RD, up_OR = ctx.saved_tensors
        (grad,) = grads
        dtype = grad.dtype
        pull_TR = (grad @ up_OR.to(dtype)).mul_(ctx.scaling)
        grad_rows = None
        if ctx.needs_input_grad[1]:
            grad_rows = (pull_TR @ down_RD.to(dtype)).to(rows.dtype)
            grad_rows = grad_rows if ctx.mask is None else ctx.mask(grad_rows)
        left = rows if ctx.mask is None else ctx.mask(rows)
        grad_down = (pull_TR.t() @ left.to(dtype)).to(down_RD.dtype)
        grad_up = (grad.t() @ low_TR).mul_(ctx.scaling).to(up_OR.dtype)
        return grad, grad_rows, grad_down, grad_up, None, None


ALL_LINEAR = "all-linear"


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Hu et al., 2021: W + (alpha / rank) B A, A (rank, in) random and B (out, rank) 0 at first."""

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = (ALL_LINEAR,)
    """Names of linear layers, or the ends of their dotted names; `all-linear` is all of them but
    the output head."""
    dropout: float = 0.0
    """Share of each layer's input that its adapter does not see in training."""


def add_lora(model: PreTrainedModel, options: LoraOptions) -> tuple[PeftModel, list[str]]:
    """Freeze the model and put a fresh adapter on it.

    The adapter's A is drawn from torch's global generator. Returns the adapted model, which
    shares the weights of `model`, and the layers that the targets name.
    Raises InputError with the nearest names when a target matches nothing, and for what peft
    refuses.
    """
    layers = match_targets(model, options.targets)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=options.rank,
        lora_alpha=options.alpha,  # type: ignore[arg-type]
        lora_dropout=options.dropout,
        target_modules=layers,
    )
    config._register_custom_module({nn.Linear: PackedLora})
    try:
        with old_names_of_peft():
            adapted = get_peft_model(model, config)
    except Exception as error:
        problem = f"peft adds no adapter: {reason(error)}"
        fix = "name other targets, or train without an adapter"
        raise InputError(problem, field="adapt", fix=fix) from error
    assert isinstance(adapted, PeftModel)
    if options.dropout:
        for name, layer in adapted.named_modules():
            if isinstance(layer, PackedLora):
                layer.lora_dropout["default"] = KeyedDropout(options.dropout, name)
    return adapted, layers


def match_targets(model: PreTrainedModel, targets: tuple[str, ...]) -> list[str]:
    """The linear layers that the targets name, sorted; InputError when one names none."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    head = model.get_output_embeddings()
    out = set(left_out(model))
    body = tuple(n for n in linear if model.get_submodule(n) is not head and n not in out)
    matched = {
        target: body
        if target == ALL_LINEAR
        else tuple(name for name in linear if f".{name}".endswith(f".{target}"))
        for target in targets
    }
    for target, names in matched.items():
        if not names:
            ends = {name.rpartition(".")[2] for name in linear} | {ALL_LINEAR}
            problem = f"target {target!r} names no linear layer"
            raise InputError(problem, field="adapt.targets", fix=nearest(target, ends))
        if refused := sorted(out.intersection(names)):
            raise InputError(
                f"target {target!r} names {refused[0]}: its module computes with the weight alone",
                field="adapt.targets",
                fix=f"an adapter would have no effect; leave it out, as {ALL_LINEAR} does",
            )
        if head is model.get_submodule(names[0]) and model.config.tie_word_embeddings:
            problem = f"target {target!r} shares its weight with the embedding"
            fix = "merging would change the embedding too; leave the head out"
            raise InputError(problem, field="adapt.targets", fix=fix)
    return sorted({name for names in matched.values() for name in names})


def left_out(model: PreTrainedModel) -> tuple[str, ...]:
    """Linear layers whose module computes with their weight beside calling them, or in place of it:
    an adapter would have no effect there. Mamba's modules give some to a kernel."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return tuple(name for name in linear if reads_weight(model, *name.rpartition(".")[::2]))


source_of = functools.cache(inspect.getsource)
"""Python searches a whole module for a class, and a model has the same ones in every layer."""


def reads_weight(model: PreTrainedModel, owner: str, name: str) -> bool:
    """Whether the code of a module computes with the whole weight of a layer of its own."""
    code = source_of(type(model.get_submodule(owner)))
    # Bloom reads slices, only where it imitates tensor parallelism.
    return bool(re.search(rf"\bself\.{name}\.weight\b(?!\.(dtype|device|shape)|\[)", code))


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to a linear layer: scaling B A x."""

    down_RD: Tensor
    up_OR: Tensor
    scaling: float


def low_rank(layer: Any) -> LowRank:
    """The one adapter of a layer, detached."""
    (name,) = layer.active_adapters
    down_RD, up_OR = layer.lora_A[name].weight.detach(), layer.lora_B[name].weight.detach()
    return LowRank(down_RD, up_OR, layer.scaling[name])


def merged(model: PeftModel) -> PreTrainedModel:
    """The plain model with the adapter added into its weights; `model` is used up."""
    return model.merge_and_unload(safe_merge=True)
