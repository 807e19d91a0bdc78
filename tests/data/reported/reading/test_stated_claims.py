"""Conclusions in sentences: who is said to be better than whom, on what, and what is no claim."""

import pytest

from tests.data.reported.reading.logs import said


def claims(sentence: str) -> list[str]:
    return [
        f"{c.run} {c.says} {c.control}" + (f" on {', '.join(c.cells)}" if c.cells else "")
        for c in said(sentence).comparisons
    ]


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("grpo-2 outperforms sft.", ["grpo-2 better sft"]),
        ("GRPO-2 is better than SFT on Alpha.", ["grpo-2 better sft on Alpha"]),
        ("On Gamma, sft beats grpo_2.", ["sft better grpo-2 on Gamma"]),
        ("sft drops below the baseline on Gamma", ["sft worse base on Gamma"]),
        ("Compared with base, sft improves on Alpha.", ["sft better base on Alpha"]),
        ("sft and grpo-2 both beat base.", ["sft better base", "grpo-2 better base"]),
        ("sft is as good as grpo-2.", ["sft same grpo-2"]),
        ("There is no difference between sft and grpo-2.", ["sft same grpo-2"]),
        ("sft has no effect.", ["sft same base"]),
        (
            "grpo-2 beats sft on Alpha but is worse on Gamma.",
            ["grpo-2 better sft on Alpha", "grpo-2 worse sft on Gamma"],
        ),
        ("grpo-2 优于 sft。", ["grpo-2 better sft"]),
        ("sft 比基线好。", ["sft better base"]),
        ("在 Gamma 上，grpo-2 不如 sft。", ["grpo-2 worse sft on Gamma"]),
        ("sft 与 grpo-2 持平。", ["sft same grpo-2"]),
        ("与基线相比，sft 在 Alpha 上提升明显。", ["sft better base on Alpha"]),
        ("sft 无效", ["sft same base"]),
    ],
)
def test_a_comparison_of_known_runs_is_a_claim_of_the_benchmarks_it_names(
    sentence: str, found: list[str]
):
    assert claims(sentence) == found


@pytest.mark.parametrize(
    "sentence",
    [
        "grpo-2 is not better than sft.",
        "grpo-2 is better than sft, but not significantly: p = 0.4 is not significant.",
        "grpo-2 and sft differ within noise, we make no claim that it is better.",
        "Is grpo-2 better than sft?",
        "grpo-2 may beat sft with more items.",
        "We plan to show that grpo-2 beats sft.",
        "grpo-2 is faster than sft.",
        "The loss of grpo-2 is lower than that of sft.",
        "sft improves.",
        "sft and base were evaluated on the same 200 items.",
        "sft 与 base 使用相同的提示词。",
        "ppo outperforms dpo.",
        "base, sft and grpo-2 were evaluated.",
        "grpo-2 与 sft 的差异不显著，不能说明谁更好。",
        "grpo-2 是否优于 sft 尚不清楚。",
        "grpo-2 的训练速度高于 sft。",
    ],
)
def test_hedges_questions_plans_other_quantities_and_unknown_names_are_no_claims(sentence: str):
    assert claims(sentence) == []


def test_a_p_value_and_pairing_beside_a_claim_are_kept():
    (claim,) = said("sft is better than base on Alpha (McNemar, p = 0.031).").comparisons
    assert (claim.paired, str(claim.p)) == (True, "0.031")
    (claim,) = said("sft is better than base on Alpha (p < 0.05).").comparisons
    assert claim.p is not None and claim.p < 0.05 and not claim.paired


def test_a_note_in_a_row_is_about_its_run():
    table = "| model | acc | notes |\n|---|---|---|\n| base | 40% | |\n| a | 50% | {note} |\n"
    notes = [("better than base", "better"), ("不如基线", "worse"), ("as planned", None)]
    for note, says in notes:
        found = said(table.format(note=note)).comparisons
        assert [(c.run, c.control, c.says) for c in found] == (
            [("a", "base", says)] if says else []
        )
    (claim,) = said(table.format(note="base is better")).comparisons
    assert (claim.run, claim.control, claim.says) == ("base", "a", "better")
