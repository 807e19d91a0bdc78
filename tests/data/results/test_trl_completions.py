"""TRL's completions: one metric for each reward function, null where it gave none."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.data.loaded import DataError
from assay.data.results.readers import read_results
from tests.data.results.produced import FOLDER

FILE = FOLDER / "trl/completions/completions_00001.parquet"


def test_every_reward_function_is_a_metric_with_its_values():
    rows = pq.read_table(FILE).to_pylist()
    results = read_results(FILE)
    assert [result.metric for result in results] == ["short", "even"]
    for result in results:
        assert [a.score for a in result.answers] == [row[result.metric] for row in rows]
        assert [a.output for a in result.answers] == [row["completion"] for row in rows]
        assert result.run == "trl/completions_00001"


def test_items_are_prompts_and_repeats_their_completions():
    answers = read_results(FILE)[0].answers
    assert len({answer.item for answer in answers}) == 12
    assert sorted(answer.repeat for answer in answers) == [0] * 12 + [1] * 12
    again = read_results(FILE.with_name("completions_00002.parquet"))[0].answers
    assert {a.item for a in again} == {a.item for a in answers}


def test_conversations_are_prompts_and_completions_too(tmp_path: Path):
    rows = [
        {
            "step": 1,
            "prompt": [{"role": "user", "content": f"question {n // 2}"}],
            "completion": [{"role": "assistant", "content": f"answer {n}"}],
            "reward": float("nan") if n == 3 else 1.0,
            "advantage": 0.0,
        }
        for n in range(4)
    ]
    file = tmp_path / "completions_00001.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    (result,) = read_results(file)
    assert [a.repeat for a in result.answers] == [0, 1, 0, 1]
    assert [a.score for a in result.answers] == [1.0, 1.0, 1.0, None]
    assert "answer 2" in (result.answers[2].output or "")


def test_a_damaged_file_is_named(tmp_path: Path):
    raw = FILE.read_bytes()
    for content in (
        raw[: len(raw) // 2],
        raw[:4] + bytes(len(raw) // 2) + raw[len(raw) // 2 + 4 :],
    ):
        (tmp_path / "broken.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"broken\.parquet: is a damaged parquet file"):
            read_results(tmp_path / "broken.parquet")
