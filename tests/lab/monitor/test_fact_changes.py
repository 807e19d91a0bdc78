"""What samples and calls say between two steps: form, errors, operators, variety, costs."""

import random

import pytest

from assay.judge.binomial import Counts
from assay.lab.monitor.progress import FactChanges, FactRow, Progress, failure_type, progress
from assay.labs.workflows.execution import CODES, FAMILIES, OTHER, family_of
from assay.runs.run_directory import RunDirectory
from tests.lab.monitor.program_runs import Made, Of, add_calls, call, program_run
from tests.lab.watched import watched_run


def told(run: RunDirectory, **span: int) -> Progress:
    found = progress(run, "rl", span.get("first"), span.get("last"))
    assert found is not None
    return found


def facts(run: RunDirectory, **span: int) -> FactChanges:
    found = told(run, **span).facts
    assert found is not None
    return found


def rows(found: FactChanges, table: str) -> dict[str, FactRow]:
    return {row.name: row for row in found.rows(table)}


def means(found: FactChanges, table: str) -> dict[str, tuple[float, float]]:
    both = {name: (row.change.before, row.change.after) for name, row in rows(found, table).items()}
    return {name: (b.value, a.value) for name, (b, a) in both.items() if b and a}


STEPS = {1: 15, 2: 15, 3: 14, 4: 10, 5: 10}
"""44 completions until step 3, 20 after it, as in report 003."""
PLANTED = {(1, 0, 0): "no_program", (1, 1, 1): "forbidden_name", (3, 2, 0): "forbidden_name"}
PLANTED |= {(2, 0, 1): "llm_attribute", (3, 1, 2): "llm_attribute"}
PLANTED |= {(4, 0, 3): "llm_attribute", (5, 1, 0): "unknown_attribute"}


def test_the_counts_of_report_003_are_found_in_the_records_and_show_no_change(tmp_path):
    def made(step: int, prompt: int, number: int) -> Made:
        return Made(PLANTED.get((step, prompt, number), ""))

    found = facts(program_run(tmp_path, made, 5, sizes=STEPS), first=3, last=5)
    assert found.completions == (44, 20)
    marks, errors = rows(found, "form"), rows(found, "errors")
    counts = {
        "form": (marks["form"], (43, 44), (20, 20)),
        "fallback": (marks["fallback"], (0, 44), (0, 20)),
        "eval": (errors["forbidden"], (2, 44), (0, 20)),
        "API": (errors["llm attribute"], (2, 44), (2, 20)),
    }
    for row, before, after in counts.values():
        assert (row.before, row.after) == (Counts(*before), Counts(*after))
        assert row.change.direction == "none"
    assert marks["form"].change.detectable is not None


def test_an_operator_that_earns_more_beside_others_of_its_prompt_is_told_apart(tmp_path):
    """Every second prompt is easy for all: it has no side, and its operators do not count."""

    def of(step: int, prompt: int, number: int) -> Made:
        name = ("Programmer", "Custom")[number % 2]
        return Made(operators=(name, "Review"), solved=prompt % 2 == 0 or name == "Programmer")

    by_reward = rows(facts(program_run(tmp_path, of, 6)), "by_reward")
    assert list(by_reward) == ["Review", "Custom", "Programmer"]
    best, worst, both = (by_reward[name] for name in ("Programmer", "Custom", "Review"))
    assert (best.after, best.before) == (Counts(24, 24), Counts(0, 24))
    assert (worst.before, worst.after) == (Counts(24, 24), Counts(0, 24))
    assert best.difference and worst.difference and both.difference
    assert best.difference.value == -worst.difference.value == 1.0
    assert best.difference.interval is not None and best.difference.interval.low > 0.3
    assert both.difference.value == 0.0 and both.difference.clusters == 12
    assert (best.change.direction, both.change.direction) == ("rise", "none")


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
    changed = {name: row.change.direction for name, row in rows(found, "errors").items()}
    assert changed.pop("forbidden") == "rise" and set(changed.values()) == {"none"}


