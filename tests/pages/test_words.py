"""Both languages say the same things with the same figures."""

import re
import string
from dataclasses import replace
from pathlib import Path

import pytest

import assay
from assay.compare.table import ComparisonTable
from assay.judge.health_rules import BONUSES, PENALTIES, RULES
from assay.judge.templates import NOUNS
from assay.pages.content import about_evaluation
from assay.pages.facts import CURVES
from assay.pages.words import number, visible, words
from tests.pages.synthetic import RECORD

OWN = {"reason", "method"}
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


SOURCES = "\n".join(
    file.read_text("utf-8") for file in sorted(Path(assay.__file__).parent.rglob("*.py"))
)
NAMES = set(re.findall(r"\w+", SOURCES))
WHOLE = set(re.findall(r"""["'](?=(\w+\.[^"'\n]+)["'])""", SOURCES))
"""What stands in quotes and looks like a key."""
GAP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
BY_NAME = {
    *("evidence", "fix"),
    *("verdict", "outcome", "metric", "error_family", "program_outcome", "mark"),
    *("failure_type", "audit_word", "audit_means", "punctuation", "health_limits"),
    *("call_effect", "cost_per", "health_unread", "health_condition"),
}
"""Sections whose keys are looked up by what a record says."""


def is_used(section: str, key: str, patterns: list[str]) -> bool:
    """Whether the source names a key, whole or put together from names in quotes."""
    if f"{section}.{key}" in WHOLE:
        return True
    matches = (re.fullmatch("(.+)".join(map(re.escape, re.split(GAP, p))), key) for p in patterns)
    parts = [m.groups() for m in matches if m]
    return any(all(p in NAMES or p.replace("_", " ") in SOURCES for p in ps) for ps in parts)


@pytest.mark.parametrize("section", sorted(words("en").sections.keys() - OWN - BY_NAME))
def test_no_key_is_left_that_nothing_uses(section):
    patterns = re.findall(rf'f"{section}\.([^"\n]*\{{[^"\n]*)"', SOURCES)
    assert not [k for k in words("en").sections[section] if not is_used(section, k, patterns)]


def test_needed_items_are_bounded_in_every_sentence_of_both_languages():
    for lang in ("en", "zh"):
        for name, section in words(lang).sections.items():
            for key, text in section.items():
                specs = [
                    spec for _, gap, spec, _ in string.Formatter().parse(text) if gap == "needed"
                ]
                assert all(spec and spec.startswith("needed ") for spec in specs), f"{name}.{key}"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("given", [{}, {"checker": ""}, {"sampling": {}}])
def test_the_sentence_about_an_evaluation_has_no_empty_slot(lang, given):
    record = replace(RECORD, **given)
    said = about_evaluation(ComparisonTable(record, ()), words(lang))
    assert not re.search(r"[,;:，；：]\s*[,;.，；。]|[;,:；，：]\s*$", said), said
    assert ("checked by" in said or "判分程序" in said) == (given != {"checker": ""})


def test_every_counted_noun_of_the_english_pages_can_be_one():
    slip = re.compile(r"\{\w+\} (?:" + "|".join(NOUNS) + r")\b|\(e?s\)")
    for name, section in words("en").sections.items():
        if name != "verdict":
            assert not {key: text for key, text in section.items() if slip.search(text)}, name


def test_every_curve_has_a_name():
    assert set(words("zh").sections["metric"]) >= set(CURVES)


def test_every_metric_that_a_rule_looks_at_has_a_name():
    looked_at = {metric for rule in RULES.values() for metric in rule.metrics}
    derived = {"clipped_share", BONUSES, PENALTIES}
    assert set(words("en").sections["metric"]) >= looked_at - derived


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


def test_only_line_ends_and_tabs_survive_of_the_control_characters():
    shown = visible("".join(map(chr, range(32))) + "\x7f\x9b")
    assert [c for c in shown if ord(c) < 32] == ["\t", "\n"]
    assert "\x7f" not in shown and "\x9b" not in shown


POWER = {"en": "80% power", "zh": "80% 功效"}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_smallest_difference_says_with_what_power_it_is_seen(lang):
    for name, section in words(lang).sections.items():
        for key, text in section.items():
            if "smallest" in gaps(text):
                assert POWER[lang] in text, f"{name}.{key}"
    assert words(lang)("plan.smallest", power=90).count("90") == 1
