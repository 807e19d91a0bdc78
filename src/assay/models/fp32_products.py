"""Keeps in fp32, under autocast, the products that Transformers' own code computes in fp32.

A model in bf16 casts the operands of some products up (`F.linear(x.float(), weight.float())` in a
router), which autocast casts down again. Which products those are is tried, not looked up: the
model writes two tokens with its weights in bf16, and a product whose operands are all fp32 is one.
It is known by its module and the line of code that asks for it. Models without any stay as they
are, and so do those where nothing is computed in bf16.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

PRODUCTS = frozenset(
    (
        *("linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "addmm", "baddbmm"),
        *("einsum", "conv1d", "conv2d", "scaled_dot_product_attention"),
    )
)
"""Names of what autocast computes in its own type."""
WRAPPERS = ("torch.functional", "torch.overrides")
"""Modules of torch that call a product for the line that asked for it."""
PROMPT = 8
"""Tokens that a model reads when it is tried."""

Line = tuple[str, int]


def asked_by(frame: FrameType | None) -> FrameType | None:
    """The frame that asks for a product, from that which calls it."""
    while frame is not None and frame.f_globals.get("__name__") in WRAPPERS:
        frame = frame.f_back
    return frame


def line_of(frame: FrameType | None) -> Line:
    """File and line."""
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def module_of(frame: FrameType | None) -> nn.Module | None:
    """The innermost module that is at work in a frame."""
    while frame is not None:
        if isinstance(owner := frame.f_locals.get("self"), nn.Module):
            return owner
        frame = frame.f_back
    return None


class Noted(TorchFunctionMode):
    """Inside, the products whose operands are all fp32 are noted, by module."""

    def __init__(self) -> None:
        """Nothing is noted yet."""
        super().__init__()
        self.lines: dict[nn.Module, set[Line]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute as without it."""
        if func.__name__ in PRODUCTS and in_fp32(args):
            frame = asked_by(sys._getframe(1))
            module = module_of(frame)
            # Rotary angles have no weights, and Transformers computes them outside autocast.
            if module is not None and any(True for _ in module.parameters()):
                self.lines.setdefault(module, set()).add(line_of(frame))
        return func(*args, **(kwargs or {}))


def in_fp32(args: Any) -> bool:
    """Whether the tensors among a product's operands are numbers in fp32."""
    flat = [one for arg in args for one in (arg if isinstance(arg, list | tuple) else [arg])]
    return {one.dtype for one in flat if isinstance(one, Tensor)} == {torch.float32}


class InFp32(TorchFunctionMode):
    """Inside, products that one of some lines asks for are computed without autocast."""

    def __init__(self, lines: frozenset[Line]):
        """`lines` of the module that it is entered for."""
        super().__init__()
        self.lines = lines

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute in the type of the operands, or as without it."""
        if func.__name__ in PRODUCTS and line_of(asked_by(sys._getframe(1))) in self.lines:
            device = next(arg.device.type for arg in args if isinstance(arg, Tensor))
            with torch.autocast(device, enabled=False):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def fp32_products(causal: Any) -> Mapping[nn.Module, set[Line]]:
    """The lines of each module that ask for a product in fp32 where the weights are bf16."""
    noted = Noted()
    vocabulary = causal.config.get_text_config().vocab_size
    ids_1T = torch.arange(PROMPT, device=causal.device)[None] * 7 % vocabulary
    two = {"attention_mask": torch.ones_like(ids_1T), "min_new_tokens": 2, "max_new_tokens": 2}
    with weights_in_bf16(causal), torch.no_grad(), noted:
        # Writing a token takes other lines than reading a prompt.
        if works(causal, ids_1T):
            works(partial(causal.generate, do_sample=False, **two), ids_1T)
    return noted.lines


def works(ask: Callable[..., Any], ids_1T: Tensor) -> bool:
    """Whether a model does something with weights in bf16. One that fails at it has said until then
    what it asks for, and may work all the same under autocast, where no operand keeps its type."""
    try:
        ask(input_ids=ids_1T)
    except Exception:
        return False
    return True


@contextmanager
def weights_in_bf16(causal: Any) -> Iterator[None]:
    """Inside, weights are what `from_pretrained(dtype=torch.bfloat16)` makes of them."""
    kept = tuple(causal._keep_in_fp32_modules_strict or ())
    before = {p: p.data for n, p in causal.named_parameters() if not any(k in n for k in kept)}
    try:
        for parameter, values in before.items():
            parameter.data = values.bfloat16()
        yield
    finally:
        for parameter, values in before.items():
            parameter.data = values


def keep_fp32_products(causal: Any) -> None:
    """Let a model compute under autocast in fp32 what it computes in fp32 with bf16 weights.

    Its weights take half as much memory again for that long.
    """
    for module, lines in fp32_products(causal).items():
        mode = InFp32(frozenset(lines))
        module.register_forward_pre_hook(partial(begin, mode))
        module.register_forward_hook(partial(end, mode), always_call=True)


def begin(mode: InFp32, *_: Any) -> None:
    """Before a module's forward."""
    mode.__enter__()


def end(mode: InFp32, *_: Any) -> None:
    """After it, and where it failed."""
    mode.__exit__(None, None, None)
