"""A file is the old one or the new one; hashes are those of the bytes."""

import subprocess
import sys
from pathlib import Path

import pytest

from assay.data import files
from assay.data.files import (
    append_line,
    atomic_path,
    atomic_write_bytes,
    atomic_write_text,
    new_folder,
    remove_leftovers,
)


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
