"""Results of any tool by the names of columns: shapes as the tools' own writers leave them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.data.loaded import DataError
from assay.data.results.column_mapping import Columns
from assay.data.results.readers import read_results
from assay.errors import InputError

Seen = list[tuple[str, int, float | None]]


def lines(file: Path, *rows: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def seen(file: Path, columns: Columns, cluster: str | None = None) -> Seen:
    (result,) = read_results(file, cluster=cluster, columns=columns)
    return [(answer.item, answer.repeat, answer.score) for answer in result.answers]


def test_an_item_that_comes_again_is_its_next_repeat(tmp_path: Path):
    """verifiers' results.jsonl has a line for each rollout, in the order of completion."""
    rows = [{"example_id": i, "prompt": [], "reward": r} for i, r in ((0, 1.0), (1, 0.0), (0, 0.5))]
    file = lines(tmp_path / "results.jsonl", *rows)
    columns = Columns("example_id", "reward")
    assert seen(file, columns) == [("0", 0, 1.0), ("1", 0, 0.0), ("0", 1, 0.5)]


def test_names_with_dots_lead_through_tables_and_lists(tmp_path: Path):
    """prime-rl's traces.jsonl; a failed episode has no trace, and so no score."""
    traces = [{"rewards": {"correct": {"score": 1.0, "weight": 0.5}}}]
    good = {"task": {"key": "a", "data": {"idx": 0}}, "traces": traces, "ok": True}
    failed = {"task": {"key": "b", "data": {"idx": 1}}, "traces": [], "ok": False}
    file = lines(tmp_path / "traces.jsonl", good, failed)
    columns = Columns("task.key", "traces.0.rewards.correct.score")
    assert seen(file, columns) == [("a", 0, 1.0), ("b", 0, None)]


def test_structs_of_parquet_are_tables(tmp_path: Path):
    """lighteval's details_TASK_DATE.parquet."""
    rows = [{"doc": {"id": "7"}, "metric": {"em": 1, "f1": 0.5}, "model_response": {"text": ["x"]}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "details.parquet")
    columns = Columns("doc.id", "metric.f1")
    assert seen(tmp_path / "details.parquet", columns) == [("7", 0, 0.5)]


def test_rows_are_found_in_the_document_and_words_count_where_all_hold(tmp_path: Path):
    """evalplus' eval_results.json; HumanEval+ is passed where both sets of tests are."""
    held = {"A/0": [("pass", "pass"), ("pass", "fail")], "A/1": [("fail", "pass")]}
    table = {
        task: [{"task_id": task, "base_status": b, "plus_status": p} for b, p in found]
        for task, found in held.items()
    }
    file = tmp_path / "eval_results.json"
    file.write_text(json.dumps({"date": "x", "hash": "y", "eval": table}))
    base = [("A/0", 0, 1.0), ("A/0", 1, 1.0), ("A/1", 0, 0.0)]
    assert seen(file, Columns("task_id", "base_status=pass")) == base
    both = [("A/0", 0, 1.0), ("A/0", 1, 0.0), ("A/1", 0, 0.0)]
    assert seen(file, Columns("task_id", "base_status=pass,plus_status=pass")) == both


def test_rows_without_ids_are_named_by_their_place(tmp_path: Path):
    """OpenCompass' results with details: a table with one word in it, or a list."""
    rows = [{"pred": "1", "correct": True}, {"pred": "2", "correct": False}]
    table = {"type": "GEN", **{str(n): row for n, row in enumerate(rows)}}
    for details in (table, rows):
        file = tmp_path / "gsm8k.json"
        file.write_text(json.dumps({"accuracy": 50.0, "details": details}))
        assert seen(file, Columns("@key", "correct")) == [("0", 0, 1.0), ("1", 0, 0.0)]


def test_only_the_rows_that_were_asked_for_are_answers(tmp_path: Path):
    """OpenAI evals logs events; the first and the last line are none."""
    file = lines(
        tmp_path / "log.jsonl",
        {"spec": {"run_id": "r"}},
        {"sample_id": "s.0", "type": "sampling", "data": {"sampled": "x"}},
        {"sample_id": "s.0", "type": "match", "data": {"correct": True}},
        {"final_report": {"accuracy": 1.0}},
    )
    asked = Columns("sample_id", "data.correct", where=("type=match",))
    assert seen(file, asked) == [("s.0", 0, 1.0)]
    with pytest.raises(DataError, match=r"no row has type=mach.*did you mean 'match'"):
        seen(file, Columns("sample_id", "data.correct", where=("type=mach",)))
    with pytest.raises(DataError, match=r"log.jsonl:1: sample_id: missing .*--where"):
        seen(file, Columns("sample_id", "data.correct"))
    with pytest.raises(InputError, match="is not COLUMN=TEXT"):
        seen(file, Columns("sample_id", "data.correct", where=("match",)))


def test_csv_cells_are_read_as_what_they_say(tmp_path: Path):
    """A table that W&B exported."""
    file = tmp_path / "wandb.csv"
    file.write_text('id,"eval/correct",try,doc\n01,true,2,d\n01,False,1,d\n02,,1,e\n02,0.5,2,e\n')
    columns = Columns("id", "eval/correct", repeat="try")
    found = [("01", 2, 1.0), ("01", 1, 0.0), ("02", 1, None), ("02", 2, 0.5)]
    assert seen(file, columns) == found
    (result,) = read_results(file, cluster="doc", columns=columns)
    assert result.clusters == {"01": "d", "02": "e"}


def test_a_prompt_may_be_the_item(tmp_path: Path):
    prompts = [[{"role": "user", "content": "a"}], "x" * 9000]
    file = lines(tmp_path / "r.jsonl", *({"prompt": p, "reward": 1} for p in prompts))
    names = [item for item, _, _ in seen(file, Columns("prompt", "reward"))]
    assert len(set(names)) == 2
    assert all(len(name) == 16 for name in names)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (Columns("id", "rewrd"), "rewrd: missing .did you mean 'reward'"),
        (Columns("idd", "reward"), "r.jsonl:1: idd: missing .did you mean 'id'"),
        (Columns("id", "info.rewrd"), "did you mean 'info.reward'"),
        (Columns("id", "text"), "text: is a string, not a number"),
        (Columns("id", "text=wods"), "no row has text=wods .did you mean 'words'"),
        (Columns("id", "reward", repeat="text"), "text: is no number of a pass"),
        (Columns("id", "reward", repeat="n"), "'a' is also the item of line 1"),
    ],
)
def test_what_a_file_does_not_have_is_named_with_what_it_has(
    tmp_path: Path, columns: Columns, said: str
):
    row = {"id": "a", "reward": 1.0, "info": {"reward": 2}, "text": "words", "n": 1}
    with pytest.raises(DataError, match=said):
        seen(lines(tmp_path / "r.jsonl", row, row), columns)


