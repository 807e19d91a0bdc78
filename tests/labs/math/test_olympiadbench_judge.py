"""OlympiadBench's judge agrees with all of its authors' cases, and keeps what its rows ask for."""

from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.labs.math.rewards import olympiad_accuracy
from assay.labs.math.sentences import final_answer
from tests.json_lines import json_lines
from tests.labs.math.many import in_one_call, judged, row


def asked(of: Row, text: str) -> dict[str, Any]:
    """What the worker is asked."""
    found = olympiad_accuracy.ask(of, Completion(text))
    assert not isinstance(found, Reward), found
    return dict(found)


def test_all_sixteen_cases_of_its_authors_have_the_stated_verdict(shared: Path) -> None:
    cases = json_lines(shared / "data/oracle/olympiadbench_judge_cases.jsonl")
    assert len(cases) == 16
    calls = []
    for case in cases:
        given = case["precision"]
        precision = [] if given is None else given if isinstance(given, list) else [float(given)]
        texts = {key: final_answer(case[key]) or case[key] for key in ("gold", "answer")}
        calls.append({**texts, "tolerances": precision})
    verdicts = [(value or {}).get("equal") for value in in_one_call("olympiad", calls)]
    wrong = [case for case, v in zip(cases, verdicts, strict=True) if v != bool(case["verdict"])]
    assert wrong == []


CASES = [
    # Tolerance: absolute, inclusive, each answer its own.
    ("4.2", "4.3", {"error": "1e-1"}, True),
    ("4.2", "4.31", {"error": "1e-1"}, False),
    (r"\frac{10}{21}", "0.4761904762", {}, True),
    ("1, 200", "1.05, 220", {"error": "1e-1,20"}, True),
    ("1, 200", "1.2, 220", {"error": "1e-1,20"}, False),
    # Near ones are matched so that all fit.
    ("1.0, 1.1", "1.05, 0.95", {"error": "6e-2"}, True),
    # Units.
    ("$166$", r"166 \text{ cm}^2", {"unit": "$cm^2$"}, True),
    ("8", r"8 \text{ minutes}", {"unit": "min"}, True),
    ("8", r"8 \text{ hours}", {"unit": "min"}, False),
    ("4.2", r"4.2\%", {"unit": "%", "error": "1e-1"}, True),
    ("90^{\\circ}, 60^{\\circ}", "60, 90", {"is_multiple_answer": True}, True),
    # Several answers.
    ("-2,0,2", r"0 \text{ and } \pm 2", {"is_multiple_answer": True}, True),
    ("100,200", "200,100", {"is_multiple_answer": True}, True),
    ("100,200", "100200", {"is_multiple_answer": True}, False),
    ("2", "2 \\text{ or } 3", {}, False),
    # Percent.
    ("17.5\\%", "0.175", {}, True),
    ("2", "200", {"error": "1e-3"}, False),
    # Expressions and equations.
    ("2 n", "n+n", {}, True),
    ("n=k+4", "n-k=4", {}, True),
    ("n=k+4", "n-k=5", {}, False),
    ("f(x)=x+1", "f(x)=x-1", {}, False),
    (r"m_{\max }=n^{2}-n-1", "n^2-n-1", {}, True),
    ("k=3", "n=3", {}, False),
    (r"$k \geqslant 2$", r"k \ge 2", {}, True),
    (r"$k \geqslant 2$", "2", {}, False),
    # Tuples, intervals, unions.
    ("(3,2)", r"\left(3, \frac{4}{2}\right)", {}, True),
    (r"[-1,-\frac{1}{2}]", "[-1,-0.5]", {}, True),
    (r"[-1,-\frac{1}{2}]", "(-1,-0.5)", {}, False),
    (r"(-\infty, 0) \cup\{1\}", r"(-\infty,0)\cup\{1\}.", {}, True),
]


@pytest.mark.slow
def test_tolerance_unit_and_several_answers_of_a_row_count() -> None:
    pairs = [(row(gold, **extra), rf"\boxed{{{text}}}") for gold, text, extra, _ in CASES]
    found = judged(pairs, "olympiad", olympiad_accuracy)
    assert [c for c, r in zip(CASES, found, strict=True) if r.value != float(c[3])] == []


def test_plain_numbers_are_settled_at_once_unless_a_tolerance_or_a_list_is_asked() -> None:
    assert olympiad_accuracy.ask(row("2"), Completion(r"\boxed{2.}")) == Reward(
        1.0, {"format": 1.0, "answer": 1.0}, outcome="right", facts={"answer": "2"}
    )
    assert isinstance(olympiad_accuracy.ask(row("2"), Completion(r"\boxed{3}")), Reward)
    assert isinstance(olympiad_accuracy.ask(row("2", error="1"), Completion("none")), Reward)
    assert asked(row("2", error="1", unit="%"), r"\boxed{3}")["tolerances"] == [1.0]


def test_a_tolerance_that_is_no_number_is_an_abstention() -> None:
    found = olympiad_accuracy.ask(row("2", error="about 1"), Completion(r"\boxed{2}"))
    assert isinstance(found, Reward) and found.value is None and "about 1" in found.why
