"""Numbers as logs print them: what is a score, what only looks like one."""

import pytest

from assay.data.reported.reading.figures import figure, missing, signed, whole


@pytest.mark.parametrize(
    ("text", "values", "count", "total"),
    [
        ("44.5", "44.5", None, None),
        ("44.5 %", "44.5", None, None),
        (".445", "0.445", None, None),
        ("210/400", "", 210, 400),
        ("44.5% (178/400)", "44.5", 178, 400),
        ("178 / 400 = 44.5%", "44.5", 178, 400),
        ("178 of 400 correct (44.5%)", "44.5", 178, 400),
        ("答对 178 / 400 题", "", 178, 400),
        ("44.5% (n = 400)", "44.5", None, 400),
        ("44.5 ± 2.1", "44.5", None, None),
        ("44.5 (40.1–48.9)", "44.5", None, None),
        ("44.5% [95% CI 40.1, 48.9]", "44.5", None, None),
        ("44.5 (+2.1)", "44.5", None, None),
        ("44.5†", "44.5", None, None),
        ("44.5 / 45.0 / 43.5", "44.5 45.0 43.5", None, None),
    ],
)
def test_a_score_is_read_with_its_counts(
    text: str, values: str, count: int | None, total: int | None
):
    read = figure(text)
    assert read is not None
    assert " ".join(map(str, read.values)) == values
    assert (read.count, read.total) == (count, total)


@pytest.mark.parametrize(
    "text",
    ["-5%", "<2%", "$0.01", "3h", "8B", "1.2.3", "2025-12-10", "5/0", "500/400", "50% faster", ""],
)
def test_what_is_no_score_is_none(text: str):
    assert figure(text) is None


def test_changes_and_whole_numbers():
    assert [str((signed(t) or [""])[0]) for t in ("+2.5%", "−1.4", "0 pp", "up")] == [
        *("2.5", "-1.4", "0", "")
    ]
    assert [whole(text) for text in ("1,319", "n=200", "400 题", "4.5")] == [1319, 200, 400, None]


def test_what_was_not_measured_is_missing_and_a_zero_is_not():
    assert all(map(missing, ("", "-", "—", "N/A", "n.a.", "?", "TBD", "待填充", "未测")))
    assert not any(map(missing, ("0", "0.0%", "-1.5")))
