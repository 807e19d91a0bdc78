"""No text makes the validator raise, recurse, hang or run anything."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.labs.workflows.execution import FAMILY_OF
from assay.labs.workflows.programs.program import MOST_CHARACTERS, program_of, shape_of
from assay.labs.workflows.programs.validate import validate
from tests.labs.workflows.programs.good_programs import TEXT, text

SECONDS = 5
"""Of one hostile text on a busy machine; each takes far less than one."""

TOO_DEEP = {
    "parentheses": "(" * 10_000 + ")" * 10_000,
    "attributes": "a" + ".b" * 9_000,
    "sums": "1" + "+1" * 9_000,
    "lambdas": "lambda:" * 2_500 + "1",
    "conditions": "1 if 1 else " * 1_600 + "1",
    "else if": "if 1:\n pass\n" + "elif 1:\n pass\n" * 1_200,
    "blocks": "\n".join(" " * n + "if 1:" for n in range(99)) + "\n" + " " * 99 + "pass",
}
NOT_PYTHON = {
    "null byte": "class Workflow:\0",
    "lone surrogate": "a = '\ud800'",
    "huge integer": "a = " + "9" * 19_000,
    "tabs and spaces": "if 1:\n\tx\n        y",
    "bad escape": "a = '\\N{nothing}'",
    "nested f-strings": "f'" + "{f'" * 90,
}
WEIRD = {
    "huge hexadecimal": "a = 0x" + "f" * 19_000,
    "many decorators": "@a\n" * 6_000 + "def f(): pass",
    "many names": ";".join(f"a{n}=1" for n in range(2_500)),
    "many loops": "".join(" " * n + "for x in x:\n" for n in range(18)) + " " * 18 + "x",
    "many branches": "async def f():\n" + " if x:\n  x = 1\n" * 1_200,
    "surrogate escape": "a = '\\ud800'\nopen('\\ud800')",
    "strange names": "ﬁ = 1\n𝐞𝐯𝐚𝐥('1')",
    "warnings": "a = '\\d'\n1 is 1\nassert (1, 2)",
    "unknown future": "from __future__ import barry_as_FLUFL",
}
CALL = "self.custom(problem, '')"
WEIRD |= {
    "loops in a circle": text(
        f"a = [{CALL}]\nfor b in a:\n    for a in b:\n        pass\nreturn 'x'"
    ),
    "loops through many names": text(
        "\n".join(f"for a{n} in a{m}: pass" for n in range(25) for m in range(25))
        + f"\na0 = [{CALL}]\nreturn 'x'"
    ),
    "many calls": text(f"a = {CALL}\n" * 500 + "return a"),
    "many keys": text("r = await self.custom(problem, '')\n" + "r['x']\n" * 1_500 + "return 'x'"),
}
HOSTILE = TOO_DEEP | NOT_PYTHON | WEIRD


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_a_finding_and_takes_no_time(name: str) -> None:
    start = time.process_time()
    findings = validate(HOSTILE[name])
    assert time.process_time() - start < SECONDS
    assert findings
    if name not in WEIRD:
        assert [each.code for each in findings] == ["too_deep" if name in TOO_DEEP else "syntax"]
    for finding in findings:
        assert finding.code in FAMILY_OF
        finding.problem.encode()


def test_a_source_at_the_limit_of_length_is_read_and_one_over_it_is_not() -> None:
    source = TEXT["direct"]
    full = source + "#" * (MOST_CHARACTERS - len(source))
    assert validate(full) == ()
    (finding,) = validate(full + "#")
    assert finding.code == "too_long"


def test_nothing_is_run(tmp_path) -> None:
    touched = tmp_path / "touched"
    source = f"open({str(touched)!r}, 'w')\nclass Workflow:\n    x = open({str(touched)!r}, 'w')\n"
    validate(source)
    shape_of(source)
    assert not touched.exists()


@given(st.text(max_size=300))
@settings(max_examples=100)
def test_any_text_gives_findings(source: str) -> None:
    assert validate(source)
    program_of(source)


@given(
    st.sampled_from(sorted(TEXT)), st.integers(0, 3_000), st.integers(0, 40), st.text(max_size=9)
)
@settings(max_examples=150)
def test_a_program_with_a_hole_or_a_patch_does_no_harm(
    name: str, start: int, length: int, patch: str
) -> None:
    source = TEXT[name]
    cut = start % len(source)
    assert isinstance(validate(source[:cut] + patch + source[cut + length :]), tuple)
