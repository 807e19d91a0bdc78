"""The plain path: log-probs of any causal language model through Transformers' own forward.

Sequences are padded to batches, each prompt as often as it has completions; nothing is packed, so
it is slower than `scoring`, which takes few families. Before a model is used, `refuse_unfaithful`
shows that it reads no later token and answers in a batch as it does alone. Sampling is in
`rollout.engines.plain_sampler`.

R rows of a batch, T tokens of its longest row, S actions, V vocabulary.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from assay.errors import InputError
from assay.models.matmul import widened
from assay.models.scoring import Chain, Moments, find_chains, moments_of
from assay.models.supported import reason

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

    def begin(self, *_: Any) -> None:
        """Before the module's forward."""
        self.__enter__()

    def end(self, *_: Any) -> None:
        """After it."""
        self.__exit__(None, None, None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute in the type of the operands, or as without it."""
        if func.__name__ in PRODUCTS and line_of(asked_by(sys._getframe(1))) in self.lines:
            device = next(arg.device.type for arg in args if isinstance(arg, Tensor))
            with torch.autocast(device, enabled=False):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


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
    noted = Noted()
    vocabulary = causal.config.get_text_config().vocab_size
    ids_1T = torch.arange(PROMPT, device=causal.device)[None] * 7 % vocabulary
    two = {"attention_mask": torch.ones_like(ids_1T), "min_new_tokens": 2, "max_new_tokens": 2}
    with weights_in_bf16(causal), torch.no_grad(), noted:
        # Writing a token takes other lines than reading a prompt.
        if works(causal, ids_1T):
            works(partial(causal.generate, do_sample=False, **two), ids_1T)
    for module, lines in noted.lines.items():
        mode = InFp32(frozenset(lines))
        module.register_forward_pre_hook(mode.begin)
        # Also where it failed.
        module.register_forward_hook(mode.end, always_call=True)


BATCH_TOKENS = 2048
"""Tokens of a batch, padding included, unless a single sequence is longer."""
LOGITS_BYTES = 256 << 20
"""Scores over the vocabulary of one batch, unless a single sequence needs more."""


def causal_of(module: nn.Module) -> Any:
    """The causal language model, which may be under an adapter."""
    return module.get_base_model() if isinstance(module, PeftModel) else module


def keep_only_adapter_dropout(module: nn.Module) -> None:
    """Set the model to evaluation mode, so that its own dropout does nothing, but not adapters'.

    Ratios of log-probs between rollout and training would else be those of two models.
    """
    module.eval()
    for part in module.modules():
        if isinstance(part, LoraLayer):
            cast(Any, part).lora_dropout.train()


@dataclass(frozen=True)
class PaddedBatch:
    """Chains of turns that run together, and where their actions are predicted."""

    ids_RT: Tensor
    """Padded on the right: no real token sees the padding."""
    mask_RT: Tensor
    first: int
    """The first position whose scores are needed."""
    row_S: Tensor
    place_S: Tensor
    """The position that predicts each action, counted from `first`."""
    order_S: Tensor
    """Each action's index among the caller's."""


def score_padded(
    model: nn.Module,
    contexts: Sequence[tuple[int, ...]],
    actions_S: Tensor,
    offsets_N1: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What `scoring.score_actions` gives, for any model: log-probs (S) and entropies (S) if
    asked."""

    def read(causal: Any, batch: PaddedBatch, logits_RKV: Tensor) -> tuple[Tensor, ...]:
        actions = actions_S[batch.order_S].to(causal.device)
        scores_SV = widened(logits_RKV[batch.row_S, batch.place_S]) / temperature
        table_SV = scores_SV.log_softmax(dim=-1)
        logps_S = table_SV.gather(1, actions[:, None])[:, 0]
        return (logps_S, -(table_SV.exp() * table_SV).sum(dim=-1)) if entropy else (logps_S,)

    logps_S, *entropies = read_padded(model, contexts, actions_S, offsets_N1, read)
    return logps_S, entropies[0] if entropy else None


def padded_moments(
    model: nn.Module,
    contexts: Sequence[tuple[int, ...]],
    actions_S: Tensor,
    offsets_N1: Tensor,
    temperature: float = 1.0,
) -> Moments:
    """What `scoring.score_moments` gives, for any model."""

    def read(causal: Any, batch: PaddedBatch, logits_RKV: Tensor) -> Moments:
        actions_B = actions_S[batch.order_S].to(causal.device)
        return moments_of(widened(logits_RKV[batch.row_S, batch.place_S]) / temperature, actions_B)

    with torch.no_grad():
        return tuple(read_padded(model, contexts, actions_S, offsets_N1, read))


Read = Callable[[Any, "PaddedBatch", Tensor], tuple[Tensor, ...]]
"""Tensors over a batch's actions, of the model, the batch and its scores (R, T - first, V)."""


def read_padded(
    model: nn.Module,
    contexts: Sequence[tuple[int, ...]],
    actions_S: Tensor,
    offsets_N1: Tensor,
    read: Read,
) -> list[Tensor]:
    """What `read` gives of all batches, in the caller's order of actions.

    Of several batches each is computed again in the backward pass, so that memory holds one.
    """
    causal = causal_of(model)
    batches = padded_batches(causal, contexts, actions_S, offsets_N1)

    def compute(batch: PaddedBatch) -> tuple[Tensor, ...]:
        logits_RKV = logits_from(causal, batch.ids_RT, batch.mask_RT, batch.first)
        return read(causal, batch, logits_RKV)

    again = len(batches) > 1 and torch.is_grad_enabled()
    logits = [
        cast(Any, checkpoint(compute, batch, use_reentrant=False)) if again else compute(batch)
        for batch in batches
    ]
    # The inverse permutation, back to the caller's order.
    back_S = torch.cat([batch.order_S for batch in batches]).argsort().to(causal.device)
    return [torch.cat(parts)[back_S] for parts in zip(*logits, strict=True)]


def padded_batches(
    causal: Any, contexts: Sequence[tuple[int, ...]], actions_S: Tensor, offsets_N1: Tensor
) -> list[PaddedBatch]:
    """Batches of about equal sequences; turns that extend each other are one sequence."""
    spans = list(pairwise(offsets_N1.tolist()))
    whole = actions_S.tolist()
    chains = find_chains(contexts, [tuple(whole[first:stop]) for first, stop in spans])
    chains.sort(key=lambda chain: (len(contexts[chain.turns[0]]), len(chain.tokens)))
    vocabulary = causal.config.get_text_config().vocab_size
    groups: list[list[Chain]] = []
    for chain in chains:
        group = [*groups[-1], chain] if groups else [chain]
        longest = max(len(one.tokens) for one in group)
        read = longest - len(contexts[group[0].turns[0]]) + 1
        fits = len(group) * longest <= BATCH_TOKENS
        fits = fits and 4 * len(group) * read * vocabulary <= LOGITS_BYTES
        if groups and fits:
            groups[-1] = group
        else:
            groups.append([chain])
    return [pad(group, contexts, spans, causal.device) for group in groups]


def pad(
    chains: Sequence[Chain],
    contexts: Sequence[tuple[int, ...]],
    spans: Sequence[tuple[int, int]],
    device: torch.device,
) -> PaddedBatch:
    """One batch of chains, turn n of which owns the actions of `spans[n]`."""
    longest = max(len(chain.tokens) for chain in chains)
    first = min(len(contexts[chain.turns[0]]) for chain in chains) - 1
    row, place, order = [], [], []
    for number, chain in enumerate(chains):
        for n in chain.turns:
            begin, stop = spans[n]
            row += [number] * (stop - begin)
            # The token before an action predicts it.
            before = len(contexts[n]) - 1 - first
            place += range(before, before + stop - begin)
            order += range(begin, stop)
    ids = [[*chain.tokens, *[0] * (longest - len(chain.tokens))] for chain in chains]
    mask = [[1] * len(c.tokens) + [0] * (longest - len(c.tokens)) for c in chains]
    return PaddedBatch(
        ids_RT=torch.tensor(ids, device=device),
        mask_RT=torch.tensor(mask, device=device),
        first=first,
        row_S=torch.tensor(row, dtype=torch.long, device=device),
        place_S=torch.tensor(place, dtype=torch.long, device=device),
        order_S=torch.tensor(order, dtype=torch.long),
    )


def logits_from(causal: Any, ids_RT: Tensor, mask_RT: Tensor | None, first: int) -> Tensor:
    """Scores (R, T - first, V) at the positions from `first`; without a mask all tokens are real.

    Models that cannot be asked for some positions compute all.
    """
    inputs: dict[str, Any] = {"input_ids": ids_RT}
    takes = inspect.signature(causal.forward).parameters
    if mask_RT is not None and "attention_mask" in takes:
        inputs["attention_mask"] = mask_RT
    if "use_cache" in takes:
        inputs["use_cache"] = False
    if "logits_to_keep" not in takes:
        return causal(**inputs, return_dict=True).logits[:, first:]
    kept = torch.arange(first, ids_RT.shape[1], device=ids_RT.device)
    return causal(**inputs, logits_to_keep=kept, return_dict=True).logits


PROBED = 8
"""Tokens of the longer of two sequences that a model is tried with."""
ALIKE = 1e-3
"""Logits count as equal when they differ by less than this share of their spread; fp32 rounding
stays below 1e-5, and a model that is tried is in fp32 or wider."""


def probe_tokens(causal: Any, count: int) -> Tensor:
    """Some token ids (count), none of them a special one by its place at the ends."""
    vocabulary = causal.config.get_text_config().vocab_size
    return (torch.arange(count, device=causal.device) * 7 + vocabulary // 3) % vocabulary


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether logits are equal but for rounding."""
    allowed = ALIKE * float(other.std()) + 1e-6
    return float((one - other).abs().max()) <= allowed


def refuse_unfaithful(model: nn.Module, file: Path) -> None:
    """Raise InputError where a model's forward does not work on text alone, where it reads
    later tokens, or where a padded row is computed otherwise than a single one.
    """
    causal = causal_of(model)
    ids_T = probe_tokens(causal, PROBED)
    half = PROBED // 2
    together = torch.stack([torch.cat([ids_T[:half], ids_T.new_zeros(half)]), ids_T])
    mask = torch.ones_like(together)
    mask[0, half:] = 0
    try:
        with torch.no_grad():
            alone = logits_from(causal, ids_T[None, :half], None, 0)[0]
            longer = logits_from(causal, ids_T[None], None, 0)[0]
            padded = logits_from(causal, together, mask, 0)
    except Exception as error:
        problem = f"Transformers' forward of {type(causal).__name__} fails on text: {reason(error)}"
        raise InputError(problem, file=file, fix="use another model") from error
    if not alike(longer[:half], alone):
        problem = f"{type(causal).__name__} reads later tokens, so it cannot write one by one"
        raise InputError(problem, file=file, fix="use a causal language model")
    if not (alike(padded[0, :half], alone) and alike(padded[1], longer)):
        problem = f"{type(causal).__name__} computes a row of a batch otherwise than alone"
        raise InputError(problem, file=file, fix="use another model")


def score_plainly(
    model: nn.Module,
    contexts: Sequence[tuple[int, ...]],
    actions_S: Tensor,
    offsets_N1: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What `scoring.score_actions` gives, sequence by sequence: log-probs (S) and entropies (S).

    `model` may be under an adapter and in any dtype. Gradients flow.
    """
    logps, entropies = [], []
    for context, (first, stop) in zip(contexts, pairwise(offsets_N1.tolist()), strict=True):
        actions_C = actions_S[first:stop].to(next(model.parameters()).device)
        ids_T = torch.cat([actions_C.new_tensor(context), actions_C])
        logits_1KV = logits_from(causal_of(model), ids_T[None], None, len(context) - 1)
        table_CV = (widened(logits_1KV[0, :-1]) / temperature).log_softmax(dim=-1)
        logps.append(table_CV.gather(1, actions_C[:, None])[:, 0])
        if entropy:
            entropies.append(-(table_CV.exp() * table_CV).sum(dim=-1))
    return torch.cat(logps), torch.cat(entropies) if entropy else None
