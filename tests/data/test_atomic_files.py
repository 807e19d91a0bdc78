"""A file is the old one or the new one; hashes are those of the bytes."""

import hashlib
import os
from pathlib import Path

import pytest

from assay.data import files
from assay.data.files import atomic_path, atomic_write_bytes, atomic_write_text, sha256_file


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    atomic_write_text(target, "old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_the_content_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new" / "a.bin"
    synced = []
    monkeypatch.setattr(files, "sync", lambda path: synced.append((path, target.exists())))
    atomic_write_bytes(target, b"x\r\n")
    (content, named), (folder, named_after) = synced
    assert content.parent == folder == target.parent
    assert (named, named_after) == (False, True)
    assert target.read_bytes() == b"x\r\n"


def test_files_have_the_rights_that_other_new_files_have(tmp_path: Path) -> None:
    atomic_write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    modes = {(tmp_path / name).stat().st_mode for name in "ab"}
    assert len(modes) == 1 and os.access(tmp_path / "a", os.R_OK)


def test_the_hash_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert sha256_file(tmp_path / "a") == hashlib.sha256(b"abc" * 100_000).hexdigest()
