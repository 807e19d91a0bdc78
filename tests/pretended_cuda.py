"""A GPU that is not there: tensors in main memory that are said to lie on `cuda:0`.

The storage of each tensor carries its device. Operations whose tensors lie on different devices
raise, as CUDA's do; so do what only a CPU can (`numpy`, oneDNN), attention where its compiled
kernel does, and, where a step is captured into a graph, whatever waits for the device. Kernels,
streams, memory and speed are not pretended.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from assay.models import attention
from assay.rollout.engines.cpu import decode

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
ANY = torch.device("meta")
"""Of what the formula of a derivative made: it goes where it meets others."""
TAG = "pretended_device"
COPIES = ("copy_", "_to_copy")
INDEXED = ("index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index")
"""Take indices from the CPU too."""
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2")
"""Bring something from the device."""

CAPTURING: list[bool] = []
"""Not empty while a step is being captured into a graph."""


def device_of(tensor: Tensor) -> torch.device:
    """Where a tensor is said to lie."""
    return getattr(tensor.untyped_storage(), TAG, CPU)


def put(tensor: Tensor, device: torch.device) -> Tensor:
    """Say that a tensor lies on the device."""
    if tensor.layout == torch.sparse_coo:
        put(tensor._indices(), device)
        put(tensor._values(), device)
    else:
        setattr(tensor.untyped_storage(), TAG, device)
    return tensor


def pieces(values: Any) -> Iterator[Tensor]:
    """All tensors in arguments, sparse ones by their parts."""
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor) and leaf.layout == torch.sparse_coo:
            yield from (leaf._indices(), leaf._values())
        elif isinstance(leaf, Tensor):
            yield leaf


def on_cuda(device: Any) -> bool:
    """Whether an argument names the GPU."""
    return device is not None and torch.device(device).type == "cuda"


class Devices(TorchDispatchMode):
    """Raises where the tensors of an operation lie on different devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation in main memory and say where its results lie."""
        kwargs = dict(kwargs or {})
        given, name = kwargs.get("device"), func.overloadpacket.__name__
        placed = [(piece, device_of(piece)) for piece in pieces((args, kwargs))]
        devices = {device for _, device in placed}
        target = next((d for d in (CUDA, CPU, ANY) if d in devices), CPU)
        check(func, name, args, placed, target)
        if given is not None:
            target = asked_for(given, name, target, placed)
            kwargs["device"] = CPU
        result = func(*args, **kwargs)
        old = {id(p.untyped_storage()) for p, device in placed if device != ANY}
        for piece in pieces(result):
            if id(piece.untyped_storage()) not in old:
                put(piece, target)
        return result


def asked_for(device: Any, name: str, others: torch.device, placed: Any) -> torch.device:
    """Where a new tensor goes. Formulas of derivatives name the device that tensors really have."""
    if on_cuda(device):
        return CUDA
    if name.startswith("new_") or name.endswith("_like") or name == "_to_copy":
        return others
    return ANY if not placed and by_a_formula() else CPU


def by_a_formula() -> bool:
    """Whether torch's own backward pass is running, and no function of Assay's in it."""
    frame = sys._getframe(1)
    while frame is not None and torch._C._current_graph_task_id() != -1:
        if frame.f_code.co_name == "_engine_run_backward":
            return True
        if "/assay/" in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return False


def check(func: Any, name: str, args: Any, placed: Any, target: torch.device) -> None:
    """Raise RuntimeError where CUDA would."""
    if target == CUDA and func.namespace == "mkldnn":
        raise RuntimeError(f"{func} got tensors of a GPU")
    if CAPTURING and target == CUDA and name in WAITS:
        raise RuntimeError(f"{func} waits for the device inside a captured step")
    if name in COPIES:
        if CAPTURING and len({device for _, device in placed} - {ANY}) > 1:
            raise RuntimeError(f"{func} moves between devices inside a captured step")
        return
    if name in INDEXED and target == CUDA:
        owner = next(pieces(args[0]))
        indices = {id(piece) for piece in pieces(args[1])}
        placed = [(p, d) for p, d in placed if id(p) not in indices or device_of(owner) != CUDA]
    apart = {device for piece, device in placed if piece.dim() or device == CUDA} - {ANY}
    if len(apart) > 1:
        shapes = [(tuple(piece.shape), str(device)) for piece, device in placed]
        raise RuntimeError(f"expected all tensors on one device: {func} got {shapes}")


class Move(torch.autograd.Function):
    """A tensor on another device; its gradient goes back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, device: torch.device) -> Tensor:
        """A copy."""
        ctx.device = device_of(values)
        return put(values.detach().clone(), device)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """A copy of the gradient."""
        return put(grads[0].clone(), ctx.device), None


def moved(values: Tensor, device: Any) -> Tensor:
    """`values` where it is on the device, else a copy there."""
    target = CUDA if on_cuda(device) else CPU
    result: Any = values if device_of(values) == target else Move.apply(values, target)
    return result


