"""Columns told by their numbers, rows that are averages, tables without outer bars."""

from pathlib import Path

from assay.data.reported.read_reported import read_markdown
from assay.data.reported.reported_record import Run


def runs(text: str) -> dict[str, Run]:
    return {run.name: run for run in read_markdown(text, Path("log.md")).runs}


def test_a_column_over_another_is_the_percentage_beside_them_whatever_they_are_called():
    head = "| 系统 | 可直接用 | 总句数 | 比例 |\n|---|---|---|---|\n"
    rows = "| A | 173 | 320 | 54.1% |\n| B | 206 | 320 | 66.6% |\n| C | 238 | 320 | 74.4% |\n"
    found = runs(head + rows)
    assert [found[name].right[""] for name in "ABC"] == [(173,), (206,), (238,)]
    assert found["B"].items == {"": 320}


def test_numbers_that_are_no_counts_of_each_other_stay_untold():
    head = "| model | queries | answered | share |\n|---|---|---|---|\n"
    found = runs(head + "| A | 100 | 320 | 54.1% |\n| B | 200 | 320 | 66.6% |\n")
    assert not any(run.right for run in found.values())


def test_rows_above_a_row_of_their_average_are_benchmarks_of_one_run():
    text = "## tuned\n| dialect | accuracy |\n|---|---|\n| north | 59.5% |\n| south | 69.0% |\n"
    found = runs(text + "| west | not run |\n| mean of all | 42.8% |\n")
    assert set(found["tuned"].scores) == {"north", "south"}
    assert found["tuned"].not_run == ("west",)


def test_a_table_of_seeds_with_their_mean_is_no_list_of_benchmarks():
    text = "| seed | accuracy |\n|---|---|\n| 1 | 59.5% |\n| 2 | 69.0% |\n| mean | 64.2% |\n"
    assert all("mean" not in run.scores for run in runs(text).values())


def test_a_table_may_lack_its_outer_bars_and_a_sentence_with_a_bar_is_none():
    found = runs("run | accuracy\n--- | ---\nbase | 40.5%\nsft | 44.5%\n\na | b\n")
    assert [str(run.scores[""][0]) for run in found.values()] == ["40.5", "44.5"]
    assert not runs("base | 40.5%\nsft | 44.5%\n")


def test_settings_in_rows_are_those_of_the_runs_above_them_in_any_of_their_names():
    settings = "| | r16 | r64 |\n|---|---|---|\n| lr | 1e-4 | 2e-4 |\n| epochs | 2 | 3 |\n\n"
    found = runs(
        settings + "| model | acc |\n|---|---|\n| lora r16 | 60.5% |\n| lora r64 | 61% |\n"
    )
    assert found["lora r64"].settings == {"learning_rate": "2e-4", "epochs": "3"}


def test_rates_of_running_counts_are_counts_since_the_start():
    text = (
        "| step | tools run so far | errors so far | error rate so far |\n|---|---|---|---|\n"
        "| 100 | 400 | 90 | 22.5% |\n| 200 | 800 | 140 | 17.5% |\n| 300 | 1200 | 200 | 16.7% |\n\n"
        "The error rate keeps dropping, the policy is getting better.\n"
    )
    report = read_markdown(text, Path("log.md"))
    (rate,) = [m for m in report.metrics if m.totals]
    assert (rate.counts, rate.totals, rate.cumulative) == ((90, 140, 200), (400, 800, 1200), True)
    assert rate.reads == "better"
