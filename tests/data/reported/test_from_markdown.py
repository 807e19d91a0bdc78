"""Markdown logs: what is a result is read, what only looks like one is left alone."""

from decimal import Decimal
from pathlib import Path
from textwrap import dedent

import pytest

from assay.data.reported.read_reported import read_markdown
from assay.data.reported.reading.blocks import leaves, sections
from assay.data.reported.reported_record import Reported


def read(text: str) -> Reported:
    return read_markdown(dedent(text), Path("log.md"))


def scores(report: Reported) -> dict[str, dict[str, str]]:
    """Run -> cell -> printed values."""
    return {
        run.name: {cell: " ".join(f"{v:f}" for v in values) for cell, values in run.scores.items()}
        for run in report.runs
    }


# Blocks


def test_sections_keep_their_path_and_a_deeper_heading_does_not_leak():
    found = sections("# A\n## B\n### C\ntext\n## D\n")
    assert [s.path for s in found] == [(), ("A",), ("A", "B"), ("A", "B", "C"), ("A", "D")]
    assert [s.title for s in leaves(found)] == ["C", "D"]


def test_code_is_no_text_and_an_open_fence_ends_with_the_file():
    found = sections("# A\n```\n# not a heading\n- 50%\n")[-1]
    assert [line.text for line in found.code] == ["# not a heading", "- 50%"]
    assert not found.items


def test_a_table_has_a_header_only_before_a_separator():
    tables = sections("| a | b |\n|---|:-:|\n| 1 | 2 |\n\ntext\n| x | y |\n")[0].tables
    assert [(t.header, [r.cells for r in t.rows]) for t in tables] == [
        (("a", "b"), [("1", "2")]),
        ((), [("x", "y")]),
    ]


# Scores in lists


@pytest.mark.parametrize(
    "text",
    [
        "# A\n- 100% of runs use a tool\n- 50%\n",
        "# A\n- correct: 100\n- wrong: 0\n- cannot parse: -1\n",
        "# A\nThe loss fell by 13.5% in 3 epochs, from 0.5 to 0.4.\n",
        "# A\n| step | what |\n|---|---|\n| 1 | 50% faster |\n",
        "# A\n- accuracy: <2%\n- accuracy: 100% (kept)\n",
        "# A\n| part | share |\n|---|---|\n| x | -5% |\n",
        "# A\n- total: $0.008562\n- 2025-12-10\n- 1.2.3\n- score: 150%\n",
        "# Table of contents\n1.1 Results . . . . 3\n",
        "# A\n- learning rate: 0.5\n- dropout: 10%\n- GPU utilisation: 93%\n",
        "# A\n| model | loss | lr | tokens/s | Elo |\n|---|---|---|---|---|\n"
        "| a | 0.52 | 1e-5 | 81.5 | 12.5 |\n| b | 0.48 | 1e-5 | 80.5 | 14.5 |\n",
        "# A\n| 模型 | 损失 | 耗时 | 显存占用 |\n|---|---|---|---|\n| a | 0.52 | 3.5 | 61.5% |\n",
        "# A\n| parameter | value |\n|---|---|\n| dropout | 0.1 |\n| warm-up | 5% |\n",
    ],
)
def test_what_only_looks_like_a_score_is_none(text: str):
    assert not any(run.scores for run in read(text).runs)


def test_a_list_of_percentages_is_a_runs_repeats():
    report = read("### full1 (no effect)\n> ms-swift\n\n- 24.50%\n- 23.5 %\n")
    assert scores(report) == {"full1": {"": "24.50 23.5"}}


def test_labelled_shares_are_benchmarks_of_the_heading_with_their_known_items():
    report = read("""
        ## 1.2 Long COT (final)
        - AMC23 acc: 0.325
        - GSM8k acc: 0.694
        """)
    assert scores(report) == {"Long COT": {"AMC23": "32.5", "GSM8k": "69.4"}}
    assert report.runs[0].items == {"AMC23": 40, "GSM8k": 1319}


