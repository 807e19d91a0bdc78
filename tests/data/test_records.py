"""JSON lines and parquet: what is wrong is named with file and line, what is right comes back, and
a small file that stands for gigabytes is refused before it fills the memory."""

import csv
import gzip
import json
import os
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data import json_files
from assay.data.csv_files import CsvOptions, read_csv
from assay.data.formats.formats import read_records
from assay.data.json_files import read_jsonl, write_jsonl
from assay.data.loaded import DataError, Record, sound
from assay.data.parquet import BATCH_ROWS, raw_rows, read_parquet, write_parquet
from assay.data.results.foreign_result import read_members
from assay.data.results.readers import read_results

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
json_values = st.recursive(
    scalars | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(objects=st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=4))
def test_json_lines_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    write_jsonl(path, objects)
    assert [record.value for record in read_jsonl(path)] == objects


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": \n', r"a.jsonl:2: malformed JSON"),
        (b'{"a": %s}' % (b"9" * 5000), r"a.jsonl:1: malformed JSON: an integer of more than 4300"),
        (b'\n{"a": 1}\n[1]\n', r"a.jsonl:3: is an array, not an object"),
        (b'{"a": NaN}\n', r"a.jsonl:1: malformed JSON: NaN is not JSON"),
        (b'{"a": 1}\n{"a": "\xff"}\n', r"a.jsonl:2: byte 8 is not UTF-8"),
        (b'{"a": "\\ud800"}\n', r"a.jsonl:1: a \\u escape is half of a surrogate pair"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_jsonl(tmp_path / "a.jsonl"))
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


def test_missing_files_and_files_of_another_kind_are_named(tmp_path: Path) -> None:
    for read, name in ((read_jsonl, "a.jsonl"), (read_parquet, "a.parquet")):
        with pytest.raises(DataError, match=f"{name}: no such file"):
            list(read(tmp_path / name))
    (tmp_path / "b.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"b.parquet: is not a parquet file"):
        list(sound(read_parquet(tmp_path / "b.parquet")))


def test_parquet_comes_back_over_several_batches_with_row_numbers(tmp_path: Path) -> None:
    schema = pa.schema({"n": pa.int64(), "s": pa.struct({"a": pa.string(), "b": pa.int64()})})
    rows: list[dict[str, Any]] = [
        {"n": n, "s": {"a": "x"} if n % 2 else {"b": n}} for n in range(BATCH_ROWS + 3)
    ]
    write_parquet(tmp_path / "a.parquet", iter(rows), schema)
    records = list(sound(read_parquet(tmp_path / "a.parquet")))
    assert [record.value for record in records] == rows
    assert [record.line for record in records] == list(range(1, len(rows) + 1))


def test_json_columns_are_what_their_text_says_with_its_nulls(tmp_path: Path) -> None:
    mixed = pa.array(['"Paris"', "7", None, '{"a": null}'], pa.string()).cast(pa.json_())
    inner = pa.array([['{"role": "user"}', '"x"'], [], None, ["1"]], pa.list_(pa.string()))
    inner = inner.cast(pa.list_(pa.json_()))
    table = pa.table({"answer": mixed, "in": pa.StructArray.from_arrays([inner], ["list"])})
    pq.write_table(table, tmp_path / "a.parquet")
    assert [record.value for record in sound(read_parquet(tmp_path / "a.parquet"))] == [
        {"answer": "Paris", "in": {"list": [{"role": "user"}, "x"]}},
        {"answer": 7, "in": {"list": []}},
        {"in": {}},
        {"answer": {"a": None}, "in": {"list": [1]}},
    ]


@pytest.mark.parametrize("value", [b"x", float("nan"), [float("inf")], {"d": date(2026, 1, 1)}])
def test_a_column_of_values_that_json_does_not_have_is_refused_once_it_is_needed(
    tmp_path: Path, value: object
) -> None:
    table = pa.Table.from_pylist([{"n": 1, "v": None}, {"n": 2, "v": value}])
    pq.write_table(table, tmp_path / "a.parquet")
    records = list(sound(read_parquet(tmp_path / "a.parquet")))
    assert [{**record.value} for record in records] == [{"n": 1}, {"n": 2}]
    assert records[0].value.get("v") is None and "v" in records[1].unread
    for ask in (records[1].need, records[1].maybe, records[1].value.get):
        with pytest.raises(DataError, match=r"a.parquet:2: v: holds .*, which JSON does not have"):
            ask("v")


def packed(text: bytes, ending: str) -> bytes:
    return gzip.compress(text) if ending == ".gz" else pa.compress(text, "zstd", asbytes=True)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", b'{"p": 1}\n\n{"p": "\xc3\xa9"}'),
        ("a.json", b'[{"p": 1},\n\n{"p": "\xc3\xa9"}]'),
        ("a.tsv", b"p\tq\n1\t\n\xc3\xa9\t2\n"),
    ],
)
def test_a_packed_file_is_read_as_what_it_holds(
    tmp_path: Path, name: str, text: bytes, ending: str
) -> None:
    (tmp_path / name).write_bytes(text)
    file = tmp_path / f"{name}{ending}"
    # As `cat` joins packed files.
    file.write_bytes(packed(text[:9], ending) + packed(text[9:], ending))
    plain, unpacked = (list(sound(read_records(path))) for path in (tmp_path / name, file))
    assert [(r.line, r.value) for r in unpacked] == [(r.line, r.value) for r in plain]
    assert len(plain) == 2 and unpacked[1].origin.startswith(f"{file}:")


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_what_is_wrong_in_a_packed_file_is_named_with_its_line(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.jsonl{ending}"
    file.write_bytes(packed(b'{"a": 1}\n{"a": \n', ending))
    with pytest.raises(DataError, match=rf"a.jsonl{ending}:2: malformed JSON"):
        list(sound(read_records(file)))
    lines = b"".join(b'{"a": %d}\n' % n**5 for n in range(20_000))
    for damaged in (packed(lines, ending)[:-9], packed(b"", ending)[:-3], b'{"a": 1}\n'):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"a.jsonl{ending}:\d+: is cut or damaged: ") as found:
            list(sound(read_records(file)))
        assert "\n" not in str(found.value)


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=("Cs",)))
)
OBJECTS = st.lists(st.dictionaries(st.text("ab[]{},\n", max_size=3), LEAVES | st.lists(LEAVES)))


