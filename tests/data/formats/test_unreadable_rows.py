"""A few rows that cannot be read are left out, counted and named; more of them refuse the file."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.data.formats.convert_rows import Wanted, convert
from assay.data.formats.formats import iter_items, read_rows
from assay.data.loaded import UNREADABLE, DataError, gather

BAD = ['{"prompt": "x", "answer": ', '["x"]', '{"prompt": 1, "answer": "x"}', '{"answer": "x"}']


def rows_with(folder: Path, bad: list[str], good: int, ending: str = "jsonl") -> Path:
    """A file of good rows, with the bad ones from line 3 on."""
    lines = [json.dumps({"prompt": f"{n}?", "answer": "x"}) for n in range(good)]
    lines[2:2] = bad
    file = folder / f"a.{ending}"
    file.write_text("\n".join(lines) if ending == "jsonl" else "[" + ",\n".join(lines) + "]")
    return file


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_one_bad_row_of_a_hundred_is_left_out_and_named(
    tmp_path: Path, bad: str, ending: str
) -> None:
    if ending == "json" and bad == BAD[0]:
        return  # Nobody can say where the next member of a broken array begins.
    loaded = gather(iter_items(rows_with(tmp_path, [bad], 99, ending), "prompt_answer"))
    ((reason, ids),) = loaded.dropped.items()
    assert len(loaded.rows) == 99 and len(ids) == 1
    assert reason == f"{UNREADABLE} ({ids[0]})" and ids[0].startswith("line 3: ")


def test_more_than_one_in_a_hundred_refuse_the_file_and_say_how_many(tmp_path: Path) -> None:
    file = rows_with(tmp_path, BAD[2:3], 98)
    with pytest.raises(DataError, match=r"a.jsonl:3: prompt: is an integer, not .*array$"):
        gather(iter_items(file, "prompt_answer"))
    file = rows_with(tmp_path, BAD, 298)
    with pytest.raises(
        DataError, match=r"a.jsonl:3: .*4 of 302 rows cannot be read, and at most 1%"
    ):
        gather(iter_items(file, "prompt_answer"))


def test_items_of_a_benchmark_are_all_read_or_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.jsonl:3: malformed JSON"):
        read_rows(rows_with(tmp_path, BAD[:1], 300), "prompt_answer")


def test_cells_too_many_and_values_that_json_lacks_are_bad_rows_too(tmp_path: Path) -> None:
    lines = ["prompt,answer", *(f"{n}?,x" for n in range(150)), "a,b,c"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (name,) = gather(iter_items(tmp_path / "a.csv", "csv")).dropped
    assert "line 152: has 3 fields" in name
    rows = [{"prompt": f"{n}?", "answer": "x", "n": float(n)} for n in range(150)]
    rows[7]["n"] = float("nan")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (name,) = gather(iter_items(tmp_path / "a.parquet", "prompt_answer")).dropped
    assert "line 8: n: nan is no JSON value" in name


def test_a_conversion_says_which_rows_it_left_out(tmp_path: Path) -> None:
    file = rows_with(tmp_path, BAD[:1], 200)
    made = convert(file, tmp_path / "b.jsonl", Wanted(("messages",), "prompt_answer"))
    ((reason, count),) = made.dropped.items()
    assert count == 1 and reason.startswith(f"{UNREADABLE} (line 3: malformed JSON")
    file = rows_with(tmp_path, BAD, 99)
    with pytest.raises(DataError):
        convert(file, tmp_path / "c.jsonl", Wanted(("messages",), "prompt_answer"))
    assert not (tmp_path / "c.jsonl").exists()
