"""A checkpoint is complete or absent, is never overwritten, and restores everything."""

import shutil
from collections import namedtuple

import pytest
import torch

from assay.models.state import StateDictMismatch
from assay.train import checkpoint
from assay.train.checkpoint import (
    CheckpointDamaged,
    CheckpointExists,
    DiskFull,
    load_checkpoint,
    save_checkpoint,
    steps_in,
)
from assay.train.state import TrainState
from tests.train.toys import CandidatePolicy


def trained(seed: int = 0) -> tuple[CandidatePolicy, torch.optim.Optimizer]:
    policy = CandidatePolicy(seed)
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=0.1)
    for _ in range(3):
        policy.weight.square().sum().backward()
        optimizer.step()
    return policy, optimizer


def test_weights_moments_randomness_and_counters_come_back(tmp_path):
    policy, optimizer = trained()
    folder = save_checkpoint(tmp_path, policy, optimizer, TrainState(7, 28, 1))
    drawn = torch.rand(3)
    other, fresh = trained(seed=5)
    assert not torch.equal(other.weight, policy.weight)
    state = load_checkpoint(folder, other, fresh)
    assert state == TrainState(7, 28, 1)
    assert torch.equal(other.weight, policy.weight)
    assert str(fresh.state_dict()) == str(optimizer.state_dict())
    assert torch.equal(torch.rand(3), drawn)
    assert other.version == 1, "the sampler must take the loaded weights over"


def test_a_checkpoint_is_never_overwritten(tmp_path):
    policy, optimizer = trained()
    save_checkpoint(tmp_path, policy, optimizer, TrainState(7))
    with pytest.raises(CheckpointExists, match="step-000007"):
        save_checkpoint(tmp_path, policy, optimizer, TrainState(7))


def test_a_full_disk_is_seen_before_anything_is_written(tmp_path, monkeypatch):
    policy, optimizer = trained()
    good = save_checkpoint(tmp_path, policy, optimizer, TrainState(1))
    before = sorted(tmp_path.rglob("*"))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage(10, 10, 1000))
    with pytest.raises(DiskFull, match="earlier checkpoints are intact") as caught:
        save_checkpoint(tmp_path, policy, optimizer, TrainState(2))
    assert caught.value.exit_code == 2
    assert sorted(tmp_path.rglob("*")) == before
    assert load_checkpoint(good, policy, optimizer) == TrainState(1)


def test_a_write_that_dies_half_way_leaves_no_checkpoint_and_the_next_one_succeeds(tmp_path):
    policy, optimizer = trained()

    def dies(folder):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, policy, optimizer, TrainState(3), dies)
    assert steps_in(tmp_path) == []
    save_checkpoint(tmp_path, policy, optimizer, TrainState(3))
    assert steps_in(tmp_path) == [3]


def test_only_the_newest_checkpoint_keeps_its_optimizer(tmp_path):
    policy, optimizer = trained()
    first = save_checkpoint(tmp_path, policy, optimizer, TrainState(1))
    second = save_checkpoint(tmp_path, policy, optimizer, TrainState(2))
    assert steps_in(tmp_path) == [1, 2]
    load_checkpoint(second, policy, optimizer)
    with pytest.raises(CheckpointDamaged, match=r"optimizer\.pt is missing"):
        load_checkpoint(first, policy, optimizer)


def test_weights_of_another_shape_are_refused_by_name(tmp_path):
    policy, optimizer = trained()
    folder = save_checkpoint(tmp_path, policy, optimizer, TrainState(1))
    other = CandidatePolicy()
    other._module = torch.nn.Linear(3, 5, bias=False, dtype=torch.float64)
    with pytest.raises(StateDictMismatch, match=r"weight \[5, 10\] for \[5, 3\]"):
        load_checkpoint(folder, other, optimizer)
    shutil.rmtree(folder)
    assert steps_in(tmp_path) == []
