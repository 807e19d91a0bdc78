"""A lab whose runs are written, never executed."""

from pathlib import Path

import pytest

from tests.lab.pivot_lab import PivotLab, make_pivot_lab


@pytest.fixture
def lab(tmp_path: Path) -> PivotLab:
    return make_pivot_lab(tmp_path)
