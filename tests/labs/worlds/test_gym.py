"""Generated questions: the same in every process, apart between parts, judged by their own scorer,
which runs nothing that a model wrote."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.loaded import gather
from assay.data.row import Row
from assay.data.splits import conversation_of, split_by_conversation
from assay.errors import InputError
from assay.labs.worlds.gym import NAME, PACKAGE, SAME, answer_of, asked_package, read
from assay.labs.worlds.gym import items as items_of
from assay.tasks.running import RewardRunner
from assay.tasks.task import BenchmarkOptions, reward, task

GYM = task(NAME)
NEEDED = pytest.mark.skipif(find_spec(NAME) is None, reason="reasoning-gym is not installed")


def rows(names: str, **options: object) -> tuple[Row, ...]:
    return read(names, BenchmarkOptions(options)).rows


def judged(row: Row, *texts: str) -> list[float | None]:
    with RewardRunner(reward(GYM, "score"), 60.0, workers=1) as runner:
        return [each.value for each in runner.score([(row, Completion(t)) for t in texts])]


def made(question: str, place: int, again: bool = False) -> dict[str, object]:
    item = {"question": question, "answer": "4"}
    about = {"world": "sum", "level": None, "options": {}, "system": "", "again": again}
    return {"id": f"sum-{place}", "item": item, **about}


def test_an_answer_stands_in_its_tags_or_is_all_but_the_thought() -> None:
    assert answer_of("<think>5</think> 7\n") == "7"
    assert answer_of("<answer>1</answer> no, <answer> 2 </answer>") == "2"
    assert answer_of("<answer>2") == "2"


def test_a_question_that_comes_again_is_left_out_and_counted_and_alike_ones_stay_together() -> None:
    loaded = gather(items_of([made("2 + 2", 0), made("2 + 2", 1, True), made("2 - 2", 2)]))
    assert [row.id for row in loaded.rows] == ["sum-0", "sum-2"]
    assert loaded.dropped == {SAME: ("sum-1",)}
    assert {conversation_of(row) for row in loaded.rows} == {"sum-0"}


@pytest.mark.slow
@NEEDED
def test_rows_are_the_same_in_every_process_and_their_parts_share_no_question() -> None:
    chosen = {"rows": 60, "seed": 3, "level": [0, 1], "min_words": 3}
    first = rows("word_ladder+spell_backward", rows=24, seed=3)
    asked_package.cache_clear()
    assert first == rows("word_ladder+spell_backward", rows=24, seed=3)
    sums = rows("chain_sum", **{k: v for k, v in chosen.items() if k != "min_words"})
    assert {row.extra["level"] for row in sums} == {0, 1} and len(sums) == 60
    train, dev = split_by_conversation(sums, 0.3)
    asked = [{"".join(filter(str.isalnum, r.messages[0].content)) for r in s} for s in (train, dev)]
    assert not asked[0] & asked[1]
    other = rows("chain_sum", rows=60, seed=4, level=[0, 1])
    assert not {row.id for row in sums} & {row.id for row in other}


@pytest.mark.slow
@NEEDED
@pytest.mark.parametrize("name", ["chain_sum", "countdown", "n_queens", "simple_integration"])
def test_gold_earns_all_and_spoilt_answers_do_not(name: str) -> None:
    one, other = rows(name, rows=2, seed=1)
    gold, empty, exchanged = judged(one, one.gold, "", other.gold)
    assert gold == 1.0 and empty is not None and empty < 0.1
    assert exchanged is not None and exchanged < 1


HOSTILE = """
import json, sys
from assay.labs.worlds.gym_package import generator, score
code = "open({0!r}, 'w').write('x')".format(sys.argv[1])
parsed = "exec(" + "+".join(f"chr({ord(c)})" for c in code) + ")"
for name in ("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"):
    assert score(name, None, {}, generator(name, None, {}, 0, 1)[0], code) < 1
for name in ("countdown", "puzzle24", "simple_integration", "intermediate_integration",
             "polynomial_multiplication"):
    item = generator(name, None, {}, 0, 1)[0]
    assert score(name, None, {}, item, parsed) < 1
    assert score(name, None, {}, item, item["answer"]) == 1, (name, item["answer"])
"""


@pytest.mark.slow
@NEEDED
def test_no_scorer_runs_what_a_model_wrote(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOSTILE, str(tmp_path / "written")]
    subprocess.run(command, check=True)
    assert not (tmp_path / "written").exists()


@pytest.mark.slow
@NEEDED
@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        ("chain_sums", {}, "unknown task of reasoning_gym 'chain_sums' (did you mean 'chain_sum'"),
        ("chain_sum", {"terms": 3}, "chain_sum has no option 'terms'"),
        ("chain_sum", {"level": 99}, "chain_sum has the levels 0 to"),
        ("chain_sum", {"min_terms": 9, "max_terms": 2}, "chain_sum refuses them: AssertionError"),
        ("rubiks_cube", {}, "rubiks_cube has no gold answers"),
        ("chain_sum", {"rows": 50, "max_digits": 1, "max_terms": 1, "min_terms": 1}, "not 50"),
        ("chain_sum", {"rows": 0}, "must be a number from 1"),
    ],
)
def test_what_a_generator_does_not_have_is_refused(names, options, words) -> None:
    with pytest.raises(InputError) as refused:
        rows(names, **options)
    assert words in str(refused.value)


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch) -> None:
    monkeypatch.setattr("assay.labs.worlds.gym.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed \(pip install 'assay-lab\[worlds\]'\)"):
        asked_package("read", json.dumps(["chain_sum", {"rows": 1}]))


def test_the_worker_is_the_package_of_the_rows() -> None:
    assert GYM.rewards["score"].worker == f"{PACKAGE}:score"
