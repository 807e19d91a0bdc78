"""Every changed bit, cut and lost file of a folder is found, and named."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.files import CHECKSUMS, find_damage, recorded_checksums, write_checksums


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "inner").mkdir()
    (folder / "a.bin").write_bytes(bytes(range(64)))
    (folder / "inner" / "b.json").write_text("{}\n")
    write_checksums(folder)
    return folder


def test_the_record_is_the_sha256_of_each_file(folder: Path):
    expected = {
        "a.bin": hashlib.sha256(bytes(range(64))).hexdigest(),
        "inner/b.json": hashlib.sha256(b"{}\n").hexdigest(),
    }
    assert recorded_checksums(folder) == expected
    assert find_damage(folder) == []


@given(st.sampled_from(["a.bin", "inner/b.json", CHECKSUMS]), st.integers(0, 10**6))
def test_one_changed_bit_anywhere_is_found_in_its_file(folder: Path, name: str, place: int):
    file = folder / name
    before = file.read_bytes()
    changed = bytearray(before)
    changed[place // 8 % len(before)] ^= 1 << place % 8
    try:
        file.write_bytes(changed)
        found = find_damage(folder)
    finally:
        file.write_bytes(before)
    assert [damage.file for damage in found] == [file]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {}, "sha256": "x"}'])
def test_a_record_that_was_cut_is_the_damaged_file_itself(tmp_path: Path, text: str):
    (tmp_path / CHECKSUMS).write_text(text)
    (damage,) = find_damage(tmp_path)
    assert damage.file.name == CHECKSUMS
