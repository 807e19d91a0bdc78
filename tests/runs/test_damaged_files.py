"""Damaged files of runs, and files nested without end, are one line with their name."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.runs.history import answers_in, evaluation_records, find_samples
from assay.runs.records import read_scores
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile
from tests.pages.synthetic import add_scores, empty_run
from tests.written import as_written


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = empty_run(tmp_path)
    add_scores(run, "base", [0.0, 1.0])
    return run


def damaged(run: RunDirectory, kind: str) -> Path:
    (file,) = run.evaluations.glob("*/*.parquet")
    if kind == "empty":
        file.write_bytes(b"")
    elif kind == "half":
        file.write_bytes(file.read_bytes()[:200])
    elif kind == "columns":
        pq.write_table(pa.table({"x": [1]}), file)
    else:
        table = pq.read_table(file)
        place = table.schema.get_field_index("score")
        texts = pa.array(["good"] * len(table))
        pq.write_table(table.set_column(place, "score", texts), file)
    return file


@pytest.mark.parametrize("kind", ["empty", "half", "columns", "types"])
def test_a_damaged_record_is_named_by_whoever_reads_it(run: RunDirectory, kind: str) -> None:
    file = damaged(run, kind)
    (record,) = evaluation_records(run)
    for read in (
        lambda: read_scores(run, record, "base"),
        lambda: find_samples(run, "simple_python_0"),
    ):
        with pytest.raises(DamagedFile) as found:
            read()
        assert str(file) in str(found.value)
        assert "\n" not in str(found.value)


def test_a_flipped_bit_of_a_record_is_never_another_answer(run: RunDirectory) -> None:
    """Every value stands in a page with a checksum of its own, which every reader compares."""
    (record,) = evaluation_records(run)
    (file,) = run.evaluations.glob("*/*.parquet")
    before = file.read_bytes()
    right, found = answers_in(record.file(run.evaluations, "base")), 0
    for place in range(0, len(before) * 8, 97):
        changed = bytearray(before)
        changed[place // 8] ^= 1 << place % 8
        file.write_bytes(changed)
        try:
            assert answers_in(record.file(run.evaluations, "base")) == right
        except DamagedFile:
            found += 1
    assert found > 100


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"repeats": 1', '"repeats": "one"'),
        ('"items": [', '"items": [3, '),
        ('"sampling": {', '"sampling": [], "other": {'),
    ],
)
def test_a_description_of_the_wrong_kind_is_damaged(run: RunDirectory, old: str, new: str) -> None:
    (file,) = run.evaluations.glob("*/evaluation.json")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    as_written(file)
    with pytest.raises(DamagedFile, match=r"evaluation\.json: cannot be read"):
        evaluation_records(run)
