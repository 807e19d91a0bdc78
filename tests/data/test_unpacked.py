"""A small file that stands for gigabytes is refused before it fills the memory."""

import gzip
import json
import os
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.data import json_files
from assay.data.formats.formats import read_records
from assay.data.loaded import DataError, Record
from assay.data.parquet import (
    raw_rows,
)
from assay.data.results.foreign_result import read_members
from assay.data.results.readers import read_results

HEADER = {"version": 2, "status": "success", "plan": {}, "eval": {"task": "t", "model": "m"}}


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """The block takes no more than so many bytes at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def log(file: Path, members: dict[str, str | bytes]) -> Path:
    """A zipped log of inspect-ai."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


def bomb(file: Path) -> Path:
    """256 MB of white space in samples, packed into a quarter of a megabyte."""
    white = b" " * (4 << 20)
    members: dict[str, str | bytes] = {"header.json": json.dumps(HEADER)}
    return log(file, members | {f"samples/{n}.json": white for n in range(64)})


def test_an_archive_that_unpacks_to_far_more_than_its_size_is_not_unpacked(tmp_path: Path) -> None:
    file = bomb(tmp_path / "log.eval")
    assert file.stat().st_size < 1 << 20
    words = r"log.eval: unpacks to more than \d+ MB, from 0.3 MB"
    with at_most(32 << 20), pytest.raises(DataError, match=words):
        read_results(file)


def test_members_that_share_one_place_count_as_often_as_they_are_named(tmp_path: Path) -> None:
    content = os.urandom(1 << 10) * (1 << 8)
    file = log(tmp_path / "log.eval", {"samples/0.json": content})
    with zipfile.ZipFile(file, "a") as archive:
        (member,) = archive.infolist()
        for number in range(300):
            other = zipfile.ZipInfo(f"samples/x{number}.json")
            for field in ("compress_type", "compress_size", "file_size", "CRC", "header_offset"):
                setattr(other, field, getattr(member, field))
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other
        archive.comment = b"changed"
    with pytest.raises(DataError, match="unpacks to more than"):
        read_members(file, lambda _: True)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 93])
def test_a_member_that_claims_less_than_it_holds_gives_no_more_than_it_claims(
    tmp_path: Path, method: int
) -> None:
    file = tmp_path / "log.eval"
    zstandard = method == 93
    white = b" " * (24 << 20)
    content = pa.compress(white, "zstd", asbytes=True) if zstandard else white
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED if zstandard else method) as archive:
        archive.writestr("samples/0.json", content)
    raw = bytearray(file.read_bytes())
    entry = raw.rindex(b"PK\x01\x02")
    raw[entry + 10 : entry + 12] = method.to_bytes(2, "little")
    raw[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")
    file.write_bytes(raw)
    with at_most(8 << 20), pytest.raises(DataError, match="damaged zip"):
        read_members(file, lambda _: True)


def one_value(file: Path, text: str, rows: int, group: int = 1 << 20) -> Path:
    """A parquet file whose only column holds the same text in every row."""
    values = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
    pq.write_table(pa.table({"item": values}), file, compression="zstd", row_group_size=group)
    return file


def test_a_column_of_one_long_value_is_read_no_further_than_memory_goes(tmp_path: Path) -> None:
    file = one_value(tmp_path / "r.parquet", "x" * (1 << 20), 100_000)
    assert file.stat().st_size < 1 << 20
    for read in (lambda: list(map(len, raw_rows(file))), lambda: read_results(file, "table")):
        with pytest.raises(DataError, match=r"r.parquet: unpacks to more than"):
            consume(read)


def consume(read: object) -> None:
    read()  # type: ignore[operator]


def test_more_rows_than_a_file_can_mean_are_refused_before_the_first(tmp_path: Path) -> None:
    file = one_value(tmp_path / "r.parquet", "", 6_000_000)
    with pytest.raises(DataError, match="unpacks to more than"):
        next(raw_rows(file))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("line", [b" " * 1000, b'{"a": "%5000d"}\n' % 1, b"[" + b" " * 1000])
def test_packed_lines_that_stand_for_far_more_are_refused_in_time(
    tmp_path: Path, line: bytes, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_files, "FREE_BYTES", 1 << 20)
    file, text = tmp_path / f"a.jsonl{ending}", line * (20_000_000 // len(line))
    file.write_bytes(
        gzip.compress(text) if ending == ".gz" else pa.compress(text, "zstd", asbytes=True)
    )
    with at_most(4 << 20), pytest.raises(DataError, match=rf"a.jsonl{ending}:\d+: unpacks to more"):
        for record in read_records(file):
            assert isinstance(record, Record)
