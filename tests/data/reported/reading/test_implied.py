"""Conclusions about runs that a sentence does not both name by their whole names."""

import pytest

from assay.data.reported.reading.name_forms import Names
from tests.data.reported.reading.logs import said
from tests.data.reported.reading.test_stated_claims import claims

RUNS = ["base, zero-shot", "lora r16", "lora r64", "distilled 1.5B student", "qwen + sft"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("r64 and r16", ["lora r64", "lora r16"]),
        ("the student", ["distilled 1.5B student"]),
        ("SFT", ["qwen + sft"]),
        ("lora", []),
        ("r641, 64, xr64", []),
    ],
)
def test_a_part_that_only_one_name_has_stands_for_it(text: str, found: list[str]):
    assert [named.name for named in Names(RUNS).find(text)] == found


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("Going from sft to grpo-2 pays off on Alpha.", ["grpo-2 better sft on Alpha"]),
        ("从 sft 换到 grpo-2 后 Alpha 更好。", ["grpo-2 better sft on Alpha"]),
        ("grpo-2 在 Alpha 上稳稳压过 sft。", ["grpo-2 better sft on Alpha"]),
        ("grpo-2 beats sft on Alpha, so we will ship it.", ["grpo-2 better sft on Alpha"]),
        ("grpo-2 在 Alpha 上胜过 sft，因此计划上线。", ["grpo-2 better sft on Alpha"]),
        ("grpo-2 is the winner on Alpha.", ["grpo-2 better sft on Alpha"]),
        ("Alpha 上 grpo-2 最强。", ["grpo-2 better sft on Alpha"]),
        ("Alpha: 46.0 vs 44.0, a better model.", ["grpo-2 better sft on Alpha"]),
        ("On Gamma it is worse: 35.0 to 34.5.", ["grpo-2 worse sft on Gamma"]),
        ("grpo-2 improves Alpha by 6.0 points.", ["grpo-2 better base on Alpha"]),
        ("Alpha 上 sft 提升 4.0 个点。", ["sft better base on Alpha"]),
    ],
)
def test_the_best_a_gain_and_two_scores_name_the_other_run(sentence: str, found: list[str]):
    assert claims(sentence) == found


@pytest.mark.parametrize(
    "sentence",
    [
        "grpo-2 is the best checkpoint on dev.",
        "grpo-2 is the winner on Gamma.",
        "grpo-2 wins.",
        "grpo-2 should beat sft on Alpha.",
        "Alpha: 46.0 vs 44.0, within noise.",
        "46.0 against 30.0 would be better.",
        "grpo-2 uses the best prompt.",
        "If grpo-2 wins on Alpha, we ship it.",
    ],
)
def test_what_names_no_other_run_or_is_hedged_is_no_claim(sentence: str):
    assert claims(sentence) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "grpo-2 has the highest Alpha of all checkpoints, that one is released.",
        "We report the seed that peaks on Alpha: grpo-2.",
        "按 Alpha 挑出最好的检查点 grpo-2。",
        "对外用的是 Alpha 最高的那一步 grpo-2。",
    ],
)
def test_the_best_point_on_a_benchmark_that_is_then_reported_is_a_choice_by_the_test(
    sentence: str,
):
    assert [search.chosen for search in said(sentence).searches] == ["grpo-2"]


def test_the_highest_score_of_a_table_is_no_choice():
    assert not said("grpo-2 has the highest Alpha of all checkpoints.").searches


@pytest.mark.parametrize(
    ("sentence", "of"),
    [
        ("sft reaches 47.5 on Alpha and grpo-2 reaches 46.0 on Alpha.", ["sft"]),
        ("On Alpha sft is at 44.0, grpo-2 is at 49.5.", ["grpo-2"]),
        ("Alpha 上 sft 为 44.0，grpo-2 为 49.5。", ["grpo-2"]),
        ("sft reaches 47.5.", []),
        ("Alpha: sft would reach 47.5.", []),
        ("sft gets 44% and grpo-2 gets 46% on Alpha.", []),
    ],
)
def test_each_score_that_is_printed_again_is_held_against_that_of_its_run(
    sentence: str, of: list[str]
):
    assert [mention.of for mention in said(sentence).mentions] == of


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        ("sft is up 6.0 points over base on Alpha.", ["40.0 44.0 6.0"]),
        ("Alpha 上 sft 比 base 高出 6.0 个百分点。", ["40.0 44.0 6.0"]),
        ("sft is up 6.0 points over base.", []),
        ("sft is up by about 6.0 points over base on Alpha.", []),
        ("sft gained 6.0 points on Alpha.", []),
    ],
)
def test_a_difference_in_points_of_two_named_runs_is_a_printed_change(
    sentence: str, changes: list[str]
):
    found = said(sentence).changes
    assert [f"{c.before} {c.after} {c.says}" for c in found] == changes


def test_numbers_of_a_terminal_are_a_table():
    log = "```\nstep  reward  zero_std_groups\n10    0.031   61/64\n20    0.029   62/64\n```\n"
    assert [m.name for m in said(log).metrics if m.meaning == "groups without signal"]
    assert not said("```\nfor x in y:\n  a  b\n  1  2\n```\n").metrics
