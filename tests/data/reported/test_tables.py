"""Plain tables, CSV and Markdown: figures that bear each other out are read, the rest is listed."""

from decimal import Decimal
from pathlib import Path

import pytest

from assay.data.reported.printed_numbers import is_change, is_mean
from assay.data.reported.read_reported import Reading, read_reported
from assay.data.reported.reported_record import Reported
from assay.data.reported.titles import figure
from assay.errors import InputError
from assay.judge.audit.rules import audit_all


def read(folder: Path, text: str, ending: str = "csv") -> Reading:
    file = folder / f"r.{ending}"
    file.write_text(text, encoding="utf-8")
    return read_reported(file)


def one(folder: Path, text: str, ending: str = "csv") -> Reported:
    (record,) = read(folder, text, ending).records
    return record


def pipes(*rows: str) -> str:
    """Rows of words as a Markdown table."""
    head, *rest = (f"| {' | '.join(row.split(','))} |" for row in rows)
    return "\n".join([head, "|" + "---|" * (rows[0].count(",") + 1), *rest, ""])


def found(folder: Path, text: str, ending: str = "md") -> dict[str, str]:
    """Errors and warnings: what is found, and how grave it is."""
    flaws = audit_all(read(folder, text, ending).records)
    return {flaw.code: flaw.severity for flaw in flaws if flaw.severity != "note"}


def left(folder: Path, text: str, ending: str = "md") -> set[tuple[str, str]]:
    return {(part.name, part.why) for part in read(folder, text, ending).unused}


@pytest.mark.parametrize(
    ("text", "value", "count", "total"),
    [
        ("44.50", "44.50", None, None),
        ("1,319", "1319", None, None),
        ("+4.6 pp", "4.6", None, None),
        ("210/400", None, 210, 400),
        ("44.5% (178/400)", "44.5", 178, 400),
        ("178/400 = 44.5%", "44.5", 178, 400),
    ],
)
def test_a_figure_is_a_number_a_count_or_both(
    text: str, value: str | None, count: int | None, total: int | None
):
    read = figure(text)
    assert read is not None
    assert (read.value, read.count, read.total) == (value and Decimal(value), count, total)


@pytest.mark.parametrize(
    "text", ["", "61.2 ± 0.5", "1519/332", "1e-5", "66,3", "~71", "about 71", "7.5/10", "↓2.3"]
)
def test_anything_else_is_no_figure(text: str):
    assert figure(text) is None


LONG = (
    "Run, Benchmark, percent, items, control, says, data, seed\n"
    "base, gsm8k, 71.57, 1319,,,,1\n"
    "base, gsm8k, 71.0%, 1319,,,,2\n"
    'ours, gsm8k, 74.1, 1319, base, better, "first 1000, in order",1\n'
    "ours, math500, ?, 500, base,,,1\n"
)


def test_a_long_table_gives_runs_with_repeats_settings_claims_and_open_cells(tmp_path: Path):
    record = one(tmp_path, LONG)
    base, ours = record.runs
    assert [str(value) for value in base.scores["gsm8k"]] == ["71.57", "71.0"]
    assert (ours.control, ours.says_of) == ("base", {"gsm8k": "better"})
    assert (ours.items, ours.lines) == ({"gsm8k": 1319}, {"gsm8k": 4})
    assert ours.settings == {"data": "first 1000, in order"}
    assert [part.place for part in record.open] == ["ours · math500"]


def test_a_control_that_is_no_run_and_a_row_of_another_length_are_listed(tmp_path: Path):
    text = LONG.replace("1319, base", "1319, bas") + "more, gsm8k\n"
    assert {("ours", "unknown"), ("more", "ragged")} <= left(tmp_path, text, "csv")


COUNTS = (
    "checkpoint;task;hits;n_samples;em;timeouts;tokens_per_s\n"
    "ckpt-100;easy;80;100;0.80;2;81.5\nckpt-100;hard;25;100;0.25;9;80.5\n"
    "ckpt-200;easy;84;100;0.84;1;79.5\nckpt-200;hard;31;100;0.31;4;78.5\n"
)


def test_counts_items_and_failures_go_to_their_scores_and_shares_become_percent(tmp_path: Path):
    first, second = one(tmp_path, COUNTS).runs
    assert first.scores == {"easy": (Decimal("80"),), "hard": (Decimal("25"),)}
    assert second.right == {"easy": (84,), "hard": (31,)}
    assert second.items == {"easy": 100, "hard": 100}
    assert second.failed == {"easy": 1, "hard": 4}
    assert left(tmp_path, COUNTS, "csv") == {("tokens_per_s", "no_share")}


