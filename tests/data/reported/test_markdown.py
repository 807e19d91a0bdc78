"""The Markdown reader: what is a result is read, what only looks like one is left alone."""

from decimal import Decimal
from pathlib import Path
from textwrap import dedent

import pytest

from assay.data.reported.markdown.blocks import leaves, sections
from assay.data.reported.markdown.names import condition, condition_name, data_of, values_of
from assay.data.reported.markdown.reader import read_markdown
from assay.data.reported.record import Reported


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


# Scores


def test_a_list_of_percentages_is_a_runs_repeats_with_its_quoted_settings():
    report = read("""
        ### full1 (no effect)
        > ms-swift
        > full fine-tuning with SFT, all responses -> loss
        > hardgen 14k

        - 24.50%
        - 23.5 %
        """)
    assert scores(report) == {"full1": {"": "24.50 23.5"}}
    (run,) = report.runs
    assert run.says == "same"
    assert run.settings == {
        "trainer": "ms-swift",
        "method": "SFT",
        "adapt": "full",
        "loss_on": "all replies",
        "data": "hardgen 14k",
    }


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
    ],
)
def test_what_only_looks_like_a_score_is_none(text: str):
    assert not any(run.scores for run in read(text).runs)


def test_labelled_shares_are_benchmarks_of_the_heading_with_their_known_items():
    report = read("""
        ## 1.2 Long COT (final)
        - AMC23 acc: 0.325
        - GSM8k acc: 0.694
        """)
    assert scores(report) == {"Long COT": {"AMC23": "32.5", "GSM8k": "69.4"}}
    assert report.runs[0].items == {"AMC23": 40, "GSM8k": 1319}


def test_a_share_of_one_digit_stays_as_coarse_as_it_was_printed():
    (values,) = read("# A\n- AMC23 acc: 0.4\n").runs[0].scores.values()
    assert values[0].as_tuple().exponent == 1


def test_rows_may_be_runs():
    report = read("""
        | Method | GSM8K acc | MATH500 |
        |---|---|---|
        | baseline | 71.6% | 44.0 |
        | **ours** (best) | 0.741 | ? |
        """)
    assert scores(report) == {
        "baseline": {"GSM8K": "71.6", "MATH500": "44.0"},
        "ours": {"GSM8K": "74.1"},
    }
    assert report.runs[-1].control == "baseline"
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


CONDITIONS = """
    # beta=0.1 vs 0.2
    ## Epoch 1
    ### beta=0.1 results
    | samples | shot 1 | shot 2 |
    |---|---|---|
    | 100 | 57.0% | ? |
    | 200 | 51.0% | 52.5% |
    ### Epoch 1 differences
    | samples | shot | beta=0.2 | beta=0.1 | change |
    |---|---|---|---|---|
    | 100 | 1 | 58.0% | 57.0% | -1.0% |
    """


def test_two_tables_of_one_condition_give_one_run():
    report = read(CONDITIONS)
    assert scores(report) == {
        "epoch 1, beta=0.1": {
            "samples 100, shot 1": "57.0",
            "samples 200, shot 1": "51.0",
            "samples 200, shot 2": "52.5",
        },
        "epoch 1, beta=0.2": {"samples 100, shot 1": "58.0"},
    }
    assert report.runs[0].items == {
        "samples 100, shot 1": 100,
        "samples 200, shot 1": 200,
        "samples 200, shot 2": 200,
    }
    assert not report.mentions


def test_columns_of_conditions_are_compared_with_the_first_of_them_once():
    (claim,) = read(CONDITIONS).comparisons
    assert (claim.run, claim.control) == ("epoch 1, beta=0.1", "epoch 1, beta=0.2")
    assert claim.vary == ("beta",)


def test_two_tables_that_disagree_on_one_cell_are_kept_as_a_contradiction():
    report = read(CONDITIONS.replace("| 58.0% | 57.0%", "| 58.0% | 57.5%"))
    assert [m.settings for m in report.mentions] == [
        {"samples 100, shot 1": "57.0"},
        {"samples 100, shot 1": "57.5"},
    ]


def test_settings_of_a_condition_hold_for_its_epochs():
    report = read(
        CONDITIONS
        + """
    ## beta=0.1 settings
    | parameter | value |
    |---|---|
    | RL data | `rl_old.json` (older) |
    | base checkpoint | RCE epoch 5 (loss 7.9) |
    """
    )
    settings = {run.name: run.settings for run in report.runs}
    assert settings["epoch 1, beta=0.1"] == {"data": "rl_old.json", "base": "RCE epoch 5"}
    assert settings["epoch 1, beta=0.2"] == {}


# Training logs


