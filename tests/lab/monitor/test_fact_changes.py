"""What samples say between two steps: form, error families, operators, variety, fallback."""

import random

import pytest

from assay.judge.share_changes import Counts
from assay.lab.monitor.fact_changes import FactChanges, ShareRow
from assay.lab.monitor.progress import Progress, progress
from assay.runs.run_directory import RunDirectory
from assay.tasks.fact_reading import plain_facts
from assay.tasks.workflows.execution import FAMILIES, OTHER, family_of
from assay.tasks.workflows.programs.validate import CODES
from tests.lab.monitor.program_runs import Made, Of, program_run
from tests.lab.watched import watched_run


def told(run: RunDirectory, **span: int) -> Progress:
    found = progress(run, "rl", span.get("first"), span.get("last"))
    assert found is not None
    return found


def facts(run: RunDirectory, **span: int) -> FactChanges:
    found = told(run, **span).facts
    assert found is not None
    return found


def named(rows: tuple[ShareRow, ...], name: str) -> ShareRow:
    (one,) = [row for row in rows if row.name == name]
    return one


STEPS = {1: 15, 2: 15, 3: 14, 4: 10, 5: 10}
"""44 completions until step 3, 20 after it, as in report 003."""
PLANTED = {(1, 0, 0): "no_program", (1, 1, 1): "forbidden_name", (3, 2, 0): "forbidden_name"}
PLANTED |= {(2, 0, 1): "llm_attribute", (3, 1, 2): "llm_attribute"}
PLANTED |= {(4, 0, 3): "llm_attribute", (5, 1, 0): "unknown_attribute"}


def report_003(step: int, prompt: int, number: int) -> Made:
    return Made(PLANTED.get((step, prompt, number), ""))


def test_the_counts_of_report_003_are_found_in_the_records_and_show_no_change(tmp_path):
    found = facts(program_run(tmp_path, report_003, 5, sizes=STEPS), first=3, last=5)
    assert found.completions == (44, 20)
    assert found.form is not None and found.fallback is not None
    rows = {
        "form": (found.form, (43, 44), (20, 20)),
        "fallback": (found.fallback, (0, 44), (0, 20)),
        "eval": (named(found.errors, "forbidden"), (2, 44), (0, 20)),
        "API": (named(found.errors, "llm attribute"), (2, 44), (2, 20)),
    }
    for row, before, after in rows.values():
        assert (row.before, row.after) == (Counts(*before), Counts(*after))
        assert row.change.direction == "none"
    assert found.form.change.detectable is not None


def test_an_operator_that_earns_more_beside_others_of_its_prompt_is_told_apart(tmp_path):
    """Every second prompt is easy for all: it has no side, and its operators do not count."""

    def of(step: int, prompt: int, number: int) -> Made:
        name = ("Programmer", "Custom")[number % 2]
        return Made(operators=(name, "Review"), solved=prompt % 2 == 0 or name == "Programmer")

    by_reward = {each.name: each for each in facts(program_run(tmp_path, of, 6)).by_reward}
    assert list(by_reward) == ["Review", "Custom", "Programmer"]
    best, worst, both = (by_reward[name] for name in ("Programmer", "Custom", "Review"))
    assert (best.high, best.low) == (Counts(24, 24), Counts(0, 24)) == (worst.low, worst.high)
    assert best.difference.value == -worst.difference.value == 1.0
    assert best.difference.interval is not None and best.difference.interval.low > 0.3
    assert both.difference.value == 0.0 and both.difference.clusters == 12


def spoiled(share: float, error: str, since: int, seed: int = 0) -> Of:
    """One completion in twenty fails anyhow; a share more of them with `error` after a step."""
    draw = random.Random(seed)

    def of(step: int, prompt: int, number: int) -> Made:
        if step > since and draw.random() < share:
            return Made(error, ())
        return Made(draw.choice(("raised KeyError", "unknown_key")) if draw.random() < 0.05 else "")

    return of


def test_a_planted_rise_of_one_kind_of_error_is_found_in_its_family_alone(tmp_path):
    run = program_run(tmp_path, spoiled(0.3, "forbidden_name", 10), 20)
    found = facts(run, first=10)
    assert {row.name: row.change.direction for row in found.errors}["forbidden"] == "rise"
    others = [row for row in found.errors if row.name != "forbidden"]
    assert others and {row.change.direction for row in others} == {"none"}
    assert named(found.outcomes, "right").change.direction == "fall"


