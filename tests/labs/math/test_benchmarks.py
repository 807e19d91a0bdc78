"""Benchmarks read the questions that their options name, and refuse options that name none."""

from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion, Reward
from assay.data.hub_rows import HubSet
from assay.data.loaded import Record
from assay.errors import InputError
from assay.labs.math import task
from assay.labs.math.rewards import allowed_errors, gold_answer, olympiad_accuracy
from assay.tasks import task as tasks
from assay.tasks.task import BenchmarkOptions

MATH = tasks.task("math")
FILES = {
    "math/gsm8k": ("gsm8k_test", 659, "18"),
    "math/math500": ("math500", 250, r"\left( 3, \frac{\pi}{2} \right)"),
    "math/amc23": ("amc23", 20, "27"),
    "math/olympiadbench": ("olympiadbench", 338, "2"),
}


def made(name: str, root: Path = Path(), **options: Any) -> tasks.Benchmark:
    return tasks.benchmark(MATH, name, BenchmarkOptions(options, root))


@pytest.mark.parametrize("name", FILES)
def test_a_benchmark_holds_every_item_of_its_file(shared: Path, name: str) -> None:
    file, count, first = FILES[name]
    benchmark = made(name, shared, path=f"data/math/{file}.jsonl")
    assert len(benchmark.items) == count and gold_answer(benchmark.items[0]) == first
    assert benchmark.options["path"] == f"data/math/{file}.jsonl"
    assert "math-verify 0.9.0" in benchmark.checker


def test_olympiadbench_is_judged_by_its_own_rules_with_the_tolerance_of_the_row(
    shared: Path,
) -> None:
    benchmark = made("math/olympiadbench", shared, path="data/math/olympiadbench.jsonl")
    assert benchmark.score is olympiad_accuracy and "OlympiadBench" in benchmark.checker
    (loose,) = [item for item in benchmark.items if allowed_errors(item)]
    asked = olympiad_accuracy.ask(loose, Completion(r"\boxed{4.3\%}"))
    assert not isinstance(asked, Reward)
    assert (asked["gold"], asked["tolerances"], asked["unit"]) == ("4.2", [0.1], "%")
    assert any(item.extra["is_multiple_answer"] for item in benchmark.items)


def test_the_usual_data_set_of_the_hub_needs_no_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[HubSet] = []

    def records(wanted: HubSet, root: Path) -> list[Record]:
        asked.append(wanted)
        return [Record(f"hf:{wanted.name}", 1, {"question": "1?", "answer": "#### 1"})]

    monkeypatch.setattr(task, "hub_records", records)
    (item,) = made("math/gsm8k", hf="openai/gsm8k").items
    made("math/gsm8k", hf="openai/gsm8k", split="train", revision="abc")
    own = made("math/gsm8k", hf="me/own", split="test")
    assert item.origin == "hf:openai/gsm8k:1"
    assert asked == [
        HubSet("openai/gsm8k", "main", "test"),
        HubSet("openai/gsm8k", "main", "train", "abc"),
        HubSet("me/own", None, "test"),
    ]
    assert own.options == {"format": "gsm8k", "hf": "me/own", "split": "test"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"options: math/gsm8k has neither path nor hf .*hf = \"openai/gsm8k\""),
        ({"path": "a", "hf": "b"}, "options: math/gsm8k has both path and hf"),
        ({"path": "a.jsonl", "split": "test"}, "options.split: a file has none"),
    ],
)
def test_options_that_name_no_questions_are_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        made("math/gsm8k", tmp_path, **options)
