"""Chinese pages are wholly Chinese: every English text of the code has its translation."""

from importlib import import_module

import pytest

from assay.errors import finding
from assay.judge.identity import contradictory_answers, loss_parts, same_answers
from assay.pages.provenance import dropped_for
from assay.pages.words import named_tests, worded, words


def english_in(text: str, *names: str) -> str:
    """`text` without what may stay as it is."""
    for name in names:
        text = text.replace(name, "")
    return "".join(c for c in text if c.isascii() and c.isalpha())


@pytest.mark.parametrize(("same", "share"), [(None, None), (True, None), (False, 0.25)])
@pytest.mark.parametrize("greedy", [True, False])
def test_what_equal_answers_come_from_is_said_in_chinese(same, share, greedy):
    counts = {"items": 20, "answers": 40, "distinct": 20}
    found = same_answers("aa@b", "cc@d", counts, same, share, greedy)
    said = worded(found, words("zh"))
    assert english_in(said.what + said.evidence + said.fix, "aa@b", "cc@d") == ""


def test_the_identity_rules_are_said_in_chinese():
    first, second = contradictory_answers("m@x", [(1.0, "api_error", {"fallback": 0.0})])
    parts = loss_parts([{"step": 1, "loss": 2.0, "policy_loss": 1.0}])
    assert parts is not None
    for found in (first, second, parts):
        said = worded(found, words("zh"))
        assert english_in(said.what + said.evidence + said.fix, "m@x", "policy_loss") == ""


def test_names_are_kept_and_errors_of_files_stay_as_they_are():
    why = {"why": "a.parquet: no such column", "fix": "restore it"}
    found = worded(finding("left_out", "error", run="run/1", **why), words("zh"))
    assert (found.what, found.evidence, found.fix) == ("run/1 已略去", why["why"], why["fix"])


def test_a_method_of_two_parts_is_told_part_by_part():
    several = ["mid-p McNemar, Tango interval; seeds as repeats: these runs, not the method"] * 2
    assert named_tests(several, words("en")) == several[0]
    said = named_tests(several, words("zh"))
    assert said.count("Tango 区间") == 1 and "种子当作重复" in said and "seeds" not in said


REASONS = {
    "data.formats.formats": ("UNTRAINED", "NO_TURN", "NO_CALL"),
    "data.row_checks": ("UNDECLARED", "NO_TOOLS"),
    "data.loaded": ("UNREADABLE",),
    "data.formats.call_sets": ("NO_RESULTS", "UNKNOWN_ROLE", "NO_TEXT"),
    "data.python_calls": ("SYNTAX", "NO_CALLS", "NO_LITERAL", "NO_JSON", "UNPACKED", "TWICE"),
    "lab.setup.prepare": ("TOO_LONG", "LONGER", "SHORTER"),
    "data.leakage": ("EXACT", "NORMALISED", "PATH", "FUNCTION"),
}


@pytest.mark.parametrize("module", REASONS)
def test_every_reason_to_leave_a_row_out_is_said_in_chinese(module):
    loaded = import_module(f"assay.{module}")
    for name in REASONS[module]:
        reason = getattr(loaded, name)
        assert english_in(dropped_for(reason, words("zh")), "max_prompt_tokens") != english_in(
            reason, "max_prompt_tokens"
        )
        assert dropped_for(f"{reason} (bfcl/x)", words("zh")).endswith("（bfcl/x）")
        assert dropped_for(reason, words("en")) == reason
