"""A histogram in a line: heights by share, nothing for empty bins, something for every count."""

from assay.report.spark import BLOCKS, histogram_line


def test_the_highest_bin_is_full_and_no_count_vanishes() -> None:
    assert histogram_line((1, 0, 1000, 500), (0.0, 10.0, 20.0, 30.0, 4000.0)) == "0 |▁ █▄| 4,000"
    counts = tuple(range(1, len(BLOCKS) + 1))
    assert histogram_line(counts, (1.0, 2.0)) == f"1 |{BLOCKS}| 2"
