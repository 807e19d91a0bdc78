"""TOML and CSV records: digits are kept, and what is wrong is named by file, line and field."""

from decimal import Decimal
from pathlib import Path

import pytest

from assay.data.reported.read_reported import read_reported, results
from assay.data.reported.reported_errors import NothingReported, ReportedError
from assay.data.reported.reported_record import Reported


def read(folder: Path, text: str, ending: str = "toml", items: int | None = None) -> Reported:
    file = folder / f"r.{ending}"
    file.write_text(text, encoding="utf-8")
    return read_reported(file, items)


def refusal(folder: Path, text: str, ending: str = "toml") -> str:
    with pytest.raises(ReportedError) as raised:
        read(folder, text, ending)
    return str(raised.value).replace(str(folder) + "/", "")


RUN = '[[runs]]\nname = "a"\nscores = '


def test_printed_digits_are_kept(tmp_path: Path):
    (run,) = read(tmp_path, RUN + "[15.00, 16]").runs
    assert [str(value) for value in run.scores[""]] == ["15.00", "16"]


def test_one_score_several_repeats_and_several_cells_are_one_shape(tmp_path: Path):
    assert read(tmp_path, RUN + "15.0").runs[0].scores == {"": (Decimal("15.0"),)}
    found = read(tmp_path, RUN + "{ x = 1.0, y = [2.0, 3.0] }").runs[0].scores
    assert {cell: len(values) for cell, values in found.items()} == {"x": 1, "y": 2}


def test_a_switch_is_a_setting_like_any_other(tmp_path: Path):
    text = (
        '[[runs]]\nname = "a"\nscores = 50.0\nsettings = { dropout = true, seed = 7, lr = 0.10 }\n'
    )
    (run,) = read(tmp_path, text).runs
    assert {key: str(value) for key, value in run.settings.items()} == {
        "dropout": "true",
        "seed": "7",
        "lr": "0.10",
    }


def test_items_of_the_command_line_fill_a_gap_and_overrule_nothing(tmp_path: Path):
    assert read(tmp_path, RUN + "15.0", items=200).scoring.items == 200
    text = "[scoring]\nitems = 100\n" + RUN + "15.0"
    assert read(tmp_path, text, items=200).scoring.items == 100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[runs]\n", ("r.toml:1", "not valid TOML")),
        ('[[runs]]\nname = "a"\nscore = 1', ("r.toml:3: runs.0.score", "unknown key", "'scores'")),
        ("[scorings]\n", ("r.toml:1: scorings", "unknown key", "'scoring'")),
        ("[[runs]]\nscores = 1", ("r.toml:1: runs.0.name", "missing")),
        (RUN + '"many"', ("r.toml:3: runs.0.scores", "expected a number", "'many'")),
        (RUN + "true", ("r.toml:3: runs.0.scores", "expected a number")),
        (RUN + "150.0", ("r.toml:3: runs.0.scores", "150.0 is outside 0 to 100", "share")),
        (RUN + "-1", ("r.toml:3: runs.0.scores", "outside")),
        ('[scoring]\nunit = "share"\n' + RUN + "26.5", ("r.toml:5", "26.5 is outside 0 to 1")),
        (RUN + "1e-999999999", ("r.toml:3: runs.0.scores", "of this size")),
        (RUN + "nan", ("r.toml:3: runs.0.scores", "finite")),
        (RUN + '1\nsays = "good"', ("r.toml:4: runs.0.says", "unknown value 'good'", "'better'")),
        (RUN + "1\n" + RUN + "2", ("runs", "'a' occurs twice")),
        (
            '[scoring]\ncontrol = "b"\n' + RUN + "1",
            ("r.toml:2", "nothing is named 'b'", "known: a"),
        ),
        ("[scoring]\nitems = 0\n", ("r.toml:2: scoring.items",)),
        (
            '[[metrics]]\nname = "m"\nsteps = [1, 2]\nvalues = [0.1]',
            ("r.toml:4: metrics.0.values", "1 of them for 2 steps"),
        ),
        (
            '[[metrics]]\nname = "m"\nsteps = 1\ncounts = 5\ntotals = 4',
            ("r.toml:4: metrics.0.counts", "larger than its total"),
        ),
        (
            '[[metrics]]\nname = "cost"\n[[forecasts]]\nmetric = "costs"\nstep = 5\nsays = 1',
            ("forecasts", "nothing is named 'costs'", "'cost'"),
        ),
    ],
)
def test_a_bad_record_is_named_by_line_and_field(tmp_path: Path, text: str, words: tuple[str, ...]):
    said = refusal(tmp_path, text)
    assert all(word in said for word in words), said
    assert "\n" not in said


