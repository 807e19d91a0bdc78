"""A checkpoint is complete or absent, is never overwritten, and restores everything."""

import shutil
from collections import namedtuple

import pytest
import torch

from assay.errors import InputError, RunFailure
from assay.runs.run_directory import check_checkpoint, steps_in
from assay.runs.run_files import DamagedFile
from assay.train import checkpoint
from assay.train.checkpoint import TrainState, load_checkpoint, save_checkpoint
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
    with pytest.raises(InputError, match="step-000007"):
        save_checkpoint(tmp_path, policy, optimizer, TrainState(7))


def test_an_optimizer_that_keeps_its_moments_back_is_not_saved(tmp_path, monkeypatch):
    policy, optimizer = trained()
    monkeypatch.setattr(optimizer, "state_dict", lambda: {"state": {}})
    with pytest.raises(RunFailure, match="gives no moments of 1 of 1 weights"):
        save_checkpoint(tmp_path, policy, optimizer, TrainState(7))
    assert not steps_in(tmp_path)


def test_a_full_disk_is_seen_before_anything_is_written(tmp_path, monkeypatch):
    policy, optimizer = trained()
    good = save_checkpoint(tmp_path, policy, optimizer, TrainState(1))
    before = sorted(tmp_path.rglob("*"))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage(10, 10, 1000))
    with pytest.raises(InputError, match="earlier checkpoints are intact") as caught:
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


def test_the_two_newest_checkpoints_keep_their_optimizer(tmp_path):
    policy, optimizer = trained()
    first, second, third = (
        save_checkpoint(tmp_path, policy, optimizer, TrainState(step)) for step in (1, 2, 3)
    )
    assert steps_in(tmp_path) == [1, 2, 3]
    for folder in (second, third):
        assert load_checkpoint(folder, policy, optimizer).step in (2, 3)
    with pytest.raises(InputError, match=r"optimizer\.pt is missing"):
        load_checkpoint(first, policy, optimizer)
    check_checkpoint(first, fix="")


def test_a_checkpoint_of_another_step_is_damaged_whether_it_could_be_continued_or_not(tmp_path):
    policy, optimizer = trained()
    for step in (2, 4, 6):
        save_checkpoint(tmp_path, policy, optimizer, TrainState(step))
    first, last = tmp_path / "step-000002", tmp_path / "step-000006"
    last.rename(tmp_path / "step-000008")
    first.rename(last)
    for folder, step in ((last, 2), (tmp_path / "step-000008", 6)):
        with pytest.raises(DamagedFile, match=f"holds the checkpoint of step {step}"):
            load_checkpoint(folder, policy, optimizer)


FILES = ("module.safetensors", "optimizer.pt", "random.pt", "state.json")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["cut", "empty", "one bit"])
@pytest.mark.parametrize("checksums", [True, False])
def test_a_cut_or_changed_file_is_named_in_one_line_and_nothing_is_restored(
    tmp_path, name, change, checksums
):
    policy, optimizer = trained()
    folder = save_checkpoint(tmp_path, policy, optimizer, TrainState(7))
    if not checksums:
        (folder / "checksums.json").unlink()
        if change == "one bit":
            pytest.skip("without checksums nobody can tell")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 4
    kept = {"cut": len(content) // 2, "empty": 0, "one bit": len(content)}[change]
    (folder / name).write_bytes(content[:kept])
    other, fresh = trained(seed=5)
    before, drawn = other.weight.clone(), torch.get_rng_state()
    error = InputError if not checksums and name == FILES[0] else DamagedFile
    with pytest.raises(error) as found:
        load_checkpoint(folder, other, fresh)
    assert str(found.value).startswith(f"{folder / name}: ")
    assert "\n" not in str(found.value) and len(str(found.value)) < len(str(folder)) + 250
    assert torch.equal(other.weight, before) and torch.equal(torch.get_rng_state(), drawn)


def test_a_state_of_other_fields_is_named(tmp_path):
    policy, optimizer = trained()
    folder = save_checkpoint(tmp_path, policy, optimizer, TrainState(7))
    (folder / "checksums.json").unlink()
    (folder / "state.json").write_text('{"step": 7, "mood": 1}')
    with pytest.raises(DamagedFile, match=r"state\.json: cannot be read: .*mood"):
        load_checkpoint(folder, policy, optimizer)
    (folder / "state.json").write_text('{"step": 7}')
    torch.save({"something": 1}, folder / "optimizer.pt")
    with pytest.raises(DamagedFile, match=r"optimizer\.pt: does not hold state and param"):
        load_checkpoint(folder, policy, optimizer)


def test_a_state_that_counts_steps_without_a_bonus_is_read(tmp_path):
    """As checkpoints held it before guards counted such steps in the metrics."""
    policy, optimizer = trained()
    folder = save_checkpoint(tmp_path, policy, optimizer, TrainState(7, 3))
    (folder / "checksums.json").unlink()
    (folder / "state.json").write_text('{"step": 7, "cursor": 3, "skipped": 0, "without_bonus": 2}')
    assert load_checkpoint(folder, policy, optimizer) == TrainState(7, 3)


def test_weights_of_another_shape_are_refused_by_name(tmp_path):
    policy, optimizer = trained()
    folder = save_checkpoint(tmp_path, policy, optimizer, TrainState(1))
    other = CandidatePolicy()
    other._module = torch.nn.Linear(3, 5, bias=False, dtype=torch.float64)
    with pytest.raises(InputError, match=r"weight \[5, 10\] for \[5, 3\]"):
        load_checkpoint(folder, other, optimizer)
    shutil.rmtree(folder)
    assert steps_in(tmp_path) == []