def test_rows_that_differ_in_words_are_runs_of_their_own_and_other_ones_second_numbers(
    tmp_path: Path,
):
    apart = one(tmp_path, "run,score,data\na,0.5,x\na,0.6,y\n")
    assert [run.name for run in apart.runs] == ["a · x", "a · y"]
    twice = one(tmp_path, "run,score\na,0.5\na,0.6\nb,0.7\n")
    assert [(m.of, m.scores, m.line) for m in twice.mentions] == [("a", {"": (Decimal("60"),)}, 3)]


def test_runs_may_be_columns_with_sizes_and_changes_of_their_own(tmp_path: Path):
    text = pipes(
        "Benchmark,n,base,sft,Δ", "A,200,60.5,71.0,+10.5", "B,500,40.2,41.0,+0.8",
        "C,400,50.25,52.00,+2.75", "BLEU,,31.4,31.9,+0.5",
    )  # fmt: skip
    record = one(tmp_path, text, "md")
    assert [run.name for run in record.runs] == ["base", "sft"]
    assert record.runs[1].items == {"A": 200, "B": 500, "C": 400}
    assert left(tmp_path, text) == {("BLEU", "no_share")}
    assert found(tmp_path, text) == {"wrong_change": "error"}


MEANS = ("model,n,A,B,C,Avg.", "x,200,60.0,61.0,62.0,61.0", "y,200,50.0,61.0,63.0,58.0")


def test_a_wrong_average_is_an_error_beside_items_and_else_a_warning(tmp_path: Path):
    rows = (*MEANS, "z,200,70.0,71.0,72.0,75.0")
    assert found(tmp_path, pipes(*rows)) == {"average_not_mean": "error"}
    bare = [",".join(row.split(",")[:1] + row.split(",")[2:]) for row in rows]
    assert found(tmp_path, pipes(*bare)) == {"average_not_mean": "warning"}
    empty = (*MEANS, "z,200,70.0,N/A,71.0,47.0")
    assert found(tmp_path, pipes(*empty)) == {"not_run_as_zero": "error"}


def test_an_average_of_something_else_is_none(tmp_path: Path):
    rows = [row.rsplit(",", 1)[0] + f",{i}7.3" for i, row in enumerate(MEANS[1:], 4)]
    text = pipes(MEANS[0], *rows)
    assert not found(tmp_path, text)
    assert ("Avg.", "no_mean") in left(tmp_path, text)


@pytest.mark.parametrize("title", ["Avg@32", "acc_norm", "F1", "Recall@5", "pass@8", "BLEU"])
def test_scores_that_are_no_share_of_items_are_not_judged(tmp_path: Path, title: str):
    text = pipes(f"model,n,{title}", "a,30,41.3", "b,30,40.0", "c,30,50.0", "d,30,60.0")
    with pytest.raises(InputError, match="no recognisable results"):
        read(tmp_path, text, "md")


def test_items_are_believed_where_most_scores_of_that_number_are_shares_of_it(tmp_path: Path):
    rows = ["a,GSM8K,1319,71.6", "b,GSM8K,1319,70.1", "a,AIME,30,23.5", "b,AIME,30,21.3"]
    text = pipes("model,task,n,accuracy", *rows)
    assert not found(tmp_path, text)
    assert ("accuracy", "no_items") in left(tmp_path, text)
    shares = ["a,200,66.5", "b,200,70.0", "c,200,71.3"]
    assert found(tmp_path, pipes("model,n,accuracy", *shares)) == {
        "impossible_granularity": "error"
    }


@pytest.mark.parametrize("metric", ["acc", "accuracy", "pass@1", "exact_match", "准确率"])
def test_a_share_by_its_name_off_the_grid_of_its_items_is_an_error(tmp_path: Path, metric: str):
    for text in (
        pipes(f"model,n,{metric}", "a,100,45.3"),
        pipes(f"model,{metric} (n=100)", "a,45.3"),
    ):
        assert found(tmp_path, text) == {"impossible_granularity": "error"}
    shares = pipes("task,metric,n,value", f"qa,{metric},100,0.453", f"qa2,{metric},200,0.455")
    assert found(tmp_path, shares) == {"impossible_granularity": "error"}


