"""Drawings in characters hold what the figures say: places, ends, zero, and nothing that acts."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.intervals import Interval
from assay.pages.comparison.comparison_page import write_comparison
from assay.pages.drawn import (
    BROKEN,
    CURVE_WIDTH,
    HEIGHTS,
    WIDTH,
    Bar,
    curve_line,
    histogram_line,
    interval_line,
    score_plot,
)
from assay.pages.run_page.page import write_report
from assay.pages.words import percent
from tests.pages.comparison.test_comparison_page import three_runs
from tests.pages.synthetic import demo_run

DRAWN = rf"^[.:|=\[\]o]{{{WIDTH}}} "


def interval(low: float, high: float) -> Interval:
    return Interval(low, high, "given")


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted))
def test_an_interval_stands_where_the_scale_puts_it(ends: list[float]) -> None:
    low, value, high = ends
    drawn = interval_line(value, interval(low, high), (0.0, 1.0))
    assert len(drawn) == WIDTH
    assert drawn.index("o") == round(value * (WIDTH - 1))
    if (start := round(low * (WIDTH - 1))) != drawn.index("o"):
        assert drawn.index("[") == start
        assert set(drawn[:start]) <= {"."}
    if (end := round(high * (WIDTH - 1))) != drawn.index("o"):
        assert drawn.index("]") == end
        assert set(drawn[end + 1 :]) <= {"."}


def test_a_difference_stands_beside_zero_and_the_margin() -> None:
    drawn = interval_line(0.1, interval(0.05, 0.15), (-0.2, 0.2), margin=0.025)
    assert drawn == "." * 21 + ":::|:::" + ".." + "[=====o=====]" + "." * 6


def test_a_plot_names_its_scale_and_keeps_labels_of_any_script_in_line() -> None:
    bars = [Bar(0.5, interval(0.4, 0.6), "50.0%", "甲\n乙"), Bar(1.0, interval(0.9, 1.0), "x", "b")]
    first, *rows = score_plot(bars, (0.0, 1.0)).splitlines()
    assert first.split() == ["0.0%", "100.0%"]
    assert len(first) == WIDTH
    assert [row[WIDTH:] for row in rows] == ["  50.0%  甲 乙", "      x  b"]
    assert score_plot([], (0.0, 1.0)) == ""


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


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_comparison_in_markdown_draws_every_score_and_difference(
    tmp_path: Path, lang: str
) -> None:
    table = three_runs(tmp_path)
    text = write_comparison(table, tmp_path, lang=lang).with_suffix(".md").read_text()
    drawn = re.findall(DRAWN + r" +(\S+)", text, re.MULTILINE)
    scores = [percent(line.score) for line in table.lines]
    assert drawn[: len(scores)] == scores
    assert len(drawn) == len(scores) + len(table.lines) - 1


def test_the_report_in_markdown_draws_scores_dev_scores_and_curves(tmp_path: Path) -> None:
    run = demo_run(tmp_path)
    text = write_report(run).with_suffix(".md").read_text()
    assert len(re.findall(DRAWN, text, re.MULTILINE)) >= 8
    assert re.search(f"`[{HEIGHTS}]{{40}}`", text)


def test_the_highest_bin_is_full_and_no_count_vanishes() -> None:
    assert histogram_line((1, 0, 1000, 500), (0.0, 10.0, 20.0, 30.0, 4000.0)) == "0 |▁ █▄| 4,000"
    counts = tuple(range(1, len(HEIGHTS) + 1))
    assert histogram_line(counts, (1.0, 2.0)) == f"1 |{HEIGHTS}| 2"
