"""Format sensitivity: upstream's prompts, its reading of every format, and what it reports."""

import functools
import itertools
import random
from collections import Counter
from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Row
from assay.engines.environments import ask
from assay.tasks.running import RewardRunner
from assay.tasks.task import Benchmark, BenchmarkOptions, benchmark
from assay.tasks.tools.single_turn import config_of, spread
from assay.tasks.tools.task import TASK

PROGRAM = Path(__file__).with_name("upstream_v4.py")


@functools.cache
def made() -> Benchmark:
    """The benchmark, which takes seconds to read."""
    return benchmark(TASK, "bfcl/format_sensitivity", BenchmarkOptions())


def answerable() -> list[Row]:
    return [row for row in made().items if "no_target" not in row.extra]


def scored(pairs: list[tuple[Row, str]], deadline: float = 60.0) -> list[tuple[float | None, str]]:
    with RewardRunner(made().score, deadline=deadline, workers=1) as runner:
        rewards = runner.score([(row, Completion(text)) for row, text in pairs])
    return [(reward.value, reward.outcome) for reward in rewards]


def gold(row: Row) -> str:
    return TASK.target(row).content


def test_200_questions_are_asked_in_26_formats_and_6_have_no_answer_that_upstream_reads():
    counts = Counter(config_of(row.id) for row in made().items)
    assert len(counts) == 26 and set(counts.values()) == {200}
    assert len({row.conversation for row in made().items}) <= 200
    lost = {config_of(row.id).split("&")[0] for row in made().items if "no_target" in row.extra}
    assert len(made().items) - len(answerable()) == 6 and lost == {"ret_fmt=json"}


@pytest.mark.slow
def test_gold_answers_score_in_every_format_and_others_do_not():
    rows = answerable()[::97]
    assert len({config_of(row.id) for row in rows}) == 26
    wrong = [(row, "") for row in rows]
    wrong += [(row, gold(other)) for row, other in itertools.pairwise(rows)]
    found = scored([*((row, gold(row)) for row in rows), *wrong])
    assert found[: len(rows)] == [(1.0, "right")] * len(rows)
    assert {value for value, _ in found[len(rows) :]} == {0.0}


def test_a_sum_of_literals_is_computed_and_nothing_else_is_run():
    docs = [{"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}, "required": []}}]
    extra = {"category": "simple_python_0", "functions": docs, "form": {"form": "python"}}
    row = Row("r", answerable()[0].messages, gold=[{"f": {"x": [2]}}], extra=extra)
    outcomes = {
        "[f(x=1+1)]": "right",
        "[f(x=__import__('os').getpid() * 0 + 2)]": "ast_decoder:decoder_failed",
        "<think>[f(x=3)]</think>\n\n[f(x=2)]": "right",
    }
    found = scored([(row, text) for text in outcomes])
    assert [outcome for _, outcome in found] == [*outcomes.values()]
    [(value, outcome)] = scored([(row, "[f(x=(9**9**9))]")], deadline=0.3)
    assert outcome == "timed out" or value is None


def test_the_spread_is_of_accuracies_by_format():
    ids = [f"format_sensitivity_{n}:c{n % 2}:x" for n in range(8)]
    assert spread(dict.fromkeys(ids, 1.0)) == (0.0, 0.0)
    scores = {name: float(n % 2 or n < 4) for n, name in enumerate(ids)}
    assert spread(scores) == (50.0, 35.36)


def changed(text: str, rng: random.Random) -> str:
    """A text as models spoil it."""
    place = rng.randrange(len(text) + 1)
    cut, words = text[:place], ["<TOOLCALL>", "```json\n", "Here: ", "'", "]", "</functions>"]
    choices = [cut, text + "\nDone.", rng.choice(words) + text, f"`{text}`", text.replace('"', "'")]
    choices += [
        text.replace("TOOLCALL", "toolcall"),
        f"<think>{text}",
        f"<think>no</think>\n{text}",
    ]
    choices += [
        text.replace("1", "1.0"),
        text.replace("[", "", 1),
        text.replace("integer", "float"),
    ]
    return rng.choice([*choices, text, text])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_prompts_verdicts_and_figures_are_those_of_the_whole_package(tmp_path: Path):
    rng = random.Random(11)
    rows = answerable()[::3]
    texts = {row.id: changed(gold(row), rng) for row in rows}
    request = {"scratch": str(tmp_path), "formats": texts}
    theirs = ask("bfcl", PROGRAM, request, timeout=1500)["formats"]
    for row in rows:
        asked = [{"role": m.role, "content": m.content} for m in row.prompt]
        assert asked == theirs["asked"][row.id]
    ours = scored([(row, texts[row.id]) for row in rows])
    errors = [theirs["errors"][row.id] or "right" for row in rows]
    assert [outcome for _, outcome in ours] == errors
    assert len(set(errors)) > 5 and 0.2 < errors.count("right") / len(errors) < 0.9
    delta, deviation = spread({row.id: v or 0.0 for row, (v, _) in zip(rows, ours, strict=True)})
    header = theirs["header"]
    assert (delta, deviation) == (header["accuracy_max_delta"], header["accuracy_std"])