@pytest.mark.parametrize(
    "text",
    [
        pipes("model,n,score", "a,100,45.3"),
        pipes("model,n,accuracy", "a,30,45.3"),
        pipes("model,n,pass@1,pass@10", "a,200,45.3,60.1"),
        pipes("model,samples,accuracy", "a,100,45.3", "b,500,47.05"),
        pipes("model,task,n,acc", "a,C-Eval,134,45.32"),
    ],
)
def test_means_of_samples_and_subjects_and_other_numbers_are_none(tmp_path: Path, text: str):
    assert not found(tmp_path, text)


def test_counts_are_believed_where_most_give_the_score_beside_them(tmp_path: Path):
    rows = ["a,210/400,52.5%", "b,178/400,44.5%", "c,201/400,55.3%"]
    assert found(tmp_path, pipes("model,correct,accuracy", *rows)) == {
        "score_not_from_counts": "error"
    }
    other = ["a,210/400,12.5%", "b,178/400,14.5%", "c,201/400,15.3%"]
    assert not found(tmp_path, pipes("model,correct,accuracy", *other))


def test_a_harness_table_is_read_by_task_and_metric(tmp_path: Path):
    text = pipes(
        "Tasks,Version,Filter,n-shot,Metric,,Value,,Stderr",
        "arc,1,none,0,acc,↑,0.4352,±,0.0145", ",,none,0,acc_norm,↑,0.4650,±,0.0146",
        "gsm8k,3,flexible,5,exact_match,↑,0.3632,±,0.0132", ",,strict,5,exact_match,↑,0.351,±,0.01",
    )  # fmt: skip
    assert not found(tmp_path, text)
    assert ("results arc acc_norm", "no_share") in left(tmp_path, text)
    cells = {cell for run in one(tmp_path, text, "md").runs for cell in run.scores}
    assert cells == {"arc acc", "gsm8k exact_match"}


def test_rows_of_means_headings_and_spreads_are_left_out(tmp_path: Path):
    text = "arm,seed,correct,n,em\na,0,80,100,80\na,1,82,100,82\na,mean of 2,,100,81\n"
    (run,) = one(tmp_path, text).runs
    assert list(run.scores.values()) == [(Decimal("80"), Decimal("82"))]
    rows = [
        "7B models,,",
        "base,60.5,61.0",
        "ours,61.2 ± 0.5,62.5",
        "1B models,,",
        "base,40.5,41.5",
    ]
    record = one(tmp_path, pipes("model,A,B", *rows), "md")
    assert [run.name for run in record.runs] == [
        *("7B models: base", "7B models: ours", "1B models: base")
    ]
    assert record.runs[1].scores == {"B": (Decimal("62.5"),)}


def test_a_training_gives_groups_without_signal_and_counts_since_the_start(tmp_path: Path):
    text = (
        "日期,step,loss,frac groups with std = 0,累计样本数\n1,5,2.1,0.91,900\n2,10,2.0,0.94,800\n"
    )
    assert found(tmp_path, text, "csv") == {
        "groups_without_signal": "warning",
        "running_count_fell": "error",
    }
    assert left(tmp_path, text, "csv") == {("日期", "unknown"), ("loss", "no_share")}


def test_each_table_is_a_record_of_its_own(tmp_path: Path):
    first, second = pipes("model,A", "a,60.5"), pipes("model,A", "a,70.5")
    text = f"# One\n\n{first}\n```\n{second}```\n\n" + pipes("flag,meaning", "x,y")
    reading = read(tmp_path, text, "md")
    assert [record.runs[0].scores["A"] for record in reading.records] == [
        *((Decimal("60.5"),), (Decimal("70.5"),))
    ]
    assert [(part.kind, part.name) for part in reading.unused] == [("table", "flag | meaning")]


def test_markup_is_no_part_of_a_figure(tmp_path: Path):
    text = pipes("[Model](https://x),**A** (%) ↑", "`a`,**61.0%**†", "b,<b>62.5</b>")
    assert [run.scores["A"] for run in one(tmp_path, text, "md").runs] == [
        *((Decimal("61.0"),), (Decimal("62.5"),))
    ]


def test_cut_off_decimals_are_granted_and_a_number_that_rounds_to_0_has_no_percentages():
    parts = [Decimal(text) for text in ("36.4", "37.5", "72.18", "41.02")]
    assert is_mean(Decimal("46.78"), parts) and is_mean(Decimal("46.77"), parts)
    assert not is_mean(Decimal("47.9"), parts)
    assert is_change(Decimal("0.0"), Decimal("4.0"), Decimal("900"), relative=True)
    assert is_change(Decimal("50.0"), Decimal("55.0"), Decimal("10.0"), relative=True)
    assert not is_change(Decimal("50.0"), Decimal("55.0"), Decimal("6.0"))
