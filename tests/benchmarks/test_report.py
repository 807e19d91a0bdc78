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
