"""The tables of costs: what is not known is N/A, and nothing is 0 that was not measured to be."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.lab.monitor.run_costs import run_costs
from assay.pages.command_tables import costs_page
from assay.pages.words import words
from assay.runs.cost_ledger import LedgerCall
from assay.runs.metrics import append_metrics
from assay.runs.run_directory import RunDirectory, create_run
from tests.lab.monitor import program_runs
from tests.pages.pages import printed

SPEC = """
name = "r"
task = "math"
[data.d]
source = "path:d.jsonl"
format = "messages"
[stage.rl]
method = "grpo"
data   = "d"
steps  = 20
prompts = 2
group = 2
sampling = { max_tokens = 4 }
reward = "accuracy"
"""
CALL = replace(program_runs.CALL, cost=2_000_000)


def run_with(folder: Path, *calls: LedgerCall, steps: int = 0) -> RunDirectory:
    run = create_run(folder, "r", seed=0, spec=SPEC)
    for step in range(1, steps + 1):
        append_metrics(run.metrics, "rl", step, 1.0)
    program_runs.add_calls(run, calls)
    return run


def text(run: RunDirectory, lang: str = "en") -> str:
    return printed(costs_page(run_costs(run), words(lang)), lang)


def test_sums_of_a_part_are_those_of_its_calls(tmp_path):
    calls = [
        replace(CALL, step=step, problem=f"p{n}", operator="Custom")
        for step in (1, 2)
        for n in (1, 2, 3)
    ]
    hits = [replace(CALL, step=2, problem="p1", status="remembered", cost=0, prompt_price=None)] * 2
    found = run_costs(run_with(tmp_path, *calls, *hits, steps=2))
    assert found.total is not None
    assert (found.total.calls, found.total.remembered, found.total.cost) == (6, 2, 0.012)
    assert [line.name for line in found.operators] == ["Custom"]
    assert found.per_call == pytest.approx(0.002) and found.per_step == pytest.approx(0.006)
    assert found.per_problem == pytest.approx(0.002)


@pytest.mark.parametrize("unknown", [{}, {"kind": "score", "prompt_price": 1}])
def test_one_cost_that_is_not_known_makes_its_sums_not_known_and_no_others(tmp_path, unknown):
    nameless = replace(CALL, model="other", operator="Test", cost=None, prompt_price=None)
    found = run_costs(run_with(tmp_path, CALL, replace(nameless, **unknown)))
    assert {line.name: line.cost for line in found.models} == {"executor": 0.002, "other": None}
    assert found.total is not None and found.total.cost is None and found.per_call is None
    shown = text(found.run)
    assert "N/A: no price is known" in shown and "in the mean: N/A a call" in shown


def test_tokens_that_were_not_counted_are_uncertain_and_not_nothing(tmp_path):
    lost = replace(CALL, cost=None, uncertain=7_000_000, prompt_tokens=None)
    run = run_with(tmp_path, CALL, lost)
    found = run_costs(run)
    assert found.total is not None
    assert (found.total.cost, found.total.uncertain) == (0.002, 0.007)
    assert "at most 0.007 more may have been charged" in text(run)
