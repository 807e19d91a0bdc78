"""Both languages say the same things with the same figures."""

import string

import pytest

from assay.judge import health
from assay.judge.verdict import ENGLISH
from assay.report.history import CURVES
from assay.report.words import number, percent, points, visible, words

OWN = {"finding", "advice", "reason"}
"""Sections that translate words of other parts; English needs none."""


def gaps(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_the_catalogues_have_the_same_keys_and_gaps():
    english, chinese = words("en").sections, words("zh").sections
    assert english.keys() == chinese.keys()
    for section in english.keys() - OWN:
        assert english[section].keys() == chinese[section].keys(), section
        for key, text in english[section].items():
            assert gaps(text) == gaps(chinese[section][key]), f"{section}.{key}"


def test_verdicts_in_english_are_the_judges():
    assert words("en").verdicts is ENGLISH


def test_every_curve_has_a_name():
    assert set(words("zh").sections["metric"]) == set(CURVES)


def test_every_finding_and_advice_of_the_rules_is_translated():
    assert health.__file__
    steps = [
        {
            "signal_share": 0.0,
            "truncated_share": 1.0,
            "abstained_share": 0.5,
            "grad_norm": 0.0 if n else None,
            "skipped_steps": 1,
            "rollout_gap_mean": 1.0,
            "entropy": 1.0 if n == 0 else 0.0,
        }
        for n in range(12)
    ]
    found = health.health(steps)
    assert len(found) == len(health.HEALTH_RULES)
    chinese = words("zh").sections
    for finding in found:
        assert finding.what in chinese["finding"]
        assert finding.fix in chinese["advice"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (400, "400"),
        (12345, "12,345"),
        (0.5, "0.5"),
        (1.23456, "1.235"),
        (2e-5, "2e-05"),
    ],
)
def test_numbers_are_written_plainly(value, text):
    assert number(value) == text


def test_none_is_a_dash_and_never_zero():
    assert number(None) == percent(None) == "–"


def test_points_carry_a_sign():
    assert (points(0.065), points(-0.065)) == ("+6.5", "−6.5")


def test_only_line_ends_and_tabs_survive_of_the_control_characters():
    shown = visible("".join(map(chr, range(32))) + "\x7f\x9b")
    assert [c for c in shown if ord(c) < 32] == ["\t", "\n"]
    assert "\x7f" not in shown and "\x9b" not in shown