def test_labelled_lines_may_be_runs_with_counts():
    report = read("""
        ## Results
        - base: 44.5% (178/400)
        - **sft**: 196/400
        - 微调后 — 212 of 400 correct (53.0%)
        """)
    assert scores(report) == {
        "base": {"": "44.5"},
        "sft": {},
        "微调后": {"": "53.0"},
    }
    assert [run.right for run in report.runs] == [{"": (178,)}, {"": (196,)}, {"": (212,)}]
    assert {run.items[""] for run in report.runs if isinstance(run.items, dict)} == {400}


def test_labels_that_stand_under_several_headings_are_benchmarks_of_the_headings():
    report = read("# a\n- easy: 50%\n- hard: 20%\n# b\n- easy: 60%\n- hard: 10%\n")
    assert scores(report) == {
        "a": {"easy": "50", "hard": "20"},
        "b": {"easy": "60", "hard": "10"},
    }


def test_a_share_of_one_digit_stays_as_coarse_as_it_was_printed():
    (values,) = read("# A\n- AMC23 acc: 0.4\n").runs[0].scores.values()
    assert values[0].as_tuple().exponent == 1


# Tables of scores


def test_rows_may_be_runs():
    report = read("""
        | Method | GSM8K acc | MATH500 |
        |---|---|---|
        | baseline | 71.6% | 44.0 |
        | **ours** (best) | 0.741 | ? |
        """)
    assert scores(report)["baseline"] == {"GSM8K": "71.6", "MATH500": "44.0"}
    assert report.runs[-1].name == "ours" and report.runs[-1].control == "baseline"
    assert [part.count for part in report.open] == [1]


def test_columns_may_be_runs_and_changes_are_kept_beside_them():
    report = read("""
        | Benchmark | base | ours | diff |
        |---|---|---|---|
        | GSM8K | 71.6% | 74.1% | +2.5% |
        """)
    assert scores(report) == {"base": {"GSM8K": "71.6"}, "ours": {"GSM8K": "74.1"}}
    (change,) = report.changes
    assert (change.before, change.after, change.says) == tuple(
        map(Decimal, ("71.6", "74.1", "2.5"))
    )


def test_counts_and_percentages_of_one_row_are_kept_together():
    report = read("""
        | 模型 | 正确数 | 总数 | 准确率 | 耗时（小时） |
        |---|---|---|---|---|
        | 基线 | 178 | 400 | 44.5% | 1.5 |
        | 微调 | 210 | 400 | 52.5% | 2.5 |
        """)
    assert scores(report) == {"基线": {"": "44.5"}, "微调": {"": "52.5"}}
    assert [run.right for run in report.runs] == [{"": (178,)}, {"": (210,)}]
    assert [run.items for run in report.runs] == [{"": 400}, {"": 400}]


def test_items_stand_in_titles_rows_and_sentences():
    titled = read("| model | Easy (n=100) | Hard (50) |\n|---|---|---|\n| a | 71.0% | 12.0% |\n")
    assert titled.runs[0].items == {"Easy": 100, "Hard": 50}
    table = "| model | accuracy |\n|---|---|\n| a | 71.5% |\n"
    for said in ("n = 200", "All on 200 test items.", "每个模型 200 题", "测试集共 200 条"):
        assert read(f"{said}\n\n{table}").runs[0].items == {"": 200}, said
    for said in ("Trained on 200 samples.", "训练数据共 200 条", "Batches of 200 prompts."):
        assert read(f"{said}\n\n{table}").runs[0].items is None, said


def test_items_that_a_sentence_gives_of_a_benchmark_are_those_of_no_other():
    report = read("""
        Scored on 120 Easy items and 80 Hard items.

        | model | Easy | Hard |
        |---|---|---|
        | a | 71.5% | 12.5% |
        """)
    assert report.runs[0].items == {"Easy": 120, "Hard": 80}


def test_a_cell_without_a_result_is_not_run_and_never_zero():
    report = read("| model | A | B |\n|---|---|---|\n| x | 51.0% | N/A |\n| y | 52.0% | 40.0% |\n")
    assert scores(report)["x"] == {"A": "51.0"}
    assert report.runs[0].not_run == ("B",)
    assert not report.open


