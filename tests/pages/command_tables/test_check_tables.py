"""What the checks measured is shown whole: every number stands in one table, none in two."""

from assay.pages.command_tables import check_lines, check_tables
from tests.pages.pages import printed

LENGTHS = {"mean": 6100.4, "sd": 1400.0, "50": 5950.0, "95": 8600.0, "largest": 8900}
NUMBERS = {
    "data.train": {
        "rows_in_source": 1258,
        "train_rows": 1155,
        "dropped: too long": 81,
        "dropped: same_name (bfcl/simple_python)": 22,
        "conversation_tokens_mean": 284.25,
        "conversation_tokens_50": 277,
        "conversation_tokens_95": 368,
        "conversation_tokens_largest": 455,
    },
    "evaluate.bfcl": {"gold_full_share: bfcl/simple_python": 0.975, "items": 36},
    "stage.sft": {"memory_mb": 3326.35, "seconds_low": 66, "seconds_high": 1539},
    "disk": {"checkpoints_mb": 3078.8, "free_mb": 60210.2},
}


def lines(numbers):
    shown = printed(check_tables(numbers)).splitlines()
    return [" ".join(line.split()) for line in shown]


def test_names_of_benchmarks_are_written_as_they_are():
    shown = lines(NUMBERS)
    assert "evaluate.bfcl gold full share: bfcl/simple_python 0.975" in shown
    assert "evaluate.bfcl items 36" in shown and "data.train dropped: too long 81" in shown
    assert len(shown) == 2 + sum(map(len, NUMBERS.values()))


def test_the_short_form_has_a_line_for_each_table_with_rows_time_or_memory():
    stage = {"seconds_low": 300.0, "seconds_high": 660.0, "memory_mb": 1500.0}
    lines = check_lines(
        {
            "data.train": {
                "rows_in_source": 1200,
                "train_rows": 1000,
                "dev_rows": 60,
                "test_rows": 40,
                **{f"conversation_tokens_{name}": size for name, size in LENGTHS.items()},
            },
            "stage.sft": stage,
            "evaluate.dev": {"seconds_low": 4.0, "seconds_high": 9.0, "items": 20.0},
            "model": {"weights": 3.0},
        }
    )
    assert lines == [
        "data.train: rows: 1,000 train, 60 dev, 40 test, 1,200 in the source; "
        "tokens: mean 6,100, sd 1,400, median 5,950, 95 % 8,600, longest 8,900",
        "stage.sft: 5 to 11 minutes; 1.5 GB of memory",
        "evaluate.dev: 4 to 9 seconds",
    ]
    many = check_lines({f"stage.s{n}": stage for n in range(20)})
    assert len(many) == 7 and many[-1] == "and 14 more"
