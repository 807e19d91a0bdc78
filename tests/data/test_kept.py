"""What is kept of a file is read again when the file is another one, and only then."""

import os
from pathlib import Path

from assay.data.files import atomic_write_text
from assay.data.kept import kept


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


def test_another_file_of_the_same_time_and_size_is_read(tmp_path):
    file, (reading, _) = tmp_path / "a", counting()
    file.write_text("one")
    time = file.stat().st_mtime_ns
    reading(file)
    atomic_write_text(file, "two")
    os.utime(file, ns=(time, time))
    assert reading(file) == "two"


def test_a_file_that_goes_and_comes_is_read_each_time(tmp_path):
    file, (reading, _) = tmp_path / "a", counting()
    assert reading(file) == "nothing"
    file.write_text("one")
    assert reading(file) == "one"
    file.unlink()
    assert reading(file) == "nothing"


def test_no_more_is_kept_than_wanted(tmp_path):
    reading, read = counting()
    for name in ("a", "b", "c", "a"):
        (tmp_path / name).touch()
        reading(tmp_path / name)
    assert len(read) == 4