def test_an_average_is_one_of_its_columns_and_no_score():
    report = read("""
        | model | A | B | 平均 |
        |---|---|---|---|
        | x | 50.0 | 40.0 | 45.0 |
        """)
    assert scores(report) == {"x": {"A": "50.0", "B": "40.0"}}
    (average,) = report.averages
    assert (average.run, average.of, str(average.says)) == ("x", ("A", "B"), "45.0")


def test_an_interval_beside_a_score_is_no_part_of_it():
    report = read("""
        | system | Accuracy [95% CI] | N |
        |---|---|---|
        | A | 61.0% [54.1, 67.5] | 200 |
        """)
    assert scores(report) == {"A": {"": "61.0"}}
    assert [str(n) for n in report.runs[0].intervals[""]] == ["54.1", "67.5"]


def test_rows_of_seeds_are_repeats_and_rows_of_other_settings_are_other_runs():
    seeds = "| model | seed | acc |\n|---|---|---|\n| a | 1 | 0.51 |\n| a | 2 | 0.53 |\n"
    assert scores(read(seeds)) == {"a": {"": "51 53"}}
    rates = seeds.replace("seed", "lr")
    assert scores(read(rates)) == {"a, lr 1": {"": "51"}, "a, lr 2": {"": "53"}}


def test_a_mean_of_several_passes_says_how_many():
    text = "Mean of 3 seeds.\n\n| model | acc |\n|---|---|\n| a | 44.17 |\n"
    assert read(text).scoring.repeats == 3


TWICE = "# In\n{table}41.0% |\n| sft | 47.5% |\n# Out\n{table}{base} |\n| sft | 30.5% |\n"


def test_two_tables_are_two_measurements_where_no_number_of_theirs_agrees():
    table = "| model | acc |\n|---|---|\n| base | "
    found = scores(read(TWICE.format(table=table, base="31.0%")))
    assert found["sft"] == {"In": "47.5", "Out": "30.5"}


def test_two_tables_that_disagree_on_one_row_are_kept_as_two_numbers():
    table = "| model | acc |\n|---|---|\n| base | "
    report = read(TWICE.format(table=table, base="41.0%"))
    assert scores(report)["sft"] == {"": "47.5"}
    second = [m for m in report.mentions if m.of == "sft"]
    assert [str(m.scores[""][0]) for m in second] == ["30.5"]


def test_a_table_of_settings_gives_the_settings_of_its_columns():
    report = read("""
        | Hyperparameter | run A | run B |
        |---|---|---|
        | lr | 1e-6 | 5e-6 |
        | KL coef | 0.0 | 0.04 |

        | | run A | run B |
        |---|---|---|
        | AIME24 (30) | 13.3% | 20.0% |
        """)
    assert [run.settings for run in report.runs] == [
        {"learning_rate": "1e-6", "beta": "0.0"},
        {"learning_rate": "5e-6", "beta": "0.04"},
    ]


# Changes


def test_changes_are_read_against_what_most_of_them_agree_with():
    report = read("""
        | method | pass@1 | Δ |
        |---|---|---|
        | zero-shot | 33.5 | – |
        | +SFT | 40.0 | +6.5 |
        | +SFT+GRPO | 44.0 | +10.5 |
        """)
    assert [(str(c.before), str(c.says)) for c in report.changes] == [
        ("33.5", "6.5"),
        ("33.5", "10.5"),
    ]
    steps = read(
        "| run | acc | gain |\n|---|---|---|\n| a | 40% | |\n| b | 44% | +4 |\n"
        "| c | 50% | +6 |\n| d | 51% | +9 |\n"
    )
    assert [str(c.before) for c in steps.changes] == ["40", "44", "50"]


def test_a_change_of_the_wrong_sign_is_read_as_printed():
    report = read("| task | base | sft | Δ |\n|---|---|---|---|\n| x | 40.0 | 44.0 | -4.0 |\n")
    assert [(str(c.before), str(c.says)) for c in report.changes] == [("40.0", "-4.0")]


# Training logs


