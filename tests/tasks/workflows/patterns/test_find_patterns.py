"""A planted pattern is found with its sign, shuffled rewards give no verdict, few data no claim."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from assay.judge.dependence import permutation_p
from assay.judge.group_effects import Effect
from assay.runs.records import write_samples
from assay.tasks.workflows.operator_choice import (
    THIRDS,
    OperatorChoice,
    choice_table,
    operator_choice,
    pass_rate_levels,
)
from assay.tasks.workflows.patterns_page import find_patterns
from assay.tasks.workflows.programs.program import shape_of
from assay.tasks.workflows.reward_patterns import (
    Pattern,
    PatternRequest,
    RecordedProgram,
    RewardPatterns,
    recorded_programs,
    reward_patterns,
)
from assay.tasks.workflows.rewards import Terms, solved
from tests.tasks.workflows.patterns.program_lab import (
    ANSWER,
    CUSTOM,
    ENSEMBLE,
    PROGRAMMER,
    PROGRAMMER_LOOP,
    Drawn,
    empty_run,
    execution,
    problem_row,
    program_run,
    rewarded,
    sample_line,
)

ALL = PatternRequest()
MATH_ALIKE = Drawn(weights={"math": (0.7, 0.1, 0.1, 0.05, 0.05)})


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> tuple[RecordedProgram, ...]:
    return recorded_programs(program_run(tmp_path_factory.mktemp("lab")), ALL).programs


@pytest.fixture(scope="module")
def choice(planted) -> OperatorChoice:
    return operator_choice(planted)


def shuffled(programs: Sequence[RecordedProgram], seed: int) -> list[RecordedProgram]:
    """The same programs with the rewards of each group in another order."""
    draw = np.random.default_rng(seed)
    groups: dict[str, list[RecordedProgram]] = {}
    for program in programs:
        groups.setdefault(program.group, []).append(program)
    found = []
    for own in groups.values():
        order = draw.permutation(len(own))
        given = [(own[n].reward, own[n].passed) for n in order]
        found += [replace(p, reward=r, passed=w) for p, (r, w) in zip(own, given, strict=True)]
    return found


def pattern(found: RewardPatterns, kind: str, value: str) -> Pattern:
    return next(p for p in found.patterns if (p.kind, p.value) == (kind, value))


def worth(choice: OperatorChoice, operator: str, problem_type: str) -> Effect:
    rows = {(row.kind, row.value): row for row in choice.by_type.rows}
    effect = rows["operator", operator].cells[problem_type].effect
    assert effect is not None
    return effect


def test_a_planted_pattern_is_found_with_its_sign_on_each_type(choice):
    on_math, on_qa = (worth(choice, "Programmer", kind) for kind in ("math", "qa"))
    assert (on_math.verdict, on_qa.verdict) == ("better", "worse")
    assert on_math.contrast.difference == pytest.approx(0.35, abs=0.1)
    assert on_qa.contrast.difference == pytest.approx(-0.25, abs=0.1)


def test_on_one_type_alone_every_pattern_of_the_good_programs_has_the_sign(planted):
    found = reward_patterns([p for p in planted if p.problem_type == "math"])
    good = pattern(found, "operator", "Programmer")
    assert good.effect.verdict == pattern(found, "combination", "Programmer").effect.verdict
    assert good.effect.verdict == "better" and good.high > good.low
    assert pattern(found, "operator", "Custom").effect.verdict == "worse"
    trees = {p.value: p.effect.verdict for p in found.patterns if p.kind == "tree"}
    shape = shape_of(PROGRAMMER_LOOP)
    assert shape is not None and trees[shape.fingerprint] == "better"


@pytest.mark.slow
def test_shuffled_rewards_give_no_verdict(planted):
    shown: dict[str, int] = {"patterns": 0, "cells": 0, "best": 0}
    for seed in range(20):
        programs = shuffled(planted, seed)
        found, choice = reward_patterns(programs), operator_choice(programs)
        cells = [c for row in choice.by_type.rows for c in row.cells.values()]
        shown["patterns"] += any(p.effect.verdict != "undecided" for p in found.patterns)
        shown["cells"] += any(c.effect and c.effect.verdict != "undecided" for c in cells)
        shown["best"] += any(b.verdict in ("another", "chosen") for b in choice.best)
    assert max(shown.values()) <= 3, shown


def test_the_best_choice_of_each_type_is_compared_with_the_one_made_most(tmp_path):
    weights = {"math": (0.1, 0.1, 0.3, 0.3, 0.2), "qa": (0.1, 0.1, 0.3, 0.3, 0.2)}
    choice = find_patterns(program_run(tmp_path, Drawn(weights=weights)), ALL).choice
    math, qa = choice.best
    assert (math.problem_type, math.chosen, math.verdict) == ("math", "Programmer", "chosen")
    assert (qa.problem_type, qa.chosen, qa.verdict) == ("qa", "Programmer", "another")
    assert qa.other != "Programmer" and qa.effect is not None
    assert (qa.effect.contrast.difference or 0) > 0


def test_a_policy_that_chooses_by_type_is_seen_and_one_that_does_not_is_not(tmp_path, choice):
    adapted = find_patterns(program_run(tmp_path, MATH_ALIKE), ALL).choice
    assert adapted.on_type.depends
    assert not choice.on_type.depends


def test_operators_that_follow_the_type_do_not_pass_for_following_difficulty(tmp_path):
    """All hard problems are math, and only the type is looked at."""
    drawn = Drawn(weights=MATH_ALIKE.weights, fields={"level": lambda n: 3 if n % 2 else 5})
    choice = find_patterns(program_run(tmp_path, drawn), ALL).choice
    assert choice.on_type.depends and not choice.on_difficulty.depends
    assert choice.difficulty == "level"


def naive_levels(programs: Sequence[RecordedProgram]) -> dict[str, str]:
    """Levels by the pass rate of all completions of a prompt, those that are counted included."""
    rates: dict[str, list[float]] = {}
    for program in programs:
        rates.setdefault(program.prompt, []).append(float(program.passed))
    means = {prompt: sum(found) / len(found) for prompt, found in rates.items()}
    return {p.id: THIRDS[(means[p.prompt] >= 1 / 3) + (means[p.prompt] >= 2 / 3)] for p in programs}


def test_a_good_choice_does_not_make_its_own_prompt_easy(tmp_path):
    """The policy never looks at the problem, and Programmer decides what passes."""

    def only_programmer(program: str, kind: str, ease: float) -> float:
        return 0.9 if "self.programmer(" in program else 0.1

    naive = halves = 0
    for seed in range(6):
        run = program_run(tmp_path, Drawn(only_programmer, seed=seed), f"run{seed}")
        programs = recorded_programs(run, ALL).programs
        for levels in (naive_levels(programs), pass_rate_levels(programs)):
            own = [p for p in programs if p.id in levels]
            _, p = permutation_p(choice_table(own, lambda p, at=levels: at[p.id]), 200)
            if len(own) == len(programs):
                naive += p < 0.05
            else:
                halves += p < 0.05
    assert naive >= 5 and halves <= 1


def test_difficulty_is_the_rows_own_field_where_it_has_one(tmp_path):
    run = program_run(tmp_path, Drawn(fields={"operations": lambda n: n % 9}, prompts=20))
    choice = find_patterns(run, ALL).choice
    assert choice.difficulty == "operations" and choice.measured == 320
    assert choice.by_difficulty.columns == ("0", "1", "2", "3", "4", "5", "6+")


def test_a_level_without_programs_has_no_cell(tmp_path):
    run = program_run(tmp_path, Drawn(lambda *_: 1.0, prompts=4))
    choice = find_patterns(run, ALL).choice
    assert choice.by_difficulty.columns == THIRDS
    assert all(row.cells.keys() == {"easy"} for row in choice.by_difficulty.rows)
    used = [c for row in choice.by_type.rows for c in row.cells.values() if not c.used]
    assert all(c.reward is None and c.cost is None for c in used)


def test_few_data_are_undecided_with_what_it_takes(tmp_path):
    found = find_patterns(program_run(tmp_path, Drawn(prompts=2)), ALL)
    effects = [p.effect for p in found.rewards.patterns]
    assert all(e.verdict == "undecided" and (e.needed or 0) > 0 for e in effects)
    assert all(b.verdict == "undecided" and (b.needed or 0) > 0 for b in found.choice.best)
    assert not found.choice.on_type.depends and found.choice.on_type.needed > 0


def small_run(tmp_path, programs: Sequence[tuple[str, bool]], errors: Sequence[str] = ()):
    """One group of programs, right or wrong, and of completions that are no valid programs."""
    run, row = empty_run(tmp_path), problem_row("a", "math")
    rewards = [(source, rewarded(row, source, right)) for source, right in programs]
    for error in errors:
        done = replace(execution("x", "invalid program"), program="x", error=error)
        rewards.append((f"no program {error}", solved(done, None, row, Terms())))
    lines = [sample_line(1, "a", n, text, reward) for n, (text, reward) in enumerate(rewards)]
    write_samples(run.samples("rl", 1), lines)
    return run


def test_sides_are_above_and_below_the_mean_of_the_own_group(tmp_path):
    run = small_run(tmp_path, [(CUSTOM, True), (CUSTOM, False), (ANSWER, False)], ["syntax"])
    found = find_patterns(run, ALL).rewards
    assert (found.high.completions, found.low.completions) == (1, 3)
    assert (found.low.valid, found.groups, found.with_signal) == (2, 1, 1)
    custom = pattern(found, "operator", "Custom")
    assert (custom.high, custom.low, custom.programs) == (1, 1, 2)


def test_what_is_common_on_both_sides_stands_for_neither(tmp_path):
    both = [(CUSTOM, right) for right in (True, False) for _ in range(4)]
    run = small_run(tmp_path, [*both, (PROGRAMMER, True), (ENSEMBLE, False)])
    found = find_patterns(run, ALL).rewards
    assert (found.high.program, found.low.program) == (PROGRAMMER, ENSEMBLE)
    assert (found.high.share, found.high.other_share) == (pytest.approx(1 / 5), 0)


def test_a_side_is_shown_by_the_shortest_program_of_the_shape_it_has_most_more_of(tmp_path):
    longer = CUSTOM.replace("Solve.", "Solve it, please.")
    right = [(longer, True), (CUSTOM, True), (PROGRAMMER, True)]
    run = small_run(tmp_path, [*right, (ENSEMBLE, False)], ["syntax", "not_awaited", "syntax"])
    found = find_patterns(run, ALL).rewards
    assert found.high.program == CUSTOM and found.high.share == pytest.approx(2 / 3)
    assert (found.low.tree, found.low.error) == ("", "syntax")
    assert found.low.share == pytest.approx(2 / 4)


def test_invalid_programs_count_as_a_pattern_and_in_no_other(tmp_path):
    found = find_patterns(small_run(tmp_path, [(CUSTOM, True)], ["syntax", "syntax"]), ALL)
    assert (found.completions, found.valid) == (3, 1)
    assert pattern(found.rewards, "valid", "valid").effect.contrast.difference == pytest.approx(
        1.2, abs=0.2
    )
    custom = pattern(found.rewards, "operator", "Custom")
    assert custom.effect.contrast.difference is None and custom.programs == 1