def test_columns_of_steps_are_readings_with_counts():
    report = read("""
        | metric | Step 3 | Step 5 | change | trend |
        |---|---|---|---|---|
        | format rate | 97.7% (43/44) | **100%** (64/64) | +2.3% | better |
        | generations | 44 | 64 | +20 | fine |
        | total cost | $0.0062 | $0.0085 | +$0.0023 | fine |
        | average cost | $0.0001 | $0.0001 | 0 | stable |
        """)
    rate, generations, total, mean = report.metrics
    assert (rate.counts, rate.totals, rate.cumulative, rate.reads) == (
        (43, 64),
        (44, 64),
        True,
        "better",
    )
    assert (generations.counts, generations.totals) == ((44, 64), ())
    assert (total.cumulative, mean.reads) == (True, "stable")
    assert [(q.value, q.total, q.count) for q in report.quotients] == [
        ("average cost", "total cost", "generations")
    ]
    assert [c.says for c in report.changes] == [Decimal(t) for t in ("2.3", "20", "0.0023", "0")]


LOSSES = """
    | Epoch | Train Loss | PPO Loss | KL | Beta |
    |---|---|---|---|---|
    | 1 | 0.01162 | 0.00034 | 0.09400 | 0.12 |
    | 2 | 0.01059 | 0.00083 | 0.08131 | 0.12 |

    """


def test_rows_of_steps_are_metrics_that_should_add_up():
    report = read(LOSSES + "- Epoch 1: KL = 0.09400\n    - Epoch 2: KL = 0.08131 (↓ 13.5%)\n")
    assert [m.meaning for m in report.metrics] == ["loss", "policy loss", "distance", None]
    (identity,) = report.identities
    assert (identity.part, identity.coefficient, identity.term) == ("PPO Loss", "Beta", "KL")
    (change,) = report.changes
    assert (change.says, change.relative) == (Decimal("-13.5"), True)


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


# Sentences

RUNS = "## a1\n> hardgen 100\n- 30.0%\n## a2\n- 31.0%\n## baseline\n- 26.0%\n## Log\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a1，在hardgen 1k上full sft，有效", {"a1": "better"}),
        ("发现a1实验有效，新增a2实验", {"a1": "better"}),
        ("a2无效，或许说明lora就是无效？", {"a2": "same"}),
        ("a1 has no effect", {"a1": "same"}),
        ("a1 and a2 are new", {}),
    ],
)
def test_the_verdict_of_a_run_in_a_log(line: str, says: dict[str, str]):
    found = {run.name: run.says for run in read(RUNS + line + "\n").runs if run.says}
    assert found == says


def test_another_mention_of_a_run_with_its_data():
    (mention,) = read(RUNS + "a1，在hardgen 1k上full sft\n").mentions
    assert (mention.of, mention.settings, mention.line) == ("a1", {"data": "hardgen 1k"}, 9)


def test_a_mention_of_two_data_sets_is_ambiguous_and_left_alone():
    assert not read(RUNS + "a1 uses gem 2k, filtered from gem 5k\n").mentions


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a1的结果比a2的结果差", [("a1", "a2", "worse")]),
        ("为什么a1比a2好，也比baseline高", [("a1", "a2", "better"), ("a1", "baseline", "better")]),
        ("a1 is worse than a2", [("a1", "a2", "worse")]),
        ("a1 has more steps than a2", []),
        ("a1 and a2 are fine", []),
    ],
)
def test_comparisons_in_a_sentence(line: str, found: list):
    claims = read(RUNS + line + "\n").comparisons
    assert [(c.run, c.control, c.says) for c in claims] == found


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("- Clip-Higher：有效果", "Clip-Higher"),
        ("- curriculum: no effect", "curriculum"),
        ("证明 temperature=0.1 非常有效", "temperature=0.1"),
        ("This proves that the new prompt works", "the new prompt"),
        ("- advice: the fix that is effective comes later", None),
        ("- 数据: 有效率 50 以上", None),
        ("- [ ] Step 200: 超越baseline性能", None),
    ],
)
def test_claims_of_an_effect(line: str, what: str | None):
    assert [effect.what for effect in read(line + "\n").effects] == ([what] if what else [])


def test_a_value_that_is_compared_and_never_run():
    text = CONDITIONS + "\n    beta=0.2 and 0.3 give nearly the same policy\n"
    assert [c.run for c in read(text).comparisons] == ["epoch 1, beta=0.1", "beta=0.3"]
    plan = CONDITIONS + "\n    we should train beta=0.2 and 0.3 again\n"
    assert [c.run for c in read(plan).comparisons] == ["epoch 1, beta=0.1"]