def test_columns_of_steps_are_readings_with_counts():
    report = read("""
        | metric | Step 3 | Step 5 | change | trend |
        |---|---|---|---|---|
        | format rate | 97.7% (43/44) | **100%** (64/64) | +2.3% | better |
        | generations | 44 | 64 | +20 | fine |
        | average cost | $0.0001 | $0.0001 | 0 | stable |
        """)
    rate, generations, mean = report.metrics
    assert (rate.counts, rate.totals, rate.cumulative, rate.reads) == (
        (43, 64),
        (44, 64),
        True,
        "better",
    )
    assert (generations.counts, generations.totals) == ((44, 64), ())
    assert mean.reads == "stable"
    assert [c.says for c in report.changes] == [Decimal(t) for t in ("2.3", "20", "0")]
    assert not report.runs


LOSSES = """
    | Epoch | Train Loss | PPO Loss | KL | Beta |
    |---|---|---|---|---|
    | 1 | 0.01162 | 0.00034 | 0.09400 | 0.12 |
    | 2 | 0.01059 | 0.00083 | 0.08131 | 0.12 |

    """


def test_rows_of_steps_are_metrics_that_should_add_up():
    report = read(LOSSES)
    assert [m.meaning for m in report.metrics] == ["loss", "policy loss", "distance", None]
    (identity,) = report.identities
    assert (identity.part, identity.coefficient, identity.term) == ("PPO Loss", "Beta", "KL")


def test_groups_without_signal_and_what_is_zero_without_one_are_known():
    report = read("""
        | step | reward | zero-std groups | grad norm | MATH500 |
        |---|---|---|---|---|
        | 10 | 0.41 | 82% | 0.0 | 41.0% |
        | 20 | 0.42 | 85% | 0.1 | 43.0% |
        """)
    assert [m.meaning for m in report.metrics] == ["score", "groups without signal", "signal"]
    assert scores(report) == {"step 10": {"MATH500": "41.0"}, "step 20": {"MATH500": "43.0"}}


@pytest.mark.parametrize(
    ("line", "name", "reads"),
    [
        ("KL 值持续下降，说明模型在逐渐偏离初始策略", "KL", "away"),
        ("KL keeps falling: the policy moves away from the reference", "KL", "away"),
        ("PPO Loss 逐渐增加，说明模型在学习新的策略", "PPO Loss", "better"),
        ("The PPO Loss rises while KL falls, so the model is learning", "PPO Loss", "better"),
        ("KL_BETA is lower, the policy may drift", "KL", None),
        ("KL falls", "KL", None),
    ],
)
def test_what_a_sentence_concludes_from_a_metric(line: str, name: str, reads: str | None):
    metric = read(LOSSES + line + "\n").metric(name)
    assert metric is not None and metric.reads == reads


# What is left open


def test_open_cells_lines_and_empty_sections_are_counted_once():
    report = read("""
        # Report
        ## Results
        | a | b |
        |---|---|
        | ? | TBD |
        ## Findings (待填充)
        ### Good
        （待填充）
        ## Conclusion
        """)
    assert {part.place: part.count for part in report.open} == {
        "Report / Results": 2,
        "Findings (待填充) / Good": 1,
        "Conclusion": 1,
    }


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n" * 50, "|", "| |\n|---|", "#", "```", "- ", "> ", "\x00\x1b[2J"),
        "| |\n|---|\n| |\n| | |\n",
        "| a | b |\n|---|---|\n| x |\n|\n",
        "- : 5%\n- (: 5%\n- [: 1/0\n",
        "| (?:a | score |\n|---|---|\n| [*+ | 5% |\n\n[*+ beats (?:a.\n",
    ],
)
def test_odd_texts_are_read_without_errors(text: str):
    read_markdown(text, Path("log.md"))


# The five logs, which the reader does not know by heart


def test_what_the_generic_reader_finds_in_the_five_logs(shared: Path):
    found = {}
    for file in sorted((shared / "reports").glob("00*.md")):
        report = read_markdown(file.read_text("utf-8"), file)
        scored = sum(len(v) for run in report.runs for v in run.scores.values())
        found[file.name[:3]] = (len(report.runs), scored, len(report.metrics))
    assert found == {
        "000": (18, 90, 0),
        "001": (3, 12, 0),
        "002": (0, 0, 5),
        "003": (0, 0, 7),
        "004": (0, 0, 0),
    }
