"""The decoding step of a GPU, its shapes fixed, computes what a CPU's step computes.

The capture itself needs a GPU and is not run here; `prepare` stands in for it: it runs the step
once before it is used, as a capture does, and insists on inputs at fixed addresses.
"""

from collections.abc import Callable

import pytest
from torch import Tensor

from assay.models.inference import InferenceModel
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu import decode, sampler
from assay.rollout.engines.cpu import kv_cache as rollout_cache
from assay.rollout.engines.cpu.decode import LEAST_COLUMNS, StaticDecode
from assay.rollout.engines.cpu.kv_cache import positions_read
from assay.rollout.engines.cpu.sampler import LocalSampler
from tests.exact import exact_model
from tests.few import few
from tests.tiny import FAMILIES, tiny_model

ENDS = frozenset({7, 8, 9, 10})
PROMPTS = [tuple(range(5, 25)), tuple(range(3, 10)), tuple(range(100, 130)), (4,)]
GROUPS = (8, 1, 5, 3)


def requests() -> tuple[list[tuple[int, ...]], list[SampleKey]]:
    wanted = [(r, g) for r, size in enumerate(GROUPS) for g in range(size)]
    return [PROMPTS[r] for r, _ in wanted], [SampleKey(3, str(r), g) for r, g in wanted]


class Captures:
    """Makes decoders with fixed shapes and counts the steps they prepare."""

    def __init__(self) -> None:
        self.prepared = 0

    def decoder(self, model: InferenceModel) -> StaticDecode:
        return StaticDecode(model, self.prepare)

    def prepare(self, step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.prepared += 1
        step()
        return step


@few("family", sorted(FAMILIES), fast=1)
def test_fixed_shapes_draw_what_living_rows_alone_draw(family, monkeypatch):
    module = exact_model(family, False).double()
    contexts, keys = requests()
    living = LocalSampler(module, ENDS).sample(contexts, keys, Sampling(1.0, 100))
    assert len({len(turn.actions) for turn in living}) > 5, "rows must finish at different times"
    captures = Captures()
    monkeypatch.setattr(sampler, "decoder", captures.decoder)
    monkeypatch.setattr(sampler, "ROWS", 8)  # some groups wait for the slots of others
    fixed = LocalSampler(module, ENDS).sample(contexts, keys, Sampling(1.0, 100))
    assert [turn.actions for turn in fixed] == [turn.actions for turn in living]
    for one, other in zip(fixed, living, strict=True):
        assert one.behaviour_logps == pytest.approx(other.behaviour_logps, abs=1e-9)
    assert captures.prepared >= 2, "the cache shrank, so a step for other tensors was needed"


def test_one_step_serves_many_tokens(monkeypatch):
    captures = Captures()
    monkeypatch.setattr(sampler, "decoder", captures.decoder)
    keys = [SampleKey(3, "0", sample) for sample in range(8)]
    tokens = 3 * LEAST_COLUMNS
    LocalSampler(tiny_model(), frozenset()).sample([PROMPTS[0]] * 8, keys, Sampling(1.0, tokens))
    assert captures.prepared == 3, "one each for 64, 128 and all 192 columns"


@few("family", sorted(FAMILIES), fast=1)
def test_positions_read_in_vain_and_copied_parts_change_nothing(family, monkeypatch):
    module = exact_model(family, False).double()
    contexts, keys = requests()
    plain = LocalSampler(module, ENDS).sample(contexts, keys, Sampling(1.0, 100))
    reads: list[tuple[int, int, int]] = []

    def watched(held: Tensor, wanted: int) -> int:
        reads.append((held.shape[2], wanted, positions_read(held, wanted)))
        return reads[-1][2]

    monkeypatch.setattr(rollout_cache, "copied_in_part", lambda held: True)
    monkeypatch.setattr(decode, "positions_read", watched)
    found = LocalSampler(module, ENDS).sample(contexts, keys, Sampling(1.0, 100))
    assert any(wanted < read for _, wanted, read in reads), "no position was read in vain"
    assert any(read < whole for whole, _, read in reads), "no part was copied"
    assert [turn.actions for turn in found] == [turn.actions for turn in plain]
    for one, other in zip(found, plain, strict=True):
        assert one.behaviour_logps == pytest.approx(other.behaviour_logps, abs=1e-9)
