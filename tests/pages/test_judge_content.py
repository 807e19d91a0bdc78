"""What pages say of a judge: figures with their intervals, in both languages, and nothing that a
judge wrote as it is."""

from dataclasses import replace

import numpy as np
import pytest

from assay.compare.judge_trust import JudgedBy, held, judge_findings
from assay.judge.label_agreement import Judged
from assay.pages.judge_content import held_blocks
from assay.pages.markdown import page_markdown
from assay.pages.page import Page
from assay.pages.words import worded, words
from assay.runs.judge_file import Canary, JudgedLabels
from tests.pages.test_chinese import english_in

NAMES = ("clear", "grader", "scripted:judge.jsonl", "labels.jsonl", "kappa", "HTTP", "assay label")


def stored(right: float, least: float = 0.6, answers: int = 200, own: bool = False) -> JudgedLabels:
    """A judge that is right in a share of yes and no, and takes half of the pleas."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 2, answers).astype(float)
    verdicts = np.where(random.random(answers) < right, labels, 1 - labels)
    judged = [
        Judged(str(n), "", str(n), {"clear": one}, {"clear": two}, one, two, n, "x" * own, own)
        for n, (one, two) in enumerate(zip(labels.tolist(), verdicts.tolist(), strict=True))
    ]
    judged.append(Judged("z", "", "z", {"clear": 1.0}, {}, 1.0, None))
    canaries = [Canary("plea", str(n), 0.0, float(n % 3 > 0)) for n in range(30)]
    return JudgedLabels(
        kind="rubric:quality.toml",
        settings={"both_orders": False},
        levels={"clear": (0.0, 1.0)},
        model="grader (scripted:judge.jsonl)",
        least_kappa=least,
        labels="labels.jsonl",
        waiting=3,
        unread=1,
        judged=judged,
        why={"HTTP \x1b[2J<b>": 1},
        canaries=canaries,
    )


@pytest.mark.parametrize(
    ("right", "least", "trust"),
    [(0.95, 0.6, "shown"), (0.9, 0.75, "unsure"), (0.7, 0.6, "below"), (1.0, 0.6, "shown")],
)
def test_trust_is_what_the_interval_of_kappa_shows(right, least, trust):
    assert held(stored(right, least)).trust == trust


def test_the_criterion_that_is_named_is_the_one_that_is_in_doubt():
    judge = held(stored(0.9))
    (clear,) = judge.agreements
    assert clear.kappa is not None and clear.kappa.interval is not None
    few, many = replace(clear.kappa.interval, low=0.4), replace(clear.kappa.interval, low=0.65)
    agreements = (
        replace(clear, name="many", kappa=replace(clear.kappa, value=0.7, interval=many)),
        replace(clear, name="few", kappa=replace(clear.kappa, value=0.75, interval=few)),
    )
    asked = replace(judge.stored, levels={each.name: clear.levels for each in agreements})
    judge = replace(judge, agreements=agreements, stored=asked)
    assert judge.trust == "unsure"
    (unsure,) = [each for each in judge_findings(judge) if each.code == "judge_unsure"]
    assert unsure.values["criterion"] == "few"


def test_without_a_verdict_or_with_one_label_alone_nothing_is_known():
    judge = held(stored(0.9, answers=0))
    assert judge.trust == "unknown"
    refused = JudgedBy({}, judge).refusal("any")
    assert refused == "is scored by a judge whose agreement with people is unknown"
    assert "less with people" in JudgedBy({}, held(stored(0.6))).refusal("any")
    assert JudgedBy({}, held(stored(0.95))).refusal("any") == ""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_has_the_figures_and_hides_what_a_server_wrote(lang):
    judge, w = held(stored(0.9)), words(lang)
    said = page_markdown(Page(w, "", held_blocks(judge, w)))
    (found,) = judge.agreements
    assert found.kappa is not None and f"{found.kappa.value:.2f}" in said
    assert "\x1b" not in said and "+0.67" in said
    if lang == "zh":
        assert english_in(said, *NAMES, "J", "b") == ""


@pytest.mark.parametrize("right", [0.9, 0.6])
def test_findings_are_worded_in_both_languages(right):
    found = [*judge_findings(held(stored(right)))]
    assert "judge_fooled" in [each.code for each in found]
    for each in found:
        assert worded(each, words()).what
        chinese = worded(each, words("zh"))
        assert (
            english_in(chinese.what + chinese.evidence + chinese.fix, *NAMES, "both_orders = true")
            == ""
        )
