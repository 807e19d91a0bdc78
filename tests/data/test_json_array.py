"""Files that are one JSON array: the records that lines would give, errors with their line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.formats.formats import read_records, read_rows
from assay.data.loaded import DataError, sound

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
        ('[{"a": 1},\n {"b": 2}', 2, "expected a comma or the array's end"),
        ('[{"a": 1}]\n{"b": 2}', 1, "text behind the array"),
        ('[{"a": 1},\n 5]', 2, "is an integer, not an object"),
        ('[{"a": 1},\n {"b": "\\ud800"}]', 2, "half of a surrogate pair"),
        ('[{"a":\n 1,\n}]', 3, "Expecting property name"),
        ("[" * 100_000, 1, "nested too deeply"),
        ("[", 1, "Expecting value"),
    ],
)
def test_what_is_wrong_in_an_array_is_said_with_its_line(tmp_path: Path, text, line, problem):
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(DataError, match=problem) as caught:
        list(sound(read_records(file)))
    assert str(caught.value).startswith(f"{file}:{line}:")


def test_bytes_that_are_not_text_are_named_with_their_line(tmp_path: Path):
    file = tmp_path / "rows.json"
    file.write_bytes(b'[{"a": 1},\n{"b": "\xff"}]')
    with pytest.raises(DataError, match="is not UTF-8") as caught:
        list(sound(read_records(file)))
    assert str(caught.value).startswith(f"{file}:2:")


def test_a_data_set_may_be_an_array(tmp_path: Path):
    file = tmp_path / "rows.json"
    answers = [{"role": "assistant", "content": said} for said in ("Hello", "Good day")]
    talks = [{"messages": [{"role": "user", "content": "Hi"}, answer]} for answer in answers]
    file.write_text(json.dumps(talks, indent=1))
    rows = list(read_rows(file, "messages"))
    assert [row.origin for row in rows] == [f"{file}:2", f"{file}:14"]
