"""Labs that several modules start from; each takes a copy, or puts back what it changes."""

from pathlib import Path

import pytest

from assay.runs.run_directory import RunDirectory
from tests.from_files import start
from tests.tiny_labs import make_lab


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A finished run; the others are in its lab too, because paths are fingerprinted."""
    from tests.lab.run.test_restore import LESS, SHORT

    folder = tmp_path_factory.mktemp("lab")
    (run,) = start(make_lab(folder, until=LESS), SHORT, root=folder)
    return run


@pytest.fixture(scope="session")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab whose run `tiny` sampled groups with spread rewards. Copy it to change it."""
    from tests.lab.run.test_recorded_groups import SAMPLED, SPREAD

    folder = tmp_path_factory.mktemp("sampled")
    (folder / "rewards.py").write_text(SPREAD)
    start(make_lab(folder, until="[stage.sft]", tables=SAMPLED), root=folder)
    return folder
