"""Conversion: the same rows on the same sides in every format, whole files or none."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from assay.data.formats.convert_rows import NO_ANSWER, Conversion, convert
from assay.data.formats.formats import read_rows
from assay.data.formats.plain_text import PlainText
from assay.data.loaded import DataError
from assay.data.row import Row
from assay.data.row_checks import SAME, content_digest
from assay.data.splits import conversation_of, split_by_conversation
from assay.errors import InputError
from tests.few import few

TEXT = PlainText("qwen3")
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {}}}


def talk(number: int, last: str = "assistant") -> dict:
    call = {"type": "function", "function": {"name": "f", "arguments": f'{{"a": {number}}}'}}
    messages = [
        {"role": "user", "content": f"Do {number}."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "ok"},
        {"role": last, "content": "Done."},
    ]
    return {"id": f"t{number}", "tools": [TOOL], "messages": messages}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "talks.jsonl"
    file.write_text("".join(json.dumps(talk(n)) + "\n" for n in range(20)))
    return file


def keys(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row.id, conversation_of(row)) for row in rows]


def test_a_split_is_the_same_in_every_format(source: Path, tmp_path: Path) -> None:
    made = {}
    for to, ending in (("verl", "parquet"), ("swift", "jsonl")):
        wanted = Conversion(to, expand="each_turn", dev=0.25, text=TEXT)
        found = convert(source, tmp_path / to, wanted)
        for side in ("train", "test"):
            file = tmp_path / to / f"{side}.{ending}"
            made[to, side] = read_rows(file, to)
            assert found.rows[str(file)] == len(made[to, side])
            assert found.conversations[str(file)] == {"train": 15, "test": 5}[side]
    for side in ("train", "test"):
        rl, trained = made["verl", side], made["swift", side]
        assert keys(rl) == keys(trained)
        assert [r.messages for r in rl] == [r.messages for r in trained]
    # An experiment's own split of the file puts every conversation on the same side.
    _, held_out = split_by_conversation(read_rows(source, "messages"), 0.25)
    assert {row.id for row in held_out} == {conversation_of(r) for r in made["verl", "test"]}


def test_verl_rows_say_their_side_and_number_and_come_back_whole(
    source: Path, tmp_path: Path
) -> None:
    convert(source, tmp_path / "out", Conversion("verl", dev=0.25, text=TEXT))
    for side, count in (("train", 15), ("test", 5)):
        table = pq.read_table(tmp_path / "out" / f"{side}.parquet").to_pylist()
        assert [row["extra_info"]["split"] for row in table] == [side] * count
        assert [row["extra_info"]["index"] for row in table] == list(range(count))
    back = read_rows(tmp_path / "out" / "test.parquet", "verl")
    original = {row.id: replace(row, origin="") for row in read_rows(source, "messages")}
    assert [replace(row, origin="") for row in back] == [original[row.id] for row in back]


def uneven(folder: Path) -> Path:
    """Conversations whose gold answers, fields and tools have another type in every row."""
    wrapped = {"type": "function", "function": {**TOOL, "name": "g"}}
    golds = [None, "four", [["f()"]], {"f": {"a": [1]}}, 4]
    fields = [[1], {"a": "x"}, [], {}, ["y"]]
    lines = [
        {**talk(n), "gold": gold, "nested": nested}
        for n, (gold, nested) in enumerate(zip(golds, fields, strict=True))
    ]
    lines[1]["tools"] = [wrapped, TOOL]
    lines.append({**talk(5, "user"), "gold": "five", "nested": {}})
    file = folder / "uneven.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_every_column_of_a_trl_file_has_one_type_whatever_the_rows_hold(tmp_path: Path) -> None:
    source = uneven(tmp_path)
    convert(source, tmp_path / "a.jsonl", Conversion("trl"))
    columns = pyarrow.json.read_json(tmp_path / "a.jsonl").schema
    assert {columns.field(name).type for name in ("id", "gold", "tools", "nested")} == {
        pyarrow.string()
    }
    back = [replace(row, origin="") for row in read_rows(tmp_path / "a.jsonl", "trl")]
    assert back == [replace(row, origin="") for row in read_rows(source, "messages")]
    assert back[-1].messages[-1].role == "user" and back[0].gold is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("gold", "44"), ("tools", None), ("prompt", []), ("id", "u"), ("nested", 1)],
)
def test_a_trl_row_that_was_changed_since_is_never_read_as_it_was(
    tmp_path: Path, field: str, value: object
) -> None:
    convert(uneven(tmp_path), tmp_path / "a.jsonl", Conversion("trl"))
    first, *rest = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    changed = json.dumps({**json.loads(first), field: value})
    (tmp_path / "a.jsonl").write_text("".join([changed + "\n", *rest]))
    words = rf"a.jsonl:1: {field}: differs from what assay keeps \(remove assay\)"
    with pytest.raises(DataError, match=words):
        read_rows(tmp_path / "a.jsonl", "trl")


def test_a_row_that_nothing_can_reward_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        json.dumps(talk(0)) + "\n" + json.dumps(talk(1, "user")) + "\n"
    )
    made = convert(tmp_path / "a.jsonl", tmp_path / "rl.parquet", Conversion("verl", text=TEXT))
    assert made.dropped == {NO_ANSWER: 1} and set(made.rows.values()) == {1}
    alone = convert(tmp_path / "a.jsonl", tmp_path / "sft.jsonl", Conversion("messages"))
    assert alone.dropped == {} and set(alone.rows.values()) == {2}


@pytest.mark.parametrize(
    ("target", "wanted", "message"),
    [
        (
            "a.txt",
            Conversion("verl", text=TEXT),
            r"a.txt: is no name for verl rows \(end it in .parquet or",
        ),
        ("a.jsonl", Conversion("swift", dev=0.5), "looks like a file"),
        ("out", Conversion("swift", dev=0.001), "both sides need at least one"),
        ("a.jsonl", Conversion("swft"), "did you mean 'swift'"),
        ("talks.jsonl", Conversion("swift"), r"talks.jsonl: exists \(remove it"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    source: Path, tmp_path: Path, target: str, wanted: Conversion, message: str
) -> None:
    before = source.read_text()
    with pytest.raises(InputError, match=message):
        convert(source, tmp_path / target, wanted)
    assert [path.name for path in tmp_path.rglob("*")] == ["talks.jsonl"]
    assert source.read_text() == before


@pytest.mark.parametrize(
    "wanted", [Conversion("verl", text=TEXT), Conversion("verl", dev=0.5, text=TEXT)]
)
def test_a_bad_row_at_the_end_leaves_nothing_half_written(
    source: Path, tmp_path: Path, wanted: Conversion
) -> None:
    source.open("a").write('{"messages": [{"role": "tool", "content": "x"}]}\n')
    target = tmp_path / ("out" if wanted.dev else "a.parquet")
    with pytest.raises(DataError, match=r"talks.jsonl:21: messages\[0\]: a tool result without"):
        convert(source, target, wanted)
    assert [path.name for path in tmp_path.rglob("*")] == ["talks.jsonl"]


REAL = {
    "glaive_toolcall_en": (150, 7, "messages"),
    "reason_tool_use_demo": (25, 0, "messages"),
}
"""Rows of each file, how many of them say what an earlier one says, and the format."""


@few("name", REAL, fast=2)
def test_real_rows_are_converted_and_come_back(shared: Path, tmp_path: Path, name: str) -> None:
    file = shared / "data" / "tool" / f"{name}.jsonl"
    count, doubles, format = REAL[name]
    made = convert(
        file, tmp_path / "out", Conversion("verl", expand="each_turn", dev=0.2, text=TEXT)
    )
    every = read_rows(file, format)
    real = list({content_digest(row): row for row in every}.values())
    answers = [m for row in real for m in row.messages if m.role == "assistant"]
    back = {s: read_rows(tmp_path / "out" / f"{s}.parquet", "verl") for s in ("train", "test")}
    assert (len(every), len(real)) == (count, count - doubles)
    assert made.dropped == ({SAME: doubles} if doubles else {})
    assert sum(map(len, back.values())) == len(answers)
    targets = [row.messages[-1] for side in back.values() for row in side]
    assert sorted(map(repr, targets)) == sorted(map(repr, answers))


IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(20)


def shown(folder: Path) -> Path:
    """A row that shows an image of the folder."""
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "cat.png").write_bytes(IMAGE)
    content = [{"type": "image_url", "image_url": {"url": "images/cat.png"}}]
    said = {"role": "assistant", "content": "A cat."}
    row = {"id": "0", "messages": [{"role": "user", "content": content}, said]}
    (folder / "rows.jsonl").write_text(json.dumps(row))
    return folder / "rows.jsonl"


def test_rows_with_images_stay_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="an image, which assay convert cannot carry"):
        convert(shown(tmp_path / "in"), tmp_path / "in" / "b.jsonl", Conversion("messages"))
