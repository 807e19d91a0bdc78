"""The right reader is found by what a file holds, and a file of no known kind is refused."""

from pathlib import Path

import pytest

from assay.data.loaded import DataError
from assay.data.results.readers import READERS, read_results, recognise
from assay.errors import InputError
from tests.data.results.produced import PRODUCED


@pytest.mark.parametrize("name", sorted(PRODUCED))
def test_files_of_every_tool_are_recognised(name: str):
    for file in PRODUCED[name]:
        assert recognise(file) == name, file


def test_every_reader_is_tried_on_a_file_that_its_tool_wrote():
    assert set(PRODUCED) | {"table"} == set(READERS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.json", b'{"loss": 1, "epoch": 2}', ("r.json", "epoch, loss", "--format", "lm-eval")),
        ("r.jsonl", b'{"loss": 1}\n', ("r.jsonl", "loss")),
        ("r.jsonl", b"not json\n", ("r.jsonl:1", "malformed JSON")),
        ("r.jsonl", b"\n\n", ("r.jsonl", "no rows")),
        ("r.jsonl", b"", ("r.jsonl", "empty")),
        ("r.parquet", b"PAR1 and no more", ("r.parquet", "damaged parquet")),
        ("r.eval", b"PK and no more", ("r.eval", "damaged zip")),
        ("r.csv", b"item,score\n\xff,1\n", ("r.csv", "UTF-8")),
        ("rank_0.bin", b"\x93\x00\x81\x00", ("rank_0.bin", "binary file of no known format")),
    ],
)
def test_what_is_no_file_of_results_is_refused_by_name(
    tmp_path: Path, name: str, content: bytes, words: tuple[str, ...]
):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((InputError, DataError)) as refusal:
        read_results(tmp_path / name)
    assert all(word in str(refusal.value) for word in words), refusal.value


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path: Path):
    with pytest.raises(InputError, match="did you mean 'inspect-ai'"):
        read_results(tmp_path / "x.json", "inspect")


def test_missing_files_and_folders_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no such file"):
        read_results(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match="folder"):
        read_results(tmp_path)
