"""What the first pages claim is what the records hold."""

import json
import re

from benchmarks.results import RESULTS

from benchmarks import report
from tests.docs.pages import DOCS

README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
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
