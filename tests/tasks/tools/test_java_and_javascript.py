"""Java and JavaScript: gold answers, upstream's verdicts, and answers that keep a pattern busy."""

import importlib.metadata
import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Row, ToolCall
from assay.engines.environments import ask
from assay.tasks.running import RewardRunner
from assay.tasks.task import Benchmark, BenchmarkOptions, benchmark
from assay.tasks.tools.checker import LANGUAGES
from assay.tasks.tools.parsing import call_text
from assay.tasks.tools.rewards import SOURCE
from assay.tasks.tools.task import TASK
from tests.few import few

PROGRAM = Path(__file__).with_name("upstream_v4.py")
SIZES = {"simple_java": (100, 90), "simple_javascript": (50, 50)}
"""Entries, and those with an answer in the language that upstream's checker accepts."""


def made(category: str, **options: str) -> Benchmark:
    return benchmark(TASK, f"bfcl/{category}", BenchmarkOptions(options))


def scored(bench: Benchmark, pairs: list[tuple[Row, str]], deadline: float = 60.0) -> list:
    with RewardRunner(bench.score, deadline=deadline, workers=1) as runner:
        rewards = runner.score([(row, Completion(text)) for row, text in pairs])
    return [(reward.value, reward.outcome) for reward in rewards]


def gold(row: Row) -> str:
    return call_text(TASK.target(row).tool_calls)


@few("category", reversed(LANGUAGES), fast=1)
def test_gold_answers_score_and_empty_and_shuffled_ones_do_not(category: str):
    bench = made(category, parser="strict")
    rows = [row for row in bench.items if "no_target" not in row.extra]
    assert (len(bench.items), len(rows)) == SIZES[category]
    rows = rows[::2]
    wrong = [(row, "") for row in rows]
    wrong += [(row, gold(other)) for row, other in itertools.pairwise(rows)][::4]
    found = scored(bench, [*((row, gold(row)) for row in rows), *wrong])
    assert found[: len(rows)] == [(1.0, "right")] * len(rows)
    assert {value for value, _ in found[len(rows) :]} == {0.0}


def test_values_that_are_no_source_text_are_refused_as_upstream_does():
    bench = made("simple_java", parser="strict")
    row = next(row for row in bench.items if "true" in gold(row))
    (call,) = TASK.target(row).tool_calls
    typed = {name: True if text == "true" else text for name, text in call.arguments.items()}
    assert typed != call.arguments
    said = call_text([ToolCall(call.name, typed)])
    assert scored(bench, [(row, said)]) == [(0.0, "type_error:java")]


@pytest.mark.slow
def test_an_array_that_keeps_upstreams_pattern_busy_is_a_wrong_answer():
    bench = made("simple_javascript", parser="strict")
    row = next(row for row in bench.items if "[" in str(TASK.target(row).tool_calls[0].arguments))
    (call,) = TASK.target(row).tool_calls
    busy = "[[]" + ",[]" * 40 + "x"
    spoiled = {name: busy if "[" in text else text for name, text in call.arguments.items()}
    said = call_text([replace(call, arguments=spoiled)])
    assert scored(bench, [(row, said)], deadline=1.0) == [(0.0, "timed out")]


def test_without_upstreams_tree_sitter_source_text_is_not_available(monkeypatch):
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert "'tree-sitter==0.21.3'" in made("simple_java", parser=SOURCE).missing
    assert made("simple_java", parser="strict").missing == ""


def changed(call: ToolCall, rng: random.Random) -> ToolCall:
    """A call as models spoil it."""
    arguments = dict(call.arguments)
    name = rng.choice(sorted(arguments)) if arguments else ""
    texts = ["true", "3", '"quoted"', "new int[]{1, 2}", "{'a': 1}", "[1, 2]", "new HashMap<>()", 3]
    texts += [None, "5L", "[[1], [2]]", "new ArrayList<>()", "2.5f", "'c'"]
    match rng.randrange(5):
        case 0 if name:
            del arguments[name]
        case 1 | 2 if name:
            arguments[name] = rng.choice(texts)
        case 3:
            arguments["more"] = "1"
    return ToolCall(call.name, arguments)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("category", LANGUAGES)
def test_verdicts_are_those_of_the_whole_package(category: str, tmp_path: Path):
    rng, bench = random.Random(5), made(category, parser="strict")
    rounds = []
    for _ in range(4):
        calls = [
            changed(row.messages[-1].tool_calls[0], rng) if row.messages[-1].tool_calls else None
            for row in bench.items
        ]
        rounds.append([call_text([call]) if call else "" for call in calls])
    request = {"scratch": str(tmp_path), "answers": [[category, "fc", texts] for texts in rounds]}
    theirs = ask("bfcl", PROGRAM, request, timeout=1500)["answers"]
    found = set()
    for texts, errors in zip(rounds, theirs, strict=True):
        ours = scored(bench, list(zip(bench.items, texts, strict=True)))
        for (value, outcome), error, text in zip(ours, errors, texts, strict=True):
            # Where upstream's handler reads no calls it hands on an empty list.
            assert (value == 1.0) == (error == ""), (text, outcome, error)
            assert not text or outcome == (error or "right"), text
        found |= set(errors)
    assert len(found) >= 5