def test_noise_is_no_change(tmp_path):
    moved = 0
    for seed in range(4):
        run = program_run(tmp_path / str(seed), spoiled(0.0, "", 10, seed), 20)
        moved += sum(row.change.direction != "none" for row in facts(run, first=10).errors)
    assert moved <= 1


def test_kinds_of_a_family_are_told_apart(tmp_path):
    kinds = {0: "raised KeyError", 1: "raised KeyError", 2: "raised TypeError", 3: "limit cpu"}
    run = program_run(tmp_path, lambda s, p, n: Made(kinds[n] if s == 1 else ""), 2)
    found = facts(run)
    assert [row.name for row in found.errors] == ["raised", "timeout"]
    raised = found.errors[0]
    assert raised.before == Counts(12, 16) and raised.after == Counts(0, 16)
    assert [(kind.name, kind.before.count) for kind in raised.kinds] == [
        ("raised KeyError", 8),
        ("raised TypeError", 4),
    ]


def test_counts_over_time_cover_every_step_once(tmp_path):
    run = program_run(tmp_path, spoiled(0.2, "syntax", 0), 20)
    found = facts(run, first=10)
    row = named(found.errors, "syntax")
    assert len(found.stretches) == 6
    assert (found.stretches[0][0], found.stretches[-1][1]) == (1, 20)
    assert sum(c.count for c in row.over_time) == row.before.count + row.after.count
    assert sum(c.trials for c in row.over_time) == 20 * 16


def test_a_change_of_operators_is_found_and_counted_by_combination(tmp_path):
    def of(step: int, prompt: int, number: int) -> Made:
        late = ("Custom", "ScEnsemble")
        return Made(operators=late if step > 5 and number else ("Programmer", "AnswerGenerate"))

    found = facts(program_run(tmp_path, of, 10), first=5)
    assert named(found.operators, "ScEnsemble").change.direction == "rise"
    assert named(found.operators, "Programmer").change.direction == "fall"
    both = named(found.combinations, "AnswerGenerate+Programmer")
    assert (both.before, both.after) == (Counts(80, 80), Counts(20, 80))
    assert named(found.combinations, "Custom+ScEnsemble").after == Counts(60, 80)


def variety(found: FactChanges) -> dict[str, tuple[float, float]]:
    values = {}
    for each in found.variety:
        assert each.change.before is not None and each.change.after is not None
        values[each.name] = (each.change.before.value, each.change.after.value)
    return values


def test_variety_is_counted_inside_groups(tmp_path):
    def of(step: int, prompt: int, number: int) -> Made:
        if step <= 5:
            return Made(variable=f"v{number}")
        return Made(operators=("Custom",) * (number % 2), operator=("Custom", "Review")[number % 2])

    found = variety(facts(program_run(tmp_path, of, 10), first=5))
    assert found["combinations"] == (1, 2)
    assert found["trees"] == (1, 2), "names alone make no other tree"
    assert found["repeated"] == (0, 0.5), "texts that differ in names are no repeats"


@pytest.mark.parametrize(("temperature", "likely"), [(0.1, True), (1.0, False)])
def test_equal_samples_of_a_group_are_put_down_to_a_low_temperature(tmp_path, temperature, likely):
    run = program_run(tmp_path, lambda s, p, n: Made(), 4, temperature=temperature)
    alike = facts(run).alike
    assert alike is not None
    assert (alike.share, alike.temperature, alike.likely_cause) == (0.75, temperature, likely)
    varied = program_run(tmp_path / "b", lambda s, p, n: Made(variable=f"v{n}"), 4, temperature=0.1)
    assert facts(varied).alike is None


def test_without_a_step_before_there_is_no_change(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(), 1)
    found = facts(run)
    assert found.completions == (16, 0) and found.form is not None
    assert found.form.change.after is None and not found.form.change.tested


def test_a_task_whose_rewards_note_nothing_has_no_such_section(tmp_path):
    found = told(watched_run(tmp_path))
    assert (found.facts, found.calls, found.pair) == (None, None, None)


def test_every_code_of_the_validator_is_of_a_family():
    families = {code: family_of(code) for code in CODES}
    assert OTHER not in families.values() and set(families.values()) <= set(FAMILIES)
    assert family_of("limit deadline") == family_of("limit cpu") == "timeout"
    assert (
        family_of("limit memory") == "limit" and family_of("operator malformed")[:8] == "operator"
    )
    assert family_of("something new") == OTHER


def test_facts_of_a_sum_of_rewards_are_found_by_their_names():
    assert plain_facts({"solved/error": "x", "other/error": "y", "cost": 1}) == {
        "error": "x",
        "cost": 1,
    }