def rollouts(folder: Path, ids: list[int], questions: list[int], **more: object) -> Path:
    """verifiers' lines: an id, a prompt and the right answer of each rollout."""
    pairs = enumerate(zip(ids, questions, strict=True))
    return lines(
        folder / "results.jsonl",
        *(
            {
                "example_id": i,
                "prompt": [{"content": f"q{q}"}],
                "answer": q,
                "reward": n % 2,
                **more,
            }
            for n, (i, q) in pairs
        ),
    )


REWARD = Columns("example_id", "reward")
QUESTIONS = [*range(8)] * 4


@pytest.mark.parametrize(
    "ids", [list(range(32)), [n // 4 for n in range(32)]], ids=["over all", "shifted"]
)
def test_ids_that_do_not_follow_the_questions_give_way_to_them(tmp_path: Path, ids: list[int]):
    """verifiers counts all rollouts, or every `rollouts_per_example` lines, of questions that come
    round again (vf-eval of 0.1.3: `ids = [i // rollouts_per_example ...]`)."""
    file = rollouts(tmp_path, ids, QUESTIONS)
    found = seen(file, REWARD)
    assert len({item for item, _, _ in found}) == 8
    assert [repeat for _, repeat, _ in found] == [n // 8 for n in range(32)]
    assert len({found[n][0] for n in (3, 11, 19, 27)}) == 1
    (result,) = read_results(file, columns=REWARD)
    assert [each.code for each in result.remarks] == ["ids_are_repeats"]


def test_a_question_in_a_table_of_its_row_is_found_as_well(tmp_path: Path):
    rows = [
        {"id": n, "doc": {"question": n % 2, "answer": n % 2}, "output": {"x": n}, "score": 1}
        for n in range(4)
    ]
    (result,) = read_results(lines(tmp_path / "a.jsonl", *rows), columns=Columns("id", "score"))
    assert [each.code for each in result.remarks] == ["ids_are_repeats"]
    assert len({answer.item for answer in result.answers}) == 2
    # An answer in another table than the question is the model's.
    apart = [
        row | {"doc": {"question": row["doc"]["question"]}, "output": {"answer": 7}} for row in rows
    ]
    (result,) = read_results(lines(tmp_path / "b.jsonl", *apart), columns=Columns("id", "score"))
    assert [each.code for each in result.remarks] == ["questions_repeat"]


@pytest.mark.parametrize(
    ("ids", "questions", "more", "told"),
    [
        (QUESTIONS, QUESTIONS, {}, []),
        ([0, 1, 2, 3], [0, 1, 2, 2], {}, ["questions_repeat"]),
        ([0, 1, 2, 3], [0, 0, 1, 1], {"answer": None}, ["questions_repeat"]),
        ([0, 0, 1, 1], [0, 1, 2, 3], {}, ["questions_repeat"]),
        ([0, 1, 2, 3], [7, 7, 7, 7], {}, ["questions_repeat"]),
    ],
    ids=["ids of questions", "uneven", "without answer", "two under one id", "one question"],
)
def test_ids_stay_where_questions_are_not_asked_equally_often(
    tmp_path: Path, ids: list[int], questions: list[int], more: dict, told: list
):
    file = rollouts(tmp_path, ids, questions, **more)
    (result,) = read_results(file, columns=REWARD)
    assert [each.code for each in result.remarks] == told
    assert [answer.item for answer in result.answers] == list(map(str, ids))
    numbered = Columns("example_id", "reward", "pass")
    file = rollouts(tmp_path, [0, 0], [0, 1], **{"pass": 0})
    with pytest.raises(DataError, match="is also the item"):
        read_results(file, columns=numbered)