def test_kinds_of_a_family_are_counted_together_and_named(tmp_path):
    kinds = {0: "raised KeyError", 1: "raised KeyError", 2: "raised TypeError", 3: "limit cpu"}
    run = program_run(tmp_path, lambda s, p, n: Made(kinds[n] if s == 1 else ""), 2)
    found = [(row.name, row.kinds, row.before) for row in facts(run).rows("errors")]
    assert found == [
        ("raised", ("raised KeyError", "raised TypeError"), Counts(12, 16)),
        ("timeout", ("limit cpu",), Counts(4, 16)),
    ]


def test_a_change_of_operators_is_found(tmp_path):
    def of(step: int, prompt: int, number: int) -> Made:
        late = ("Custom", "ScEnsemble")
        return Made(operators=late if step > 5 and number else ("Programmer", "AnswerGenerate"))

    found = facts(program_run(tmp_path, of, 10), first=5)
    assert rows(found, "operators")["ScEnsemble"].change.direction == "rise"
    both = rows(found, "operators")["Programmer"]
    assert (both.before, both.after) == (Counts(80, 80), Counts(20, 80))


def test_without_facts_there_is_no_table_and_without_a_step_before_no_change(tmp_path):
    found = facts(program_run(tmp_path, lambda s, p, n: Made(), 1))
    assert found.completions == (16, 0)
    assert rows(found, "form")["form"].change.interval is None
    (tmp_path / "plain").mkdir()
    plain = told(watched_run(tmp_path / "plain"))
    assert plain.facts is None


@pytest.mark.parametrize(
    ("why", "name"),
    [
        ("endpoint: HTTP 429: slow down", "HTTP 429"),
        ("endpoint: deadline", "timeout"),
        ("endpoint: garbled answer: {", "unreadable answer"),
        ("no such thing", "other"),
    ],
)
def test_failures_have_types(why, name):
    assert failure_type(why) == name


def flaky(run: RunDirectory, since: int) -> None:
    """A call for each completion; the first of each prompt fails after a step."""
    calls = []
    failure = {"status": "failed", "why": "endpoint: HTTP 429", "cost": 0}
    for step, prompt, number in (
        (s, p, n) for s in range(1, 11) for p in range(4) for n in range(4)
    ):
        more = failure if step > since and not number else {}
        calls.append(call(step, f"row_{step}_{prompt}", number, **more))
    add_calls(run, calls)


def test_failed_calls_are_counted_by_type(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(), 10)
    flaky(run, since=5)
    found = facts(run, first=5)
    error = rows(found, "api_errors")["HTTP 429"]
    assert (error.before, error.after) == (Counts(0, 80), Counts(20, 80))
    assert error.change.direction == "rise"


def test_costs_are_of_steps_completions_and_calls(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(), 10)
    asked = [(s, f"row_{s}_{p}", n) for s in range(1, 11) for p in range(4) for n in (0, 1)]
    add_calls(run, [call(*row, cost=1_000_000 if row[0] <= 5 else 3_000_000) for row in asked * 2])
    found = facts(run, first=5)
    costs = means(found, "costs")
    assert costs["call"] == pytest.approx((0.001, 0.003))
    assert costs["problem"] == pytest.approx((0.002, 0.006))
    assert costs["step"] == pytest.approx((0.016, 0.048))
    assert {row.change.direction for row in found.rows("costs")} == {"rise"}


def test_a_cost_that_is_not_known_is_no_number(tmp_path):
    run = program_run(tmp_path, lambda s, p, n: Made(), 4)
    add_calls(run, [call(1, "row_1_0", 0, cost=None, prompt_price=None, completion_price=None)])
    found = facts(run, first=2)
    assert found.unknown_cost and not found.rows("costs")


def test_every_code_of_the_validator_is_of_a_family():
    families = {family_of(code) for codes in CODES.values() for code in codes.split()}
    assert OTHER not in families and families <= set(FAMILIES)
    assert family_of("limit deadline") == family_of("limit cpu") == "timeout"
    assert family_of("limit memory") == "limit"
    assert family_of("operator malformed")[:8] == "operator"
    assert family_of("something new") == OTHER
