"""A file is the old one or the new one; hashes are those of the bytes; a wheel is
used only when it is byte for byte the known one."""

import hashlib
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data import files
from assay.data.files import (
    CHECKSUMS,
    append_line,
    atomic_path,
    atomic_write_bytes,
    atomic_write_text,
    built_once,
    find_damage,
    kept,
    new_folder,
    remove_leftovers,
    write_checksums,
)
from assay.data.wheels import WHEELS, Wheel, wheel_directory
from assay.errors import InputError


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


LEFT = """
import os, sys
from pathlib import Path
from assay.data.files import atomic_path, new_folder
folder = Path(sys.argv[1])
with atomic_path(folder / "inner" / "a.txt") as file, new_folder(folder / "out") as made:
    file.write_text("half")
    (made / "b.txt").write_text("half")
    print("writing", flush=True)
    sys.stdin.read(1)
    os._exit(9)
"""


def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("the user's own")
    command = [sys.executable, "-c", LEFT, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        assert remove_leftovers(tmp_path) == []
        process.communicate("x")
    left = sorted(tmp_path.rglob("*.part"))
    assert [path.is_dir() for path in left] == [True, False]
    assert remove_leftovers(tmp_path) == left
    assert sorted(p.name for p in tmp_path.rglob("*")) == [".hidden", "inner"]


def test_a_folder_that_is_made_again_takes_the_place_of_what_a_kill_left(tmp_path: Path) -> None:
    other, own = tmp_path / ".other.0123456789abcdef.part", tmp_path / ".out[1].0123.part"
    for folder in (other, own):
        folder.mkdir()
    with new_folder(tmp_path / "out[1]") as made:
        (made / "a").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "out[1]"]


def test_a_name_that_is_taken_away_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = files.lock, []

    def steal(path: Path, *, wait: bool = True) -> int:
        handle = lock(path, wait=wait)
        if len(taken) < 2:
            taken.append(path)
            path.rmdir() if path.is_dir() else path.unlink()
        return handle

    monkeypatch.setattr(files, "lock", steal)
    atomic_write_text(tmp_path / "a", "x")
    taken.clear()
    with new_folder(tmp_path / "b") as made:
        (made / "c").touch()
    assert len(taken) == 2 and sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b", "c"]


def test_a_journal_goes_on_after_what_a_kill_tore(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    append_line(journal, "1")
    append_line(journal, '"é"')
    for torn in (b"", b'{"a', b"\xc3"):
        before = journal.read_bytes()
        journal.write_bytes(before + torn)
        append_line(journal, "3")
        assert journal.read_bytes() == before + b"3\n"
    journal.write_bytes(b"torn at once")
    append_line(journal, "4")
    assert journal.read_bytes() == b"4\n"


def test_builders_at_the_same_time_build_once(tmp_path: Path) -> None:
    builds: list[int] = []
    gate = threading.Barrier(4)

    def build(directory: Path) -> None:
        builds.append(1)
        (directory / "a").touch()

    def ask(_: int) -> None:
        gate.wait()
        built_once(tmp_path / "thing", build)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))
    assert len(builds) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "inner").mkdir()
    (folder / "a.bin").write_bytes(bytes(range(64)))
    (folder / "inner" / "b.json").write_text("{}\n")
    write_checksums(folder)
    return folder


@given(st.sampled_from(["a.bin", "inner/b.json", CHECKSUMS]), st.integers(0, 10**6))
def test_one_changed_bit_anywhere_is_found_in_its_file(folder: Path, name: str, place: int):
    file = folder / name
    before = file.read_bytes()
    changed = bytearray(before)
    changed[place // 8 % len(before)] ^= 1 << place % 8
    try:
        file.write_bytes(changed)
        found = find_damage(folder)
    finally:
        file.write_bytes(before)
    assert [damage.file for damage in found] == [file]


def counting():
    """A kept reading, and what it read."""
    read: list[str] = []

    @kept(2)
    def reading(file: Path, upper: bool = False) -> str:
        text = file.read_text() if file.exists() else "nothing"
        read.append(text)
        return text.upper() if upper else text

    return reading, read


def test_a_file_is_read_once_until_it_is_written(tmp_path):
    file, (reading, read) = tmp_path / "a", counting()
    file.write_text("one")
    assert [reading(file), reading(file), reading(file, upper=True)] == ["one", "one", "ONE"]
    with file.open("a") as stream:
        stream.write(" more")
    assert reading(file) == "one more" and read == ["one", "one", "one more"]


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
