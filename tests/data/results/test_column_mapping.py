"""Results of any tool by the names of columns: shapes as the tools' own writers leave them;
the right reader is found by what a file holds."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from assay.data.results.column_mapping import Columns
from assay.data.results.foreign_result import Result, model_arguments, quantisation
from assay.data.results.readers import READERS, read_results, recognise
from assay.errors import InputError
from tests.data.results.produced import FOLDER, PRODUCED
from tests.json_lines import json_lines

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


def rollouts(folder: Path, ids: list[int], questions: list[int], **more: object) -> Path:
    """verifiers' lines: an id, a prompt and the right answer of each rollout."""
    rows = (
        {"example_id": i, "prompt": [{"content": f"q{q}"}], "answer": q, "reward": n % 2, **more}
        for n, (i, q) in enumerate(zip(ids, questions, strict=True))
    )
    return lines(folder / "results.jsonl", *rows)


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


CSV = """item,run,score,repeat,output,note
a,base,1,0,yes,x
b,base,0,0,"two
lines",x
a,base,,1,,x
b,base,0.5,1,no,x
a,tuned,1,0,yes,x
"""


def table(folder: Path, text: str, name: str = "scores.csv") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def by_run(results: list[Result]) -> dict[str, Result]:
    return {result.run: result for result in results}


def test_every_run_of_a_csv_file_has_its_items_repeats_scores_and_outputs(tmp_path: Path):
    found = by_run(read_results(table(tmp_path, CSV)))
    assert list(found) == ["base", "tuned"]
    answers = [(a.item, a.repeat, a.score, a.output) for a in found["base"].answers]
    assert answers == [
        ("a", 0, 1.0, "yes"),
        ("b", 0, 0.0, "two\nlines"),
        ("a", 1, None, None),
        ("b", 1, 0.5, "no"),
    ]
    assert {r.metric for r in found.values()} == {"score"}
    assert not any(r.configured or r.checker or r.settings for r in found.values())


TRL, VERL = (
    FOLDER / "trl/completions/completions_00001.parquet",
    FOLDER / "verl/ray_trainer/10.jsonl",
)


@pytest.mark.parametrize(
    ("file", "item", "metric"), [(TRL, "prompt", "short"), (VERL, "input", "acc")]
)
def test_what_trainers_log_is_read_by_its_columns(file: Path, item: str, metric: str):
    (result,) = read_results(file, columns=Columns(item, metric))
    rows = pq.read_table(file).to_pylist() if file is TRL else json_lines(file)
    assert [a.score for a in result.answers] == [row[metric] for row in rows]
    assert [a.repeat for a in result.answers] == [0, 1] * (len(rows) // 2)
    assert len({a.item for a in result.answers}) == len(rows) // 2


@pytest.mark.parametrize("name", sorted(PRODUCED))
def test_files_of_every_tool_are_recognised(name: str):
    for file in PRODUCED[name]:
        assert recognise(file) == name, file


def test_every_reader_is_tried_on_a_file_that_its_tool_wrote():
    assert set(PRODUCED) | {"table"} == set(READERS)


RUNS, SOURCES = "item,run,score\n", "item,score,repeat,cluster\n"
ROW = '{"id": "a", "reward": 1.0, "text": "words"}\n'


@pytest.mark.parametrize(
    ("name", "content", "columns", "words"),
    [
        ("r.json", '{"loss": 1, "epoch": 2}', None, "epoch, loss .*--item.*lm-eval"),
        ("r.jsonl", "not json\n", None, "r.jsonl:1: malformed JSON"),
        ("r.jsonl", "", None, "is empty"),
        ("r.parquet", "PAR1 and no more", None, "not a parquet file"),
        ("r.eval", "PK and no more", None, "damaged zip"),
        ("r.csv", b"item,score\n\xff,1\n", None, "UTF-8"),
        ("rank_0.bin", b"\x93\x00\x81\x00", None, "binary file of no known format"),
        ("s.csv", RUNS + "a,r,good\n", None, "s.csv:2: score: is a string, not a number"),
        ("s.csv", RUNS + "a,r,85\n", None, "s.csv:2: .*85 lies outside 0 to 1 .*percentage"),
        ("s.csv", "itme,run,score\na,r,1\n", None, "s.csv:2: item: missing .*itme"),
        ("s.csv", "item,run,scores\na,r,x\n", None, "s.csv:2: score: missing .*'scores'"),
        ("s.csv", RUNS + "a,r,1\na,r,0\n", None, "s.csv:3: .*line 2 .*'repeat'"),
        ("s.jsonl", '{"item": "a", "score": 1}\n{"item": "b", "sc', None, "s.jsonl:2: malformed"),
        ("s.csv", SOURCES + "a,1,0,s\na,0,1,t\n", None, "item 'a' is in 's' and in 't'"),
        ("s.csv", SOURCES + "a,1,0,s\nb,0,0,\n", None, "is no source of item 'b'"),
        ("s.csv", SOURCES + "a,1,0,\nb,0,0,s\n", None, "other records name none"),
        ("r.jsonl", ROW, Columns("id", "rewrd"), "rewrd: missing .did you mean 'reward'"),
        ("r.jsonl", ROW, Columns("idd", "reward"), "r.jsonl:1: idd: missing .did you mean 'id'"),
        ("r.jsonl", ROW, Columns("id", "text"), "text: is a string, not a number"),
    ],
)
def test_what_holds_no_results_is_refused_by_file_line_and_field(
    tmp_path: Path, name: str, content: str | bytes, columns: Columns | None, words: str
):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=words) as refusal:
        read_results(tmp_path / name, columns=columns)
    assert name in str(refusal.value)


def test_the_model_is_named_by_some_arguments_and_every_other_may_change_an_answer():
    text = "pretrained=a/b,revision=v2,peft=c,load_in_4bit=True,max_gen_toks=32,house_option=x"
    found = model_arguments(text)
    assert found.identity == {"pretrained": "a/b", "revision": "v2", "peft": "c"}
    assert found.answers == {"load_in_4bit": True, "max_gen_toks": 32, "house_option": "x"}
    assert found.transport == {} and found.device is None


@pytest.mark.parametrize("idle", ["dtype=auto", "load_in_4bit=False", "revision=main"])
def test_an_argument_that_says_what_its_absence_says_is_absent(idle: str):
    assert model_arguments(f"pretrained=m,{idle}") == model_arguments("pretrained=m")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("org/base-7B-Instruct", ""),
        ("reports-2025-q3", ""),
        ("org/model-bnb-4bit", "4bit bnb"),
        ("org/model-4.65bpw-h6-exl2", "4.65bpw exl2"),
        ("/models/model-IQ2_XXS.gguf", "gguf iq2xxs"),
        ("model:8b-instruct-q4_K_M", "q4km"),
    ],
)
def test_a_models_name_says_how_it_is_quantised(name: str, form: str):
    assert quantisation(name) == form
    for argument in ("pretrained", "model", "gguf_file", "subfolder", "revision"):
        assert model_arguments({argument: name}).answers.get("quantisation", "") == form
    assert model_arguments("peft=x-4bit,pretrained=m").answers == {}
