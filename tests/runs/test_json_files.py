"""A damaged file of a lab is one line that names it, never a trace."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.runs.run_files import DamagedFile, as_entry, entries, read_json


@dataclass(frozen=True)
class Entry:
    name: str
    step: int = 0


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\x00", "[" * 100_000, '{"a": }'])
def test_what_is_no_object_is_named_with_its_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(DamagedFile) as found:
        read_json(file, dict)
    assert str(found.value).startswith(f"{file}: cannot be read: ")
    assert "\n" not in str(found.value)


def test_a_journal_is_read_up_to_its_torn_end_and_damage_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    assert entries(file, Entry) == []
    file.write_text('{"name": "a"}\n{"name": "b", "step": 2}\n{"na')
    assert entries(file, Entry) == [Entry("a"), Entry("b", 2)]
    file.write_text('{"name": "a"}\n{"mood": 1}\n')
    with pytest.raises(DamagedFile, match=r"journal.jsonl:2: .*'mood'"):
        entries(file, Entry)
    with pytest.raises(DamagedFile, match="missing 1 required"):
        as_entry(Entry, {}, file)