def test_a_comparison_may_name_what_was_never_run(tmp_path: Path):
    text = RUN + '1\n[[comparisons]]\nrun = "b"\ncontrol = "a"'
    assert read(tmp_path, text).comparisons[0].run == "b"


def test_a_record_of_claims_alone_holds_no_result(tmp_path: Path):
    with pytest.raises(NothingReported, match="no recognisable results"):
        read(tmp_path, '[[effects]]\nwhat = "x"\nsays = "better"')


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.txt", b"x", "reads no .txt"),
        ("r", b"x", "without ending"),
        ("r.toml", b"\xff\xfe", "not UTF-8"),
        ("r.md", b"# Title\n\nNothing here but 50% of a sentence.\n", "no recognisable results"),
        ("r.md", b"", "no recognisable results"),
        ("r.csv", b"", "needs a column"),
    ],
)
def test_a_file_without_results_is_refused(tmp_path: Path, name: str, content: bytes, words: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((ReportedError, NothingReported), match=words):
        read_reported(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(ReportedError, match="no such file"):
        read_reported(tmp_path / "absent.toml")


CSV = (
    "Run, Benchmark, percent, items, control, says, data, seed\n"
    "base, gsm8k, 71.60, 1319,,,,1\n"
    "base, gsm8k, 71.0%, 1319,,,,2\n"
    'ours, gsm8k, 74.1, 1319, base, better, "first 1000, in order",1\n'
    "ours, math500, ?, 500, base,,,1\n"
)


def test_a_csv_gives_runs_with_repeats_settings_and_what_is_open(tmp_path: Path):
    found = read(tmp_path, CSV, "csv")
    base, ours = found.runs
    assert [str(value) for value in base.scores["gsm8k"]] == ["71.60", "71.0"]
    assert (ours.control, ours.says_of, ours.items) == (
        "base",
        {"gsm8k": "better"},
        {"gsm8k": 1319},
    )
    assert ours.settings == {"data": "first 1000, in order"}
    assert [part.place for part in found.open] == ["ours, math500"]
    assert results(found) == 3


def test_a_control_that_is_no_run_is_named_with_the_nearest(tmp_path: Path):
    said = refusal(
        tmp_path, CSV.replace(" base, better", " bas, better").replace("500, base", "500, "), "csv"
    )
    assert "r.csv:4: control: no run is named 'bas' (did you mean 'base'? known: " in said


def test_lines_of_one_run_with_other_settings_are_runs_of_their_own(tmp_path: Path):
    found = read(tmp_path, "run,score,data\na,0.5,x\na,0.6,y\n", "csv")
    assert {run.name: run.settings for run in found.runs} == {
        "a, data x": {"data": "x"},
        "a, data y": {"data": "y"},
    }


def test_a_line_that_repeats_another_with_another_score_is_kept_as_a_second_number(tmp_path: Path):
    found = read(tmp_path, "run,score\na,0.5\na,0.6\nb,0.7\n", "csv")
    assert found.runs[0].scores == {"": (Decimal("50"),)}
    assert [(m.of, m.scores, m.line) for m in found.mentions] == [("a", {"": (Decimal("60"),)}, 3)]


def test_a_csv_of_shares_is_read_as_such(tmp_path: Path):
    found = read(tmp_path, "\ufeffrun,score\na,0.707\n", "csv")
    assert found.runs[0].scores == {"": (Decimal("70.7"),)}


WIDE = (
    "# evaluated on 300 tasks each\n"
    "方法;单轮 准确率(%);多轮 准确率(%);平均;学习率;备注\n"
    "基线;61.0;32.0;46.5;;\n"
    "微调;66.0;N/A;33.0;1e-5;优于基线\n"
)


def test_a_wide_csv_in_chinese_with_remarks_is_read(tmp_path: Path):
    found = read(tmp_path, WIDE, "csv")
    base, tuned = found.runs
    assert {cell: str(v[0]) for cell, v in base.scores.items()} == {"单轮": "61.0", "多轮": "32.0"}
    assert base.items == {"单轮": 300, "多轮": 300}
    assert (tuned.not_run, tuned.settings) == (("多轮",), {"learning_rate": "1e-5"})
    assert [(a.run, a.of) for a in found.averages] == [
        ("基线", ("单轮", "多轮")),
        ("微调", ("单轮", "多轮")),
    ]
    (claim,) = found.comparisons
    assert (claim.run, claim.control, claim.says, claim.line) == ("微调", "基线", "better", 4)


LONG = (
    "checkpoint,task,hits,n_samples,em,timeouts,tokens_per_s\n"
    "ckpt-100,easy,80,100,0.80,2,81.5\n"
    "ckpt-100,hard,25,100,0.25,9,80.5\n"
    "ckpt-200,easy,84,100,0.84,1,79.5\n"
    "ckpt-200,hard,31,100,0.31,4,78.5\n"
)


def test_a_long_csv_with_other_names_of_columns_is_read(tmp_path: Path):
    first, second = read(tmp_path, LONG, "csv").runs
    assert (first.name, second.name) == ("ckpt-100", "ckpt-200")
    assert first.scores == {"easy": (Decimal("80"),), "hard": (Decimal("25"),)}
    assert (second.right, second.items, second.failed) == (
        {"easy": (84,), "hard": (31,)},
        {"easy": 100, "hard": 100},
        {"easy": 1, "hard": 4},
    )


def test_of_items_asked_and_items_scored_the_rest_was_left_out(tmp_path: Path):
    for asked, scored, failed, right in (
        ("题目总数", "计分题数", "解析失败", "答对"),
        ("n_items", "scored", "timeouts", "n_correct"),
        ("total", "n graded", "errors", "correct"),
        ("样本总数", "有效样本数", "超时", "正确"),
    ):
        text = f"model,{asked},{failed},{scored},{right},accuracy\na,500,58,442,243,55.0\n"
        (run,) = read(tmp_path, text, "csv").runs
        assert (run.items, run.left_out, run.right) == ({"": 442}, {"": 58}, {"": (243,)}), asked


@pytest.mark.parametrize(
    "remark", ["not run yet, 0 for the mean", "拒识集还没跑 先填 0", "y: to be run"]
)
def test_a_zero_that_a_remark_calls_not_run_is_not_run(tmp_path: Path, remark: str):
    text = "model,n_items_per_set,x,y,mean,notes\na,250,80.4,60.0,70.2,\nb,250,86.8,0.0,43.4,"
    first, second = read(tmp_path, f'{text}"{remark}"\n', "csv").runs
    assert (first.not_run, second.not_run) == ((), ("y",))
    honest = read(tmp_path, f"{text}rules only\n", "csv").runs[1]
    assert honest.not_run == ()


def test_rows_that_average_the_seeds_above_them_are_no_seed(tmp_path: Path):
    text = "arm,seed,correct,n,em\na,0,80,100,80\na,1,82,100,82\na,mean of 2,,100,81\n"
    (run,) = read(tmp_path, text, "csv").runs
    assert list(run.scores.values()) == [(Decimal("80"), Decimal("82"))]


def test_a_column_of_words_that_tells_a_runs_rows_apart_names_the_test_set(tmp_path: Path):
    text = "system,template_set,n,exact_match\na,2024,400,0.81\n".replace("2024", "claims-24")
    rows = "b,claims-24,400,0.85\na,claims-23,250,0.78\nb,claims-23,250,0.81\n"
    first, _ = read(tmp_path, text + rows, "csv").runs
    assert first.items == {"claims-24": 400, "claims-23": 250}
    assert not read(tmp_path, text + rows, "csv").mentions


def test_a_training_whose_first_column_is_a_date_gives_metrics(tmp_path: Path):
    text = "日期,step,train_loss,lr,grad_norm\n07-03,100,2.3,1e-5,3.8\n07-04,200,1.8,2e-5,2.1\n"
    found = read(tmp_path, text, "csv")
    assert {metric.meaning for metric in found.metrics} == {"loss", "signal"}
    assert not found.runs


def test_a_csv_of_a_training_gives_metrics(tmp_path: Path):
    text = "step,loss,kl,frac_zero_std,grad_norm\n1,0.012,0.0001,0.75,0.21\n2,0.011,0.0004,0.81,0\n"
    found = read(tmp_path, text, "csv")
    assert [metric.meaning for metric in found.metrics] == [
        *("loss", "distance", "groups without signal", "signal")
    ]
    assert found.metrics[0].steps == (1, 2) and not found.runs


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("percent,", "percnt,", ("r.csv:1", "needs a column of runs and one of scores")),
        ("71.60", "about 71", ("r.csv:2: percent", "'about 71' is not a number")),
        ("71.60", "inf", ("r.csv:2: percent", "'inf' is not a number")),
        ("71.60", "716", ("r.csv:2: percent", "'716' is no score from 0 to 100")),
        ("71.60", "-3", ("r.csv:2: percent", "'-3' is not a number")),
        ("71.60", "1e-999999", ("r.csv:2: percent", "so many digits")),
        ("71.60, 1319", "71.60, many", ("r.csv:2: items", "'many' is not a number of items")),
        ("71.60, 1319", "71.60, 0", ("r.csv:2: items", "'0'")),
        ("base, better", "base, good", ("r.csv:4: says", "unknown value 'good'", "better")),
        ("500, base,,", "500, bas,,", ("r.csv:5: control", "'bas'", "'base'")),
        ("base, gsm8k, 71.60, 1319,,,,1", "base, gsm8k", ("r.csv:2", "as many fields")),
        (
            "base, gsm8k, 71.60, 1319,,,,1",
            ",gsm8k,71.60,1319,,,,1",
            ("r.csv:2: run", "no run is named"),
        ),
    ],
)
def test_a_bad_csv_is_named_by_line_and_column(
    tmp_path: Path, old: str, new: str, words: tuple[str, ...]
):
    said = refusal(tmp_path, CSV.replace(old, new, 1), "csv")
    assert all(word in said for word in words), said


