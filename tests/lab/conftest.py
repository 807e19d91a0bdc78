"""Labs that several modules start from; each takes a copy, or puts back what it changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.runs.run_directory import RunDirectory
from tests.from_files import run_from, start
from tests.tiny_labs import make_lab


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A finished run; the others are in its lab too, because paths are fingerprinted."""
    from tests.lab.run.test_restore import LESS, SHORT

    return run_from(make_lab(tmp_path_factory.mktemp("lab"), until=LESS), SHORT)


@pytest.fixture(scope="module")
def colour_words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The made-up words in MiniLM's place."""
    from tests.lab.selector_task import use_words

    with pytest.MonkeyPatch.context() as patch:
        use_words(patch, tmp_path_factory.mktemp("words"))
        yield


@pytest.fixture(scope="session")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab whose run `tiny` sampled groups with spread rewards. Copy it to change it."""
    from tests.lab.run.test_recorded_groups import SAMPLED, SPREAD

    folder = tmp_path_factory.mktemp("sampled")
    (folder / "rewards.py").write_text(SPREAD)
    start(make_lab(folder, until="[stage.sft]", tables=SAMPLED), root=folder)
    return folder
