"""What the benchmarks read and how they judge it is what BFCL's own handler and runner do."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.data.tools import function_names
from assay.engines.environments import ask
from assay.labs.tools.multi_turn import ADDED, MULTI_TURN, Added, MultiTurnDialogue
from assay.labs.tools.parsing import decode_bfcl
from assay.labs.tools.rewards import RELEVANCE
from assay.labs.tools.single_turn import CATEGORIES
from assay.labs.tools.task import TASK
from assay.tasks.running import RewardRunner
from assay.tasks.task import Benchmark, BenchmarkOptions, benchmark
from tests.labs.tools import bfcl_texts
from tests.labs.tools.upstream import PROGRAM, upstreams

Cases = dict[str, list[Any]]
"""By category."""
SIMULATOR = re.compile(r"\bmodel_\w+_instance\.")
FAILED = "Error during execution"
SINGLE = (*CATEGORIES, *RELEVANCE)


def made(category: str, **options: Any) -> Benchmark:
    return benchmark(TASK, f"bfcl/{category}", BenchmarkOptions(options))


def drawn(categories: Sequence[str], texts: int, seed: str) -> dict[str, list[list[Any]]]:
    """About so many texts, or dialogues, of each category, of entries evenly spread."""
    return {
        category: bfcl_texts.cases(
            items := made(category).items, -(-len(items) // texts), -(-texts // len(items)), seed
        )
        for category in categories
    }


def differences(cases: Cases, upstream: Cases) -> tuple[list, Counter]:
    """The cases that are judged otherwise here, and how often each error of upstream's is."""
    found, errors = [], Counter()
    for category, asked in cases.items():
        bench = made(category)
        pairs = [(bench.items[index], said) for index, said in asked]
        judged = dialogues(bench, pairs) if bench.dialogue else singles(bench, pairs)
        for (row, said), here, there in zip(pairs, judged, upstream[category], strict=True):
            if bench.dialogue:
                heard = [Message(m["role"], m["content"]) for m in there["tools"]["asked"][-1][0]]
                expected = results(heard)
                if here[2][: len(expected)] != expected:
                    found.append((row.id, said, here[2], expected))
                for added in ADDED.values():
                    expected = list(starmap(outline, there[added]["asked"]))
                    if (asked := questions(row, said, added)) != expected:
                        found.append((row.id, added, asked, expected))
                there = there["tools"]["error"]
            errors[there] += 1
            if here[:2] != (there == "", there):
                found.append((row.id, said, here[:2], there))
    return found, errors


def singles(bench: Benchmark, pairs: Sequence[tuple[Any, str]]) -> list[tuple[Any, ...]]:
    judged = []
    for row, text in pairs:
        try:
            value = bench.score(row, Completion(text)).value
            judged.append((value == 1, bench.classify(row, Completion(text))))
        except Exception:  # as upstream's own checker does
            judged.append((False, "upstream raises"))
    return judged


def dialogues(bench: Benchmark, pairs: Sequence[tuple[Any, list[str]]]) -> list[tuple[Any, ...]]:
    assert bench.dialogue is not None
    played = []
    for row, texts in pairs:
        said, coming = bench.dialogue(row), iter(texts)
        while said.asks() is not None:
            said.hears(next(coming, ""), "stop")
        played.append((row, Completion("", messages=said.messages)))
    with RewardRunner(bench.score, workers=1) as runner:
        rewards = runner.score(played)
    return [
        (reward.value == 1, bench.classify(*pair), results(pair[1].messages))
        for reward, pair in zip(rewards, played, strict=True)
    ]


def questions(row: Row, texts: Sequence[str], added: Added) -> list[Any]:
    """All that the model is asked where functions are added in this place."""
    said, coming = MultiTurnDialogue(row, added=added, decode=decode_bfcl), iter(texts)
    asked = []
    while (now := said.asks()) is not None:
        messages = [{"role": m.role, "content": m.content} for m in now.messages]
        asked.append(outline(messages, function_names(now.tools)))
        said.hears(next(coming, ""))
    return asked


def outline(messages: Sequence[Mapping[str, Any]], functions: Sequence[str]) -> list[Any]:
    """Who spoke, the words of the user, and what may be called."""
    said = [[m["role"], m["content"] if m["role"] == "user" else ""] for m in messages]
    return [said, list(functions)]


def results(messages: Sequence[Message]) -> list[str]:
    """What the calls gave; a call that fails may say so in other words, and upstream writes a
    simulator's name into an argument that looks like a call."""
    found = [SIMULATOR.sub("", m.content) for m in messages if m.role == "tool"]
    return [FAILED if each.startswith(FAILED) else each for each in found]


def test_answers_of_every_category_are_judged_as_upstream_judges_them(tmp_path: Path) -> None:
    cases = drawn(SINGLE, 200, "one")
    assert sum(map(len, cases.values())) >= 2000
    found, errors = differences(cases, upstreams(cases, tmp_path))
    assert found == []
    # Right and wrong answers of many kinds, or the comparison said little.
    assert errors[""] > 300 and len(errors) > 12


@pytest.mark.slow
def test_so_are_dialogues_and_their_calls_give_what_they_give_there(tmp_path: Path) -> None:
    cases = drawn(MULTI_TURN, 8, "some")
    found, errors = differences(cases, upstreams(cases, tmp_path))
    assert found == []
    assert errors[""] and len(errors) > 1, "right and wrong dialogues occur"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", ["two", "three"])
def test_so_are_all_by_the_package_as_it_is_installed(seed: str, tmp_path: Path) -> None:
    cases = drawn(SINGLE, 400, seed) | drawn(MULTI_TURN, 60, seed)
    request = {"wheel": "", "scratch": str(tmp_path), "cases": cases}
    found, _ = differences(cases, ask("bfcl", PROGRAM, request, timeout=3000))
    assert found == []
