"""Samples and evaluation records: their columns, and chunks that survive a kill."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.runs.records import (
    ANSWERS,
    CLUSTER,
    SAMPLES,
    EvaluationRecord,
    RecordWriter,
    read_scores,
    write_samples,
    write_table,
)
from assay.runs.run_directory import RunDirectory
from tests.sample_lines import read_samples, sample_line

RECORD = EvaluationRecord(
    name="bfcl",
    benchmark="bfcl/simple_python",
    role="report",
    items=("a", "b"),
    items_hash="h",
    repeats=3,
    sampling={"temperature": 1.0, "max_tokens": 8},
    rendering="r",
    checker="c 1",
    options={},
    seed=1,
)
CHUNKS = [[("a", 0), ("a", 1)], [("a", 2), ("b", 0)], [("b", 1), ("b", 2)]]


def line(item: str, repeat: int) -> dict[str, object]:
    return {
        "sample_id": f"bfcl/base/{item}#{repeat}",
        "item_id": item,
        "repeat": repeat,
        "output": "x" * repeat,
        "tokens": [1, 2, repeat],
        "completion_tokens": 3,
        "prompt_tokens": 9,
        "score": None if repeat == 2 else float(item == "a"),
        "parts": json.dumps({"format": 1.0}),
        "error": "",
        "why": "",
        "ended": "stop",
        "seconds": 0.25,
    }


def write(folder: Path, killed_after: int | None = None) -> Path:
    """Write the record as an evaluation does; stop after so many new chunks."""
    with RecordWriter(folder, RECORD, "base") as writer:
        fresh = 0
        for index, pairs in enumerate(CHUNKS):
            if writer.has_chunk(index):
                continue
            if fresh == killed_after:
                raise KeyboardInterrupt
            writer.write_chunk(index, [line(*pair) for pair in pairs])
            fresh += 1
        return writer.finish()


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_writer_stopped_between_chunks_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    whole = write(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "cut", 1)
    parts = whole.parent.relative_to(tmp_path / "whole") / "base.parts"
    first = tmp_path / "cut" / parts / "00000.parquet"
    assert sorted(p.name for p in first.parent.iterdir()) == ["00000.parquet"]
    written = RecordWriter.write_chunk
    again: list[int] = []
    monkeypatch.setattr(
        RecordWriter, "write_chunk", lambda *given: (again.append(given[1]), written(*given))
    )
    file = write(tmp_path / "cut")
    assert again == [1, 2], "a chunk that is there is not written again"
    assert digest(file) == digest(whole)
    assert not first.parent.exists()


def test_a_record_keeps_order_types_and_abstentions(tmp_path):
    table = pq.read_table(write(tmp_path))
    assert table.schema.equals(ANSWERS)
    assert table.to_pylist() == [line(*pair) for pairs in CHUNKS for pair in pairs]
    assert table.column("score").null_count == 2


def test_samples_read_back_as_written(tmp_path):
    told = {"behaviour_logps": [-0.5, 0.0], "reward": None, "why": "deadline", "ended": "length"}
    sample = sample_line(1, "a", 0, **told)
    write_samples(tmp_path / "step.parquet", [sample])
    assert read_samples(tmp_path / "step.parquet") == [sample]
    del sample["visit"]
    older = pa.schema([column for column in SAMPLES if column.name != "visit"])
    write_table(tmp_path / "older.parquet", [sample], older)
    assert read_samples(tmp_path / "older.parquet") == [sample]


@pytest.mark.parametrize(
    "change",
    [
        {"items_hash": "i"},
        {"sampling": {"temperature": 0.5, "max_tokens": 8}},
        {"checker": "c 2"},
        {"options": {"examples": 3}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_an_answer_or_its_score_makes_another_record(change):
    assert replace(RECORD, **change).key != RECORD.key
    assert RECORD.key.startswith("bfcl-")
    assert replace(RECORD).key == RECORD.key


def test_a_record_keeps_the_source_of_its_items(tmp_path: Path):
    run = RunDirectory(tmp_path, "r", "1")
    with RecordWriter(run.evaluations, RECORD, "base") as writer:
        for index, pairs in enumerate(CHUNKS):
            lines = [{**line(*pair), CLUSTER: "scene"} for pair in pairs]
            writer.write_chunk(index, lines if index else [line(*pair) for pair in pairs])
        writer.finish()
    scores = read_scores(run, RECORD, "base")
    assert scores.sources == 1, "a chunk of an earlier version has no sources, its items may"
    assert scores.clusters == ("scene", "scene")


def test_half_a_surrogate_pair_costs_one_character_and_not_the_file(tmp_path):
    said = {"messages": "[]", "turns": []}
    broken = line("a", 0) | {"output": "x\ud800", "why": "\udfff", "messages": '["\ud83d"]'}
    write_table(tmp_path / "r.parquet", [broken | {"turns": []}, line("b", 0) | said], ANSWERS)
    table = pq.read_table(tmp_path / "r.parquet")
    assert table["output"].to_pylist() == ["x\ufffd", ""]
    assert table["why"].to_pylist() == ["\ufffd", ""]
    assert json.loads(table["messages"].to_pylist()[0]) == ["\ufffd"]