def pretended_to(real: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`Tensor.to`."""

    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        device = next((a for a in args if isinstance(a, str | torch.device)), None)
        dtype = next((a for a in args if isinstance(a, torch.dtype)), kwargs.get("dtype"))
        device = kwargs.get("device", device)
        if args and isinstance(args[0], Tensor):
            device, dtype = device_of(args[0]), args[0].dtype
        values = self if device is None else moved(self, device)
        return values if dtype is None else real(values, dtype)

    return to


def placed_by(real: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.tensor` and its like: on the device that is named."""

    def make(values: Any, *args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        made = real(values, *args, **kwargs)
        return made if device is None else moved(made, device)

    return make


def numpy(real: Callable[..., Any]) -> Callable[..., Any]:
    """`Tensor.numpy`, which reads main memory."""

    def as_numpy(self: Tensor, **kwargs: Any) -> Any:
        if device_of(self) == CUDA:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return real(self, **kwargs)

    return as_numpy


def on_main_memory(kind: Any) -> str:
    """The device type that autocast is asked for here."""
    return CPU.type if on_cuda(kind) else kind


def masked_attention(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """FlexAttention's kernel by its own mask function, all scores at once."""
    mask, scale = options["block_mask"], options["scale"]
    if query.shape[2] < 128 and not options["kernel_options"].get("FORCE_USE_FLEX_ATTENTION"):
        raise RuntimeError("NoValidChoicesError: the kernel for decoding has no block size")
    for piece in (query, key, value, *(t for t in mask.as_tuple() if isinstance(t, Tensor))):
        if device_of(piece) != CUDA:
            raise RuntimeError("attention's tensors are not on the GPU")
    places = torch.arange(query.shape[2], device=CUDA)
    none = torch.zeros((), dtype=torch.long, device=CUDA)
    seen = mask.mask_mod(none, none, places[:, None], places[None])
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scores = (query @ key.transpose(2, 3) * scale).masked_fill(~seen, float("-inf"))
    result = scores.softmax(dim=-1).to(value.dtype) @ value
    if result.requires_grad:
        ordered = torch.are_deterministic_algorithms_enabled()
        result.register_hook(lambda _: same_order(ordered))
    return result


def same_order(forward: bool) -> None:
    """Raise RuntimeError as a compiled backward pass does (AOTAutograd's `runtime_wrappers.py`)."""
    if torch.are_deterministic_algorithms_enabled() and not forward:
        raise RuntimeError("the backward function was generated without deterministic algorithms")


def lower_right(queries: int, keys: int) -> Tensor:
    """`causal_lower_right` as a plain mask: the last queries of so many keys."""
    seen = torch.ones(queries, keys, dtype=torch.bool, device=CUDA)
    return seen.tril(diagonal=keys - queries)


def checked_capture(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """`decode.captured` without a graph: nothing in the step may wait for the device."""

    def run() -> Tensor:
        CAPTURING.append(True)
        try:
            return step()
        finally:
            CAPTURING.pop()

    return run


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """Inside, `cuda` can be named as a device."""
    real = torch.Tensor
    autocast, asked, kind = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype
    changes: dict[str, Any] = {
        "device": property(device_of),
        "is_cuda": property(lambda self: device_of(self) == CUDA),
        "is_cpu": property(lambda self: device_of(self) == CPU),
        "to": pretended_to(real.to),
        "cpu": lambda self: moved(self, CPU),
        "cuda": lambda self: moved(self, CUDA),
        "numpy": numpy(real.numpy),
        "pin_memory": lambda self: self,
        "new_tensor": lambda self, values, **more: torch.tensor(
            values, dtype=more.get("dtype", self.dtype), device=self.device
        ),
    }
    names: dict[tuple[Any, str], Any] = {
        (torch, "tensor"): placed_by(torch.tensor),
        (torch, "as_tensor"): placed_by(torch.as_tensor),
        (torch, "Generator"): lambda device=None, real=torch.Generator: real(),
        (torch, "autocast"): lambda kind, *rest, **more: autocast(
            on_main_memory(kind), *rest, **more
        ),
        (torch, "is_autocast_enabled"): lambda kind: asked(on_main_memory(kind)),
        (torch, "get_autocast_dtype"): lambda on: kind(on_main_memory(on)),
        (torch.cuda, "_lazy_init"): lambda: None,
        (torch.cuda, "is_available"): lambda: True,
        (torch.cuda, "device_count"): lambda: 1,
        (torch.cuda, "get_device_name"): lambda *_: "pretended",
        (torch.cuda, "is_bf16_supported"): lambda **_: True,
        (torch.cuda, "mem_get_info"): lambda *_: (8 << 30, 8 << 30),
        (torch.cuda, "reset_peak_memory_stats"): lambda *_: None,
        (torch.cuda, "max_memory_allocated"): lambda *_: 1 << 20,
        (attention, "compiled_attention"): lambda: masked_attention,
        (attention, "causal_lower_right"): lower_right,
        (decode, "captured"): checked_capture,
    }
    patches = [patch.object(real, name, value, create=True) for name, value in changes.items()]
    patches += [patch.object(owner, name, value) for (owner, name), value in names.items()]
    for each in patches:
        each.start()
    try:
        with Devices():
            yield
    finally:
        for each in reversed(patches):
            each.stop()
