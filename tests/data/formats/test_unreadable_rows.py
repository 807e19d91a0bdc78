"""A few rows that cannot be read are left out, counted and named; more of them refuse the file."""

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.data.formats.formats import iter_items
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


NANOSECONDS = pa.scalar(1, pa.timestamp("ns"))
YEAR_20000 = pa.scalar(18262 * 365, pa.date32())
BESIDE: list[Any] = [
    *(datetime(2026, 1, 1), date(2026, 1, 1), time(1), timedelta(1), Decimal("1.5"), b"\x00\xff"),
    *(
        float("nan"),
        float("-inf"),
        [float("nan")],
        {"at": date(2026, 1, 1)},
        NANOSECONDS,
        YEAR_20000,
    ),
    pa.scalar([("a", 1)], pa.map_(pa.string(), pa.int64())),
]


def parquet_with(folder: Path, name: str, value: Any, first: Any = None) -> Path:
    """Three rows, of which the last two hold a value in a column of this name."""
    columns = {"prompt": ["a?", "b?", "c?"], "answer": ["x", "y", "z"]}
    kind = value.type if isinstance(value, pa.Scalar) else None
    value = value.as_py() if kind and pa.types.is_map(kind) else value
    columns[name] = pa.array([first, value, value], kind)  # type: ignore[assignment]
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize("value", BESIDE)
def test_a_column_that_json_has_no_form_of_leaves_itself_out(tmp_path: Path, value: Any) -> None:
    loaded = gather(iter_items(parquet_with(tmp_path, "made", value), "prompt_answer"))
    assert [row.gold for row in loaded.rows] == ["x", "y", "z"] and not loaded.dropped
    assert all("made" not in {*row.extra, *row.columns} for row in loaded.rows)
    ((words, ids),) = loaded.remarks.items()
    assert words.startswith("column 'made' holds ") and words.endswith(": it is left out")
    assert ids == tuple(row.id for row in loaded.rows[1:])


@pytest.mark.parametrize("name", ["answer", "gold", "id", "tools", "loss_mask", "images", "image"])
def test_a_column_that_means_something_is_refused_by_name(tmp_path: Path, name: str) -> None:
    file = parquet_with(tmp_path, name, b"x", b"x")
    with pytest.raises(DataError, match=rf"a.parquet:1: {name}: holds bytes, which JSON does not"):
        gather(iter_items(file, "prompt_answer"))


@pytest.mark.parametrize("at", BESIDE[:4])
def test_the_time_of_a_message_leaves_itself_out(tmp_path: Path, at: Any) -> None:
    asked, said = ({"role": r, "content": r, "at": at} for r in ("user", "assistant"))
    pq.write_table(pa.table({"messages": [[asked, said]]}), file := tmp_path / "a.parquet")
    loaded = gather(iter_items(file, "messages"))
    assert [m.content for m in loaded.rows[0].messages] == ["user", "assistant"]
    assert [*loaded.remarks] == ["messages hold 'at', a time, which is not read"]
    timed = {"role": "user", "content": at}
    pq.write_table(pa.table({"messages": [[timed, {**said, "content": at}]]}), file)
    with pytest.raises(DataError, match=r"messages\[0\]\.content: missing"):
        gather(iter_items(file, "messages"))


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_nan_in_a_json_file_leaves_its_column_out(tmp_path: Path, ending: str) -> None:
    lines = ['{"prompt": "a?", "answer": "x", "score": NaN}', '{"prompt": "b?", "answer": "NaN"}']
    file = tmp_path / f"a.{ending}"
    file.write_text("\n".join(lines) if ending == "jsonl" else f"[{lines[0]},\n{lines[1]}]")
    loaded = gather(iter_items(file, "prompt_answer"))
    assert [row.gold for row in loaded.rows] == ["x", "NaN"]
    assert list(loaded.remarks) == [
        "column 'score' holds NaN or Infinity, which JSON does not have: it is left out"
    ]
    file.write_text(file.read_text().replace('"x"', "-Infinity"))
    with pytest.raises(DataError, match=rf"a.{ending}:1: answer: holds NaN or Infinity"):
        gather(iter_items(file, "prompt_answer"))