def test_the_words_for_conditions_and_data():
    assert values_of("KL_BETA=0.12 vs 0.15, epoch 1, 2") == {
        "KL_BETA": ["0.12", "0.15"],
        "epoch": ["1", "2"],
    }
    assert condition(["KL_BETA=0.12 vs 0.15", "Epoch 1", "KL_BETA=0.15，第 2 轮"]) == {
        "epoch": "1",
        "KL_BETA": "0.15",
        "round": "2",
    }
    assert condition_name({"KL_BETA": "0.15", "epoch": "1"}) == "epoch 1, KL_BETA=0.15"
    assert data_of("在hardgen 14k上, step 500, top 100, gem 5k") == ["hardgen 14k", "gem 5k"]


# What is left open


def test_open_cells_lines_and_empty_sections_are_counted_once():
    report = read("""
        # Report
        ## Results
        | a | b |
        |---|---|
        | ? | ?/16 |
        ## Findings (待填充)
        ### Good
        （待填充）
        ## run9（未完成）
        > hardgen 1k
        - （未完成，待跑）
        ## Conclusion
        """)
    assert {part.place: part.count for part in report.open} == {
        "Report / Results": 2,
        "Findings (待填充) / Good": 1,
        "Conclusion": 1,
    }
    assert [run.name for run in report.runs if not run.finished] == ["run9"]


@pytest.mark.parametrize(
    "text", ["", "\n" * 50, "|", "| |\n|---|", "#", "```", "- ", "> ", "\x00\x1b[2J"]
)
def test_odd_texts_are_read_without_results(text: str):
    assert not any(run.scores for run in read_markdown(text, Path("log.md")).runs)


# The five logs themselves


def test_the_tool_calling_log_gives_all_its_runs(shared: Path):
    report = read_markdown(
        (shared / "reports/000-tool-calling-experiment-log.md").read_text("utf-8"), Path("0.md")
    )
    scored = [run for run in report.runs if run.scores]
    assert len(scored) == 18 and all(len(run.scores[""]) == 5 for run in scored)
    assert [run.name for run in report.runs if not run.finished] == [
        *("verl7", "verl8", "verl9", "full8", "full9")
    ]
    assert (report.scoring.items, report.scoring.categories) == (200, 4)
    assert {run.control for run in scored} == {"baseline", ""}


def test_the_math_report_gives_three_models_on_four_benchmarks(shared: Path):
    report = read_markdown(
        (shared / "reports/001-math-cot-sft-grpo-report.md").read_text("utf-8"), Path("1.md")
    )
    assert scores(report) == {
        "Short COT": {"AMC23": "40", "GSM8k": "70.7", "MATH500": "41.2", "OlympiadBench": "10.8"},
        "Long COT": {"AMC23": "32.5", "GSM8k": "69.4", "MATH500": "40.8", "OlympiadBench": "13.8"},
        "GRPO": {"AMC23": "52.5", "GSM8k": "77.5", "MATH500": "61.8", "OlympiadBench": "24.6"},
    }
    assert [(s.chosen, s.points) for s in report.searches] == [("Short COT", 18)]


def test_the_selector_report_gives_four_conditions_and_every_open_cell(shared: Path):
    text = (shared / "reports/002-demo-selector-kl-comparison.md").read_text("utf-8")
    report = read_markdown(text, Path("2.md"))
    assert {run.name: len(run.scores) for run in report.runs if run.scores} == {
        "epoch 1, KL_BETA=0.12": 4,
        "epoch 1, KL_BETA=0.15": 16,
        "epoch 2, KL_BETA=0.12": 4,
        "epoch 2, KL_BETA=0.15": 16,
    }
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    cells = sum(cell.strip().startswith("?") for row in rows for cell in row)
    assert sum(part.count for part in report.open) == cells + 4 == 178


def test_the_progress_report_gives_its_seven_metrics(shared: Path):
    report = read_markdown(
        (shared / "reports/003-workflow-grpo-progress.md").read_text("utf-8"), Path("3.md")
    )
    assert len(report.metrics) == 7 and not report.runs
    assert [len(rating.marks) for rating in report.ratings] == [6]


def test_the_plan_gives_three_ranges_and_no_score(shared: Path):
    report = read_markdown(
        (shared / "reports/004-demo-selector-improvement-plan.md").read_text("utf-8"), Path("4.md")
    )
    assert not any(run.scores for run in report.runs) and not report.metrics
    assert [(c.control, *map(str, c.points)) for c in report.comparisons] == [
        ("v2", "0.27", "1.0"),
        ("v1", "0.4", "1.5"),
        ("v0", "1.27", "4.5"),
    ]
