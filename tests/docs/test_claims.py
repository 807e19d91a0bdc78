"""What the first pages claim is what the records hold."""

import json
import re
import tomllib

import pytest
from benchmarks.results import RESULTS

from benchmarks import report
from tests.docs.pages import BLOCK, DOCS

README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
ROWS = r"^\| (?:start|GRPO) \|.*$"
TIMES = re.compile(r"TRL 1\.16 between ([\d.]+) and ([\d.]+) times")


def ratios(what: str, size: str, peer: str) -> list[float]:
    """Those of SmolLM2 on all processors; all sizes where `size` is empty."""
    rows = [row for row in report.all_rows() if row.what == what and row.size.startswith(size)]
    return [float(row.ratios[peer].rstrip("x")) for row in rows if row.ratios[peer] != "failed"]


def test_the_speed_beside_trl_is_the_range_of_all_records_and_least_with_short_prompts() -> None:
    low, high = map(float, TIMES.findall(README)[0])
    every = ratios("GRPO", "", "TRL 1.16")
    assert (low, high) == (min(every), max(every))
    assert low == min(ratios("GRPO", "32/", "TRL 1.16"))


def test_a_single_sequence_is_sampled_twice_as_fast_by_llama_cpp() -> None:
    assert "llama.cpp is twice as fast" in README
    assert 1.8 < 1 / max(ratios("rollout", "1x1,", "llama.cpp")) < 2.2


def test_the_page_about_the_gpu_counts_what_the_record_counts() -> None:
    page = (DOCS / "gpu.md").read_text(encoding="utf-8")
    file = RESULTS / "gpu" / "nvidia-h200" / "sections.json"
    sections = json.loads(file.read_text(encoding="utf-8"))["sections"]
    rows = [(name, row["status"]) for name, rows in sections.items() for row in rows]
    assert f"all {sum(status == 'passed' for _, status in rows)} checks that ran" in page
    assert [name for name, status in rows if status == "FAILED"] == ["steps"]
    assert "`steps` was cut short" in page
    assert {"handover", "ranks"} <= {name for name, status in rows if status == "not run"}


DEMO = tomllib.loads((DOCS.parent / "experiments/tools/demo.toml").read_text(encoding="utf-8"))
LEFT = {
    "README.md": [
        "135M-parameter",  # the model's name for itself
        "Apache-2.0",
        "never 0",
        "Python 3.11",
    ],
    "docs/can-assay.md": ["train 135M parameters", "WSL 2", "8-bit AdamW", "4-bit weights"],
}
"""Figures that no record here holds: names, and what the commands beside them took."""


def test_the_table_of_the_readme_is_that_of_the_results_and_its_demo_measures_alike() -> None:
    bfcl, page = DEMO["evaluate"]["bfcl"], (DOCS / "results/tools-ladder.md").read_text("utf-8")
    shown = f"{bfcl['take']['rows']} questions", f"{DEMO['evaluate']['dev']['take']['rows']} other"
    assert all(each in README for each in shown)
    assert bfcl["repeats"] == 2 and "100 items twice at temperature 1" in page
    rows = re.findall(ROWS, README, re.MULTILINE)
    assert len(rows) == 2 and all(row.removesuffix(" |") in page for row in rows)


@pytest.mark.parametrize("page", LEFT)
def test_every_figure_of_the_first_pages_is_held_to_something(page: str) -> None:
    text = BLOCK.sub("", (DOCS.parent / page).read_text(encoding="utf-8"))
    for each in LEFT[page]:
        assert each in text
        text = text.replace(each, "")
    held = [
        TIMES.pattern,
        ROWS,
        r"\d+ other questions",
        r"\d+ questions",
        r"\d+ packages of \d+ MB",
    ]
    held += [r"`[^`\n]*`", r"\]\([^)]*\)"]
    rest = re.sub("|".join(held), "", text, flags=re.MULTILINE)
    assert [line for line in rest.splitlines() if re.search(r"(?<![A-Za-z\d])\d", line)] == []
