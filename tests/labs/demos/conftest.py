"""What several tests of demonstrations share."""

from pathlib import Path

import pytest

from tests.from_files import start
from tests.labs.demos.kinds_lab import make_kinds_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab of the kinds task with a finished run; further runs and selections may be added."""
    folder = tmp_path_factory.mktemp("kinds")
    start(make_kinds_lab(folder), root=folder)
    return folder