@given(OBJECTS, st.sampled_from([None, 0, 2]), st.booleans())
def test_an_array_holds_what_its_lines_would(tmp_path_factory, objects, indent, ascii_only):
    file = tmp_path_factory.mktemp("array") / "rows.json"
    text = json.dumps(objects, indent=indent, ensure_ascii=ascii_only)
    file.write_text(f"\n {text}\n", encoding="utf-8", newline="\n")
    records = list(sound(read_records(file)))
    assert [record.value for record in records] == objects
    if indent is None:
        assert {record.line for record in records} <= {2}
    else:
        # Each object of an indented array begins behind the lines of the one before it.
        sizes = [len(json.dumps(o, indent=indent).splitlines()) for o in objects]
        assert [r.line for r in records] == [3 + sum(sizes[:n]) for n in range(len(sizes))]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ('[{"a": 1},\n {"b": 2},\n]', 3, "Expecting value"),
        ('[{"a": 1}\n {"b": 2}]', 2, "expected a comma or the array's end"),
        ('[{"a": 1}]\n{"b": 2}', 1, "text behind the array"),
        ('[{"a": 1},\n 5]', 2, "is an integer, not an object"),
        ('[{"a": 1},\n {"b": "\\ud800"}]', 2, "half of a surrogate pair"),
        ("[" * 100_000, 1, "nested too deeply"),
    ],
)
def test_what_is_wrong_in_an_array_is_said_with_its_line(tmp_path: Path, text, line, problem):
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(DataError, match=problem) as caught:
        list(sound(read_records(file)))
    assert str(caught.value).startswith(f"{file}:{line}:")


# Characters that CSV, its reader and lines of text treat in their own way.
CELLS = st.text(st.sampled_from("a,;\"'\n\r \té漢"), max_size=6)


@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_what_pythons_own_writer_wrote_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, delimiter: str, rows: list[tuple[str, str]]
) -> None:
    file = tmp_path_factory.mktemp("csv") / "a.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("x", "y"), *rows])
    found = [record.value for record in sound(read_csv(file, CsvOptions(delimiter=delimiter)))]
    wanted = [{k: v for k, v in zip("xy", row, strict=True) if v} for row in rows]
    assert found == wanted


def test_endings_quotes_headers_and_encodings(tmp_path: Path) -> None:
    tabs = tmp_path / "a.tsv"
    tabs.write_bytes(b"\xef\xbb\xbfx\ty\n1\t2\n")
    assert [record.value for record in sound(read_csv(tabs))] == [{"x": "1", "y": "2"}]
    old = tmp_path / "a.txt"
    old.write_bytes("caf\xe9;'a;b'\n".encode("latin-1"))
    options = CsvOptions(";", "'", ("x", "y"), "latin-1")
    assert [record.value for record in sound(read_csv(old, options))] == [{"x": "café", "y": "a;b"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"x,y\n1,2\n1,2,3\n", r"a\.csv:3: has 3 fields, and there are 2 columns"),
        (b'x,y\n1,2\n"1,2\n3,4\n', r"a\.csv:3: malformed CSV: unexpected end of data"),
        (b"x,y\n1,2\n1,\xff\n", r"a\.csv:3: byte 3 is not UTF-8"),
        (b"x,x\n1,2\n", r"a\.csv:1: header: two columns are called 'x'"),
        (b"x,\n1,2\n", r"a\.csv:1: header: a column has no name"),
    ],
)
def test_what_is_wrong_is_named_by_line(tmp_path: Path, text: bytes, message: str) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(text)
    with pytest.raises(DataError, match=message):
        list(sound(read_csv(file)))


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
            read()


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
    file.write_bytes(packed(text, ending))
    with at_most(4 << 20), pytest.raises(DataError, match=rf"a.jsonl{ending}:\d+: unpacks to more"):
        for record in read_records(file):
            assert isinstance(record, Record)
