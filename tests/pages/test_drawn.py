"""Curves in characters hold what the figures say."""

import re
from pathlib import Path

from assay.pages.drawn import BROKEN, CURVE_WIDTH, HEIGHTS, curve_line
from assay.pages.run_page.page import write_report
from tests.pages.synthetic import demo_run


def test_a_curve_rises_from_the_lowest_block_to_the_highest() -> None:
    assert curve_line([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == HEIGHTS
    assert curve_line([None, None]) == BROKEN * 2
    assert curve_line([None, 1.0, 1.0])[0] == BROKEN


def test_a_long_curve_is_the_means_of_its_steps() -> None:
    drawn = curve_line([float(step // 10) for step in range(10 * CURVE_WIDTH)])
    assert len(drawn) == CURVE_WIDTH
    assert [HEIGHTS.index(block) for block in drawn] == sorted(HEIGHTS.index(b) for b in drawn)
    assert drawn[0] == HEIGHTS[0]
    assert drawn[-1] == HEIGHTS[-1]


def test_the_report_in_markdown_draws_curves(tmp_path: Path) -> None:
    run = demo_run(tmp_path)
    text = write_report(run).with_suffix(".md").read_text()
    assert re.search(f"`[{HEIGHTS}]{{40}}`", text)
