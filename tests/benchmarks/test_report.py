"""The tables of docs/benchmarks.md are what the result files give; a failure has no number."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.worker import Record

from benchmarks import report, results

MACHINE = {
    "processor": "Stub 1",
    "cores": 2,
    "memory_gib": 8.0,
    "bf16": [],
    "load_average": 0.5,
    "time": "2026-01-01 00:00",
}
GRPO = {"model": "smollm2", "prompt": 32, "completion": 64, "dtype": "fp32"}
GRPO |= {"endings": "forced", "threads": 1, "lora": False}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of results that holds nothing."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    report.load.cache_clear()
    yield tmp_path
    report.load.cache_clear()


def save(store: Path, subject: str, result: Record) -> None:
    file = store / subject / "stub" / "cell.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**result, "machine": MACHINE}))


def grpo_result(**costs: float) -> Record:
    """A result of sides with these CPU-seconds a step."""
    steps = {name: [{"cpu": cost, "peak_bytes": 100}] for name, cost in costs.items()}
    return {
        "cell": GRPO,
        "steps": steps,
        "medians": {name: taken[0] for name, taken in steps.items()},
        "failures": {"trl-1.12": "it ended by itself"},
        "versions": {"assay": {"torch": "2.0"}},
    }


def test_the_page_is_what_its_program_makes_of_the_results() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    assert report.filled(page) == page, "python -m benchmarks.report"
    assert set(report.MARKED.findall(page)) <= set(report.TABLES)


def test_a_side_that_failed_has_no_number(store: Path) -> None:
    save(store, "grpo", grpo_result(**{"assay": 2.0, "trl-1.16": 5.0}))
    row = report.ratios().splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3:] == ["2.00s", "2.50x", "failed", "100%"]
    assert "torch 2.0" in report.machines()


def test_where_assay_failed_no_ratio_is_given(store: Path) -> None:
    save(store, "grpo", grpo_result(**{"trl-1.16": 5.0}))
    assert report.ratios().splitlines()[-1].count("failed") == 4


def test_missed_targets_are_named_and_reached_ones_counted(store: Path) -> None:
    save(store, "grpo", grpo_result(**{"assay": 2.0, "trl-1.16": 4.0}))
    text = report.missed()
    assert text.startswith("1 of 2 targets are reached.")
    assert "| GRPO 32/64 against TRL 1.16, fp32 | ≥2.20x | 2.00x |" in text


def test_a_failed_engine_has_no_rate(store: Path) -> None:
    cell = {"prompts": 1, "group": 1, "prompt": 8, "completion": 4, "dtype": "fp32", "threads": 1}
    rates = {"Assay": 300.0, "generate": 100.0}
    engines = {name: {"tokens_per_cpu_second": rate} for name, rate in rates.items()}
    engines["vLLM"] = {"error": "it ended by itself"}  # type: ignore[dict-item]
    save(store, "rollout", {"cell": cell, "model": "smollm2", "engines": engines})
    row = report.ratios().splitlines()[-1]
    assert "| 300/s | 3.00x | failed | failed |" in row


def test_a_cell_of_the_bound_without_a_step_has_no_share(store: Path) -> None:
    cell = {"what": "update", "dtype": "fp32", "prompts": 2, "group": 8}
    cell |= {"prompt": 32, "completion": 64}
    save(store, "limit", {"cell": cell, "best_rate": 1e11, "bandwidth": 2e10, "least_seconds": 3.0})
    assert report.bound().splitlines()[-1] == "| update, 2x8, 32/64 | fp32 | failed |"


def test_trainers_are_judged_by_name_and_cost_what_follows_their_first_step(store: Path) -> None:
    steps = [{"step": n, "cpu": 50.0 + 3 * n} for n in (1, 2, 3)]
    made = {"trl-1": {"steps": steps, "peak_bytes": 2**31, "machine": MACHINE}}
    low, high = -0.02, 0.04
    verdict = {"side": "trl", "control": "assay", "seeds": [1], "verdict": "equivalent"}
    verdict |= {"control_score": 0.5, "score": 0.51, "difference": 0.01}
    verdict |= {"interval": {"low": low, "high": high}}
    judged = {"rewards": {"trl-1": [0.0, 0.5, 1.0]}, "verdicts": {"x": verdict}}
    save(store, "trainers", {"curves": {"trained": made}, "verdicts": judged})
    words = report.trainers()
    assert "| TRL 1.16 | 1 | 0.00 | 1.00 | 3.0s | 2.0 GiB |" in words
    assert "| TRL 1.16 | Assay | 1 | equivalent | 50.0% | 51.0% | +1.0 (-2.0 to +4.0) |" in words
