"""How results were made, in sentences: choices on the test, failures left out, causes, repeats."""

from pathlib import Path

import pytest

from assay.data.reported.read_reported import read_markdown
from tests.data.reported.reading.logs import said


@pytest.mark.parametrize(
    ("sentence", "points"),
    [
        ("We report the checkpoint with the highest test score.", None),
        ("grpo-2 is the best of 8 seeds.", 8),
        ("Of 12 configurations we kept the one with the best test accuracy.", 12),
        ("按测试集准确率挑选检查点。", None),
        ("报告的是 5 个种子里最好的一次。", 5),
    ],
)
def test_a_choice_by_the_reported_scores_is_kept(sentence: str, points: int | None):
    (search,) = said(sentence).searches
    assert (search.chosen, search.on, search.points) == ("grpo-2", "test", points)


@pytest.mark.parametrize(
    "sentence",
    [
        "The checkpoint was selected on the validation set and tested once.",
        "The last checkpoint is reported; the test set was not used to choose it.",
        "No checkpoint selection: we always take the final step before looking at test scores.",
        "The best checkpoint by dev accuracy is reported on the test set.",
        "检查点由验证集选出，测试集只用一次。",
        "固定取最后一步，没有用测试集挑选。",
        "The test set has 200 items.",
    ],
)
def test_a_choice_by_other_scores_is_none(sentence: str):
    assert not said(sentence).searches


def test_items_left_out_are_counted_for_the_runs_that_a_sentence_names():
    runs = said("For sft 12 timeouts on Alpha were excluded.").runs
    assert [run.left_out for run in runs] == [{}, {"Alpha": 12}, {}]
    runs = said("解析失败的 7 条不计入 Gamma。").runs
    assert [run.left_out for run in runs] == [{"Gamma": 7}] * 3


@pytest.mark.parametrize(
    "sentence",
    [
        "12 timeouts count as wrong, none were excluded.",
        "9 timeouts were scored as failures and not dropped.",
        "From the training data 300 invalid rows were removed.",
        "超时的 7 条按错误计，没有剔除。",
    ],
)
def test_failures_that_count_are_not_left_out(sentence: str):
    assert not any(run.left_out for run in said(sentence).runs)


def test_a_gain_put_down_to_one_setting_is_a_comparison_about_it():
    (claim,) = said("grpo-2 beats sft on Alpha thanks to the data.").comparisons[:1]
    assert (claim.run, claim.control) == ("grpo-2", "sft")
    found = said("The gain of grpo-2 over sft comes from the learning rate.").comparisons
    assert [(c.run, c.control, c.vary) for c in found if c.vary] == [
        ("grpo-2", "sft", ("learning_rate",))
    ]
    assert not said("The gain comes from luck.").comparisons


@pytest.mark.parametrize(
    ("sentence", "kept"),
    [
        ("sft reaches 47.5% on Alpha.", True),
        ("sft 在 Alpha 上的准确率为 47.5%。", True),
        ("sft reaches 44% on Alpha.", False),
        ("sft reaches 47.5%.", False),
        ("sft reaches 47.5% on the training split of Alpha.", False),
        ("sft gains about 10% on Alpha.", False),
        ("sft reaches 47.5% of the score of grpo-2 on Alpha.", False),
    ],
)
def test_a_score_that_a_sentence_prints_otherwise_is_a_second_number(sentence: str, kept: bool):
    assert [m.of for m in said(sentence).mentions] == (["sft"] if kept else [])


def test_a_share_of_groups_without_signal_may_stand_in_a_sentence():
    (metric,) = said("In 87% of the groups all rewards were equal.").metrics
    assert (metric.meaning, str(metric.values[0])) == ("groups without signal", "87")
    assert not said("87% of the prompts are in English.").metrics


def test_settings_of_a_list_item_are_those_of_its_run_and_scores_are_none():
    settings = "- sft: lr 1e-5, top-k = 5, memory 40GB\n- grpo-2: lr 1e-6, top-k = 20, 44% right\n"
    found = {run.name: run.settings for run in said(settings).runs}
    assert found["sft"]["top k"] == "5" and found["grpo-2"]["top k"] == "20"
    assert not {"memory", "44%"} & found["sft"].keys()


def test_the_best_of_a_list_of_seeds_that_is_reported_is_a_choice():
    seeds = "# DPO\n- seed 1: 61.2%\n- seed 2: 63.4%\n- seed 3: 60.8%\n\n{}\n"
    for sentence, chosen in (
        ("We report 63.4%, the best seed.", 1),
        ("The mean of the seeds is reported.", 0),
        ("Seed 2 is the best seed.", 0),
    ):
        report = read_markdown(seeds.format(sentence), Path("log.md"))
        assert len(report.searches) == chosen, sentence
