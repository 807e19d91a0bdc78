"""The peak is that of the step, not of all that went before it."""

import mmap

import pytest
import torch

from assay.train import loop
from assay.train.loop import held_by_others, peak_memory_mb, start_peak

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
    before = peak_memory_mb()
    touch()
    during = peak_memory_mb()
    start_peak()
    after = peak_memory_mb()
    assert during - before > 0.9 * SIZE
    assert during - after > 0.9 * SIZE


@pytest.mark.skipif(torch.cuda.is_available(), reason="counts the GPU's memory")
def test_where_the_peak_cannot_start_again_it_is_the_process_peak(tmp_path, monkeypatch):
    touch()
    monkeypatch.setattr(loop, "STATUS", tmp_path / "no" / "status")
    monkeypatch.setattr(loop, "CLEAR", tmp_path / "no" / "clear_refs")
    start_peak()
    first = peak_memory_mb()
    touch()
    assert first > SIZE
    assert peak_memory_mb() >= first


def test_the_gpu_counts_its_own_memory(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: calls.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**20)
    start_peak()
    assert (calls, peak_memory_mb()) == (["reset"], 3.0)


def test_other_processes_count_and_one_look_serves_for_seconds(monkeypatch):
    looks = [5 * 2**20, 7 * 2**20]
    monkeypatch.setattr(loop, "started_memory", looks.pop)
    assert [held_by_others(look) for look in (-1, -1, -2)] == [7 * 2**20] * 2 + [5 * 2**20]
    assert looks == []
    monkeypatch.setattr(loop, "held_by_others", lambda look: 0)
    alone = peak_memory_mb()
    monkeypatch.setattr(loop, "held_by_others", lambda look: 2**30)
    assert peak_memory_mb() - alone >= 1000
