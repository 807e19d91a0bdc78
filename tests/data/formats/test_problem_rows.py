"""Rows of problems: what a prompt may hold, what is checked, and real rows of six benchmarks."""

import json
from pathlib import Path

import pytest

from assay.data.formats.code_examples import examples_in
from assay.data.formats.formats import read_rows
from assay.data.loaded import DataError

FILES = {
    "workflow_math": ("gsm8k", 132),
    "humaneval": ("humaneval", 17),
    "mbpp": ("mbpp", 43),
    "hotpotqa": ("hotpotqa", 100),
    "drop": ("drop", 100),
}
GOOD = {
    "math": {"problem": "1+1?", "problem_type": "math", "ground_truth": "2"},
    "qa": {"problem": "Who?", "problem_type": "qa", "ground_truth": "Ada", "source": "mine"},
    "code": {
        "problem": "Write f.",
        "problem_type": "code",
        "ground_truth": "def f(): return 1",
        "entry_point": "f",
        "tests": ["assert f() == 1"],
    },
}
BAD = [
    ({**GOOD["math"], "problem_type": "maths"}, "problem_type", "unknown type 'maths'"),
    ({**GOOD["math"], "ground_truth": " "}, "ground_truth", "no checkable answer"),
    ({**GOOD["math"], "problem": ""}, "problem", "is empty"),
    ({**GOOD["code"], "entry_point": ""}, "entry_point", "no entry point"),
    ({**GOOD["math"], "entry_point": "f"}, "entry_point", "a math problem has one"),
    ({**GOOD["code"], "tests": ["assert " + "-" * 20000 + "1"]}, r"tests\[0\]", "is no Python"),
    ({**GOOD["code"], "public_tests": ["def ("]}, r"public_tests\[0\]", "is no Python"),
    ({k: v for k, v in GOOD["code"].items() if k != "tests"}, "tests", "no tests"),
    ({**GOOD["code"], "tests": ["assert True"]}, r"tests\[0\]", "asserts nothing"),
    ({**GOOD["code"], "tests": ["assert f("]}, r"tests\[0\]", "is no Python"),
    ({**GOOD["math"], "ground_truth": "so " * 99}, "ground_truth", "no checkable answer"),
]


def written(tmp_path: Path, *rows: dict) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_rows_of_the_report_are_read(tmp_path: Path) -> None:
    math, qa, code = read_rows(written(tmp_path, *GOOD.values()), "workflow_problems")
    assert (math.gold, math.extra["problem_type"]) == ("2", "math")
    assert (qa.gold, qa.extra["source"]) == ("Ada", "mine")
    assert code.extra["tests"] == ("assert f() == 1",)
    assert code.extra["solution"] == "def f(): return 1"


@pytest.mark.parametrize(("row", "field", "problem"), BAD)
def test_a_row_that_cannot_be_judged_is_refused_by_line_and_field(
    tmp_path: Path, row: dict, field: str, problem: str
) -> None:
    file = written(tmp_path, GOOD["qa"], row)
    with pytest.raises(DataError, match=f"rows.jsonl:2: {field}: .*{problem}"):
        read_rows(file, "workflow_problems")


@pytest.mark.parametrize("format", FILES)
def test_no_prompt_of_a_real_row_holds_its_truth_or_hidden_tests(format: str, shared: Path) -> None:
    name, count = FILES[format]
    rows = read_rows(shared / "data" / "workflow" / f"aflow_{name}_validate.jsonl", format)
    assert len(rows) == count
    for row in rows:
        (message,) = row.messages
        hidden = [*row.extra.get("tests", ()), row.extra.get("solution", "")]
        assert all(text not in message.content for text in hidden if text), row.id
        known = set(row.extra.get("public_tests", ()))
        assert known <= set(row.extra.get("tests", ())) or format == "humaneval"


def test_examples_of_docstrings_become_assertions() -> None:
    prompt = '''
def f(x):
    """Doubles.
    >>> f(2)
    4

    f([1]) == [2]
    f("a") ➞ "aa"
    f(x) = something
    g(1) == 2
    """
'''
    assert examples_in(prompt, "f") == (
        "assert f(2) == 4",
        "assert f([1]) == [2]",
        'assert f("a") == "aa"',
    )
