"""CSV files become the rows that their writer meant, and what is wrong in them is named by line."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.csv_files import CsvOptions, read_csv
from assay.data.loaded import DataError, sound

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
        (b"x,y\n1,2\n1\n", r"a\.csv:3: has 1 fields"),
        (b'x,y\n1,2\n"1,2\n3,4\n', r"a\.csv:3: malformed CSV: unexpected end of data"),
        (b'x,y\n"a"b,2\n', r"a\.csv:2: malformed CSV"),
        (b"x,y\n1,2\n1,\xff\n", r"a\.csv:3: byte 3 is not UTF-8"),
        (b"x,x\n1,2\n", r"a\.csv:1: header: two columns are called 'x'"),
        (b"x,\n1,2\n", r"a\.csv:1: header: a column has no name"),
        (b"", r"a\.csv:1: header: a column has no name"),
    ],
)
def test_what_is_wrong_is_named_by_line(tmp_path: Path, text: bytes, message: str) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(text)
    with pytest.raises(DataError, match=message):
        list(sound(read_csv(file)))


def test_a_field_may_be_longer_than_pythons_own_limit(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x\n" + "a" * 200_000 + "\n")
    (record,) = sound(read_csv(file))
    assert len(record.value["x"]) == 200_000
