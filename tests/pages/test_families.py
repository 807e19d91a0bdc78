"""No verdict is called noise beside an interval without 0, unless what undoes it is named."""

import pytest

from assay.judge.audit.rules import audit
from assay.judge.intervals import LEVEL
from assay.judge.verdict import Comparison, explain
from assay.pages.command_tables import audit_findings
from assay.pages.content import beside
from assay.pages.words import words
from tests.judge.audit.faults import record
from tests.judge.simulated import judge_family, single_pass

LANGUAGES = ("en", "zh")
FAMILY = {"en": "corrected for 6 comparisons", "zh": "按 6 次比较"}
UNDONE = {"en": "the missing scores could undo", "zh": "缺失的分数可能推翻"}


def family(unscored: int = 0) -> list[Comparison]:
    """Six arms against a control that fails on 100 items; the first arm solves some of them.

    Where the control has no score of some items, the arm fails on these.
    """
    control = single_pass([float("nan")] * unscored + [0.0] * (100 - unscored))
    solved = 20 if unscored else 6
    first = [0.0] * (100 - solved) + [1.0] * solved
    nothing = {f"null{i}": single_pass([0.0] * 100) for i in range(5)}
    return list(judge_family(control, {"first": single_pass(first), **nothing}).values())


def leaves_zero(comparison: Comparison, level: float) -> bool:
    interval = comparison.interval_at(level)
    return interval.low > 0 or interval.high < 0


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_only_the_family_makes_undecided_names_the_family(lang):
    found = [c for c in family() if c.verdict == "undecided" and leaves_zero(c, LEVEL)]
    assert found
    for comparison in found:
        assert not leaves_zero(comparison, comparison.interval.level)
        assert FAMILY[lang] in explain(comparison, words(lang).verdicts)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_missing_scores_make_undecided_names_them_in_every_cell(lang):
    undecided = [c for c in family(20) if c.verdict == "undecided"]
    found = [c for c in undecided if leaves_zero(c, c.interval.level)]
    assert found
    for comparison in found:
        assert UNDONE[lang] in explain(comparison, words(lang).verdicts)
        assert UNDONE[lang] in beside(comparison, words(lang))


def reported(runs: int) -> str:
    """Runs on 200 items, of which the first is 10.5 points above their control."""
    first = '[scoring]\nitems = 200\ncontrol = "a"\n[[runs]]\nname = "a"\nscores = 50.0\n'
    return first + "".join(
        f'[[runs]]\nname = "b{i}"\nscores = {60.5 if i == 0 else 50.5}\n'
        + ('says = "better"\n' if i == 0 else "")
        for i in range(runs)
    )


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_audit_names_the_family_that_makes_a_claim_noise(lang):
    alone = next(s for s in audit_findings(audit(record(reported(1))), lang) if "b0" in s.what)
    assert "6" not in alone.what and alone.severity == "note"
    among = next(s for s in audit_findings(audit(record(reported(6))), lang) if "b0" in s.what)
    assert among.severity == "warning"
    assert FAMILY[lang] in among.what and FAMILY[lang].rstrip("s") in among.evidence
    assert "99.17" in among.evidence and "Holm" not in among.evidence
