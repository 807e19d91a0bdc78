"""The difference of two checkpoints, value by value, against planted changes."""

from pathlib import Path

import pytest
import torch
from torch import nn

from assay.models.folder import compare_weights
from assay.models.weight_files import save_module


def saved(folder: Path, change: float = 0.0, changed: int = 0) -> Path:
    module = nn.Linear(100, 100, bias=False)
    with torch.no_grad():
        module.weight.zero_()
        module.weight.view(-1)[:changed] += change
    folder.mkdir()
    save_module(module, folder)
    return folder


def test_share_and_mean_of_a_planted_change(tmp_path):
    """The report's 50.15 % and 4.7e-4, over all values."""
    found = compare_weights(saved(tmp_path / "a"), saved(tmp_path / "b", -0.001, 5015))
    assert found is not None and found.share == 0.5015
    assert found.mean == pytest.approx(5015 * 0.001 / 10_000)


def test_the_same_weights_have_no_difference(tmp_path):
    found = compare_weights(saved(tmp_path / "a", 1.0, 7), saved(tmp_path / "b", 1.0, 7))
    assert found is not None and (found.changed, found.moved) == (0, 0.0)
