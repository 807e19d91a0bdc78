"""What completions are compared with, and what counts as one prompt."""

import json

from assay.runs.records import FACTS, write_samples
from assay.tasks.workflows.patterns_page import find_patterns
from assay.tasks.workflows.reward_patterns import PatternRequest, recorded_programs
from tests.tasks.workflows.patterns.program_lab import (
    CUSTOM,
    PROGRAMMER,
    add_answers,
    empty_run,
    problem_row,
    rewarded,
    sample_line,
)

ROW = problem_row("a", "math", operations=3)
RIGHT, WRONG = rewarded(ROW, CUSTOM, True), rewarded(ROW, PROGRAMMER, False)


def test_two_visits_to_a_row_are_two_groups_of_one_prompt(tmp_path):
    run = empty_run(tmp_path)
    lines = [
        sample_line(1, "a", 0, "x", RIGHT),
        sample_line(1, "a", 1, "x", RIGHT),
        sample_line(1, "a", 2, "x", WRONG, visit=1),
        sample_line(1, "a", 3, "x", WRONG, visit=1),
    ]
    write_samples(run.samples("rl", 1), lines)
    found = find_patterns(run, PatternRequest())
    assert (found.rewards.groups, found.rewards.with_signal, found.prompts) == (2, 0, 1)


def test_items_of_one_source_are_one_prompt_and_groups_of_their_own(tmp_path):
    run = empty_run(tmp_path)
    answers = [(item, CUSTOM, reward) for item in "abc" for reward in (RIGHT, WRONG)]
    add_answers(run, "base", answers, sources={"a": "talk", "b": "talk"})
    programs = recorded_programs(run, PatternRequest(evaluation="problems")).programs
    assert [p.prompt for p in programs] == ["talk"] * 4 + ["c"] * 2
    assert [p.group for p in programs] == ["a", "a", "b", "b", "c", "c"]


def test_a_program_has_what_its_record_says(tmp_path):
    run = empty_run(tmp_path)
    write_samples(run.samples("rl", 1), [sample_line(1, "a", 0, "```python\n...", RIGHT)])
    (found,) = recorded_programs(run, PatternRequest()).programs
    assert (found.problem_type, found.passed, found.text) == ("math", True, CUSTOM)
    assert found.reward == RIGHT.value and found.cost == RIGHT.facts["cost"] == 0.001
    assert found.difficulty == {"operations": 3.0}
    assert found.shape is not None and found.shape.combination == "Custom"


def test_an_answer_that_costs_something_passed_all_the_same(tmp_path):
    assert RIGHT.value is not None and RIGHT.value < 1
    run = empty_run(tmp_path)
    add_answers(run, "base", [("a", CUSTOM, RIGHT), ("a", PROGRAMMER, WRONG)])
    found = recorded_programs(run, PatternRequest(evaluation="problems")).programs
    assert [each.passed for each in found] == [True, False]


def test_an_unknown_cost_is_absent_and_an_abstention_has_no_reward(tmp_path):
    run = empty_run(tmp_path)
    unknown = {name: value for name, value in RIGHT.facts.items() if name != "cost"}
    line = sample_line(1, "a", 0, "x", RIGHT) | {FACTS: json.dumps(unknown), "reward": None}
    write_samples(run.samples("rl", 1), [line])
    found = find_patterns(run, PatternRequest())
    assert (found.completions, found.abstained, found.valid) == (1, 1, 1)
    (row, *_) = found.choice.by_type.rows
    assert (row.cells["math"].used, row.cells["math"].cost, row.cells["math"].reward) == (
        1,
        None,
        None,
    )
