"""Ranks that hold a part of the weights, gradients and moments each: FSDP2 (`fully_shard`).

Each decoder layer, and what is around them, gathers its weights when it is computed and lets them
go. Assay's layers are computed by functions of their own, which become the modules' forward, so
that FSDP's hooks run (`models.layers.computes`). Gradients are summed, never averaged. Every rank
must compute equally many micro-batches, since each gathers. For sampling and for files the weights
are put together.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.utils import get_total_norm

from assay.data.episode import Turn
from assay.errors import InputError
from assay.models.layers import computes, kept_layer
from assay.models.lora import put_masks
from assay.models.plain_forward import causal_of
from assay.models.scoring import score_row
from assay.models.supported import why_plain
from assay.train.ranks import GradientCall, Marks, Member, RankedPolicy, SampleCall
from assay.train.update import Totals, add_gradients, trainable


def shard(module: nn.Module, mesh: DeviceMesh) -> None:
    """Leave a part of the weights on each rank, by layer."""
    causal: Any = causal_of(module)
    for layer in causal.base_model.layers:
        computes(layer, kept_layer)
        fully_shard(layer, mesh=mesh)
    computes(causal, score_row)
    fully_shard(causal, mesh=mesh, reshard_after_forward=True)
    for part in causal.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            # Else a factor is a reduction of nccl's own, which gloo has not.
            part.set_force_sum_reduction_for_comms(True)


@contextmanager
def whole(module: nn.Module) -> Iterator[None]:
    """Inside, the module is as if it had never been sharded, its weights put together; for all
    ranks at once. Nothing of it may be kept: another update does not change them."""
    sharded = [part for part in module.modules() if isinstance(part, FSDPModule)]
    kept: list[tuple[dict[str, Any], str, DTensor]] = []
    made: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, weight in part._parameters.items():
            if isinstance(weight, DTensor):
                kept.append((part._parameters, name, weight))
                if id(weight) not in made:
                    made[id(weight)] = nn.Parameter(weight.full_tensor(), weight.requires_grad)
    classes: list[type] = [type(part) for part in sharded]
    for part, kind in zip(sharded, classes, strict=True):
        # `fully_shard` derives a class from FSDPModule and the module's own, which a file names.
        part.__class__ = kind.__bases__[1]
    for parameters, name, weight in kept:
        parameters[name] = made[id(weight)]
    try:
        yield
    finally:
        for parameters, name, weight in kept:
            parameters[name] = weight
        for part, kind in zip(sharded, classes, strict=True):
            part.__class__ = kind


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@dataclass
class ShardedMember(Member):
    """See `ranks.Member`."""

    sharded: ClassVar[bool] = True
    _put_together: ExitStack | None = field(default=None, init=False)
    """While conversations are open: what takes the weights apart again."""

    def begin(self, state: Mapping[str, Any]) -> Marks:
        """As a member with all weights; then these, and the moments, are sharded. Raises
        InputError."""
        module, whole_optimizer = self.policy.module, self.optimizer
        problem = ""
        if getattr(module, "config", None) is None:
            problem = "only language models are sharded"
        elif why := why_plain(causal_of(module).config):
            problem = f"a model on the plain path is not sharded: {why}"
        elif type(whole_optimizer) is not torch.optim.AdamW:
            problem = "8-bit moments are not sharded"
        if problem:
            raise InputError(problem, field="engine.sharded", fix="remove it, or set it to false")
        reply = super().begin(state)
        names = {weight: name for name, weight in module.named_parameters()}
        groups = [[names[p] for p in group["params"]] for group in whole_optimizer.param_groups]
        kept = whole_optimizer.state_dict()
        device = next(module.parameters()).device.type
        mesh = init_device_mesh(device, (self.team.size,))
        shard(module, mesh)
        frozen = getattr(self.policy, "frozen", None)
        if frozen is not None:
            shard(frozen, mesh)
        named = dict(module.named_parameters())
        sides = [{"params": [named[name] for name in group]} for group in groups]
        self.optimizer = torch.optim.AdamW(sides)
        moments = {
            n: {key: taken_apart(value, mesh) for key, value in slot.items()}
            for n, slot in kept["state"].items()
        }
        self.optimizer.load_state_dict({**kept, "state": moments})
        return reply

    def sample(self, call: SampleCall) -> list[Turn]:
        """See `Member`; the weights are put together for it."""
        if self._put_together is not None:
            return super().sample(call)
        with whole(self.policy.module):
            try:
                return super().sample(call)
            finally:
                self._forget()

    def open_conversations(self, _: None) -> int | None:
        """See `Member`."""
        self._put_together = ExitStack()
        self._put_together.enter_context(whole(self.policy.module))
        return super().open_conversations(None)

    def close_conversations(self, _: None) -> None:
        """See `Member`."""
        super().close_conversations(None)
        self._forget()
        assert self._put_together is not None
        self._put_together.close()
        self._put_together = None

    def _forget(self) -> None:
        """Let the sampler's copy of the weights go."""
        sampling: Any = self.policy
        sampling.sampler.sleep()

    def gradients(self, call: GradientCall) -> tuple[Totals, Tensor]:
        """See `Member`; the norm is that of the part which this rank holds."""
        put_masks(self.policy.module, call.place)
        totals = add_gradients(self.policy, call.micros, call.objective)
        for packed in call.idle:
            logps_S = self.policy.score(packed).logps_S
            logps_S.backward(torch.zeros_like(logps_S))
        return totals, get_total_norm(self.grads()).cpu()

    def grads(self) -> list[Tensor]:
        """See `Member`."""
        return [local(p.grad) for p in trainable(self.policy.module) if p.grad is not None]

    def whole_norm(self, norms: Sequence[Tensor]) -> Tensor:
        """See `Member`."""
        return torch.stack([*norms]).norm()

    def marks(self) -> Marks:
        """None: every number is on one rank alone."""
        return {}

    def save(self, folder: Path | None) -> None:
        """See `Member`; the weights are put together for it."""
        with whole(self.policy.module):
            super().save(folder)

    def moments(self, _: None) -> dict[str, Any] | None:
        """The optimizer's state as one process has it, on rank 0."""
        kept = self.optimizer.state_dict()
        slots = {
            n: {key: put_together(value) for key, value in slot.items()}
            for n, slot in kept["state"].items()
        }
        return {**kept, "state": slots} if self.team.rank == 0 else None


def taken_apart(value: Any, mesh: DeviceMesh) -> Any:
    """This rank's part of a tensor of the optimizer's state; the number of steps is whole."""
    if not torch.is_tensor(value) or not value.dim():
        return value
    return distribute_tensor(value, mesh, [Shard(0)])


def put_together(value: Any) -> Any:
    """The whole tensor."""
    return value.full_tensor() if isinstance(value, DTensor) else value


@dataclass
class ShardedOptimizer:
    """Rank 0's view of the optimizers of all ranks, as a checkpoint and the loop read it."""

    policy: RankedPolicy

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """This rank's, whose rates hold for all."""
        return self.policy.member.optimizer.param_groups

    @property
    def state(self) -> Mapping[Any, Any]:
        """The moments, which know their whole sizes."""
        return self.policy.member.optimizer.state

    def state_dict(self) -> dict[str, Any]:
        """Put together from all ranks."""
        return self.policy.call("moments", [None] * self.policy.team.size)[0]