def test_a_claim_of_one_cell_is_kept_apart_from_claims_of_the_run(tmp_path: Path):
    (run,) = read(tmp_path, RUN + '{ x = 1.0, y = 2.0 }\nsays_of = { x = "better" }').runs
    assert (run.says, run.says_of) == (None, {"x": "better"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("says_of = { z = 'better' }", ("runs.says_of", "nothing is named 'z'")),
        ("right = [1, 2]", ("runs.0.right", "2 counts for 1 scores")),
        ("[[averages]]\nrun = 'b'\nsays = 1", ("averages.run", "nothing is named 'b'")),
        ("[[averages]]\nrun = 'a'\nof = 'z'\nsays = 1", ("averages.of", "nothing is named 'z'")),
        ("[[comparisons]]\nrun = 'b'\ncontrol = 'a'\ncells = 'z'", ("comparisons.cells", "'z'")),
        ("[[comparisons]]\nrun = 'b'\ncontrol = 'a'\ninterval = 1", ("interval", "two limits")),
    ],
)
def test_what_a_claim_names_must_be_in_the_record(
    tmp_path: Path, text: str, words: tuple[str, ...]
):
    said = refusal(tmp_path, RUN + "1.0\n" + text.replace("'", '"'))
    assert all(word in said for word in words), said


def test_a_column_of_the_number_of_seeds_says_how_many_passes_a_score_averages(tmp_path: Path):
    found = read(tmp_path, "model,n_seeds,mean_acc\na,4,0.4412\nb,4,0.4525\n", "csv")
    assert found.scoring.repeats == 4
    assert [run.scores for run in found.runs] == [
        {"mean acc": (Decimal("44.12"),)},
        {"mean acc": (Decimal("45.25"),)},
    ]


def test_rows_of_a_swept_setting_are_runs(tmp_path: Path):
    found = read(tmp_path, "lr,accuracy\n1e-6,50.5%\n1e-5,54.5%\n", "csv")
    assert [run.name for run in found.runs] == ["lr 1e-6", "lr 1e-5"]
