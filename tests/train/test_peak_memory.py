"""The peak is that of the step, not of all that went before it."""

import mmap

import pytest
import torch

from assay.train import loop
from assay.train.loop import held_by_others, host_memory_mb, start_peak

SIZE = 96
"""MiB, far above what else a process may take between two lines."""


def touch() -> None:
    """Hold SIZE MiB and let them go, past any allocator that would keep them."""
    with mmap.mmap(-1, SIZE * 2**20) as held:
        for place in range(0, len(held), mmap.PAGESIZE):
            held[place] = 1


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Without what other tests started, which comes and goes."""
    monkeypatch.setattr(loop, "held_by_others", lambda look: 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="counts the GPU's memory")
def test_memory_that_a_step_gave_back_counts_for_that_step_alone():
    start_peak()
    before = host_memory_mb()
    touch()
    during = host_memory_mb()
    start_peak()
    after = host_memory_mb()
    assert during - before > 0.9 * SIZE
    assert during - after > 0.9 * SIZE


def test_other_processes_count_and_one_look_serves_for_seconds(monkeypatch):
    looks = [5 * 2**20, 7 * 2**20]
    monkeypatch.setattr(loop, "started_memory", looks.pop)
    assert [held_by_others(look) for look in (-1, -1, -2)] == [7 * 2**20] * 2 + [5 * 2**20]
    assert looks == []
    monkeypatch.setattr(loop, "held_by_others", lambda look: 0)
    alone = host_memory_mb()
    monkeypatch.setattr(loop, "held_by_others", lambda look: 2**30)
    assert host_memory_mb() - alone >= 1000
