"""What pages say of a judge: its kappa with the interval, in both languages."""

import numpy as np
import pytest

from assay.compare.table import HeldJudge, JudgedBy, held
from assay.pages.content import judge_line
from assay.pages.markdown import page_markdown
from assay.pages.page import Page
from assay.pages.words import worded, words
from assay.runs.judgement_journal import JudgedLabels, LabelledJudgement

NAMES = ("clear", "grader", "scripted:judge.jsonl", "labels.jsonl", "kappa", "Cohen", "labels FILE")


def english_in(text: str, *names: str) -> str:
    """`text` without what may stay as it is."""
    for name in names:
        text = text.replace(name, "")
    return "".join(c for c in text if c.isascii() and c.isalpha())


def judge(right: float, least: float = 0.6, answers: int = 200) -> HeldJudge:
    """A judge that is right in a share of yes and no."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 2, answers).astype(float)
    verdicts = np.where(random.random(answers) < right, labels, 1 - labels)
    judged = [
        LabelledJudgement(str(n), str(n), {"clear": one}, {"clear": two})
        for n, (one, two) in enumerate(zip(labels.tolist(), verdicts.tolist(), strict=True))
    ]
    judged.append(LabelledJudgement("z", "z", {"clear": 1.0}, {}))
    model, levels = "grader (scripted:judge.jsonl)", {"clear": (0.0, 1.0)}
    kind = "rubric:quality.toml"
    return held(JudgedLabels(kind, {}, levels, model, least, "labels.jsonl", judged))


@pytest.mark.parametrize(
    ("right", "least", "trust", "code", "refusal"),
    [
        (0.95, 0.6, "shown", None, ""),
        (0.9, 0.75, "unsure", "judge_unsure", ""),
        (0.7, 0.6, "below", "judge_below", "agrees less with people"),
    ],
)
def test_trust_is_what_the_interval_of_kappa_shows(right, least, trust, code, refusal):
    found = JudgedBy({}, judge(right, least))
    assert found.held and found.held.trust == trust
    assert [each.code for each in found.findings] == [code] * bool(code)
    assert refusal in found.refusal and bool(refusal) == bool(found.refusal)
    for each in found.findings:
        said = [worded(each, words(lang)) for lang in ("en", "zh")]
        assert said[0].what and english_in(said[1].what + said[1].evidence, *NAMES) == ""


def test_without_a_verdict_or_a_label_nothing_is_known():
    for found in (JudgedBy({}, None), JudgedBy({}, judge(0.9, answers=0))):
        assert "agreement with people is unknown" in found.refusal
        assert [each.code for each in found.findings] == ["judge_unknown"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_has_kappa_in_a_line(lang):
    found, w = judge(0.9), words(lang)
    said = page_markdown(Page(w, "", [judge_line(found, w)]))
    kappa = found.kappas["clear"]
    assert kappa is not None and f"clear {kappa.value:.2f}" in said and "201" in said
    if lang == "zh":
        assert english_in(said, *NAMES) == ""
