"""What counts as the same mathematical answer: a list of cases from both sides, and other judges.

`answer_cases.jsonl` holds completions that are right and completions that are wrong, each with the
reason; adding a case is adding a line.
"""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.labs.math import regions, units, written
from assay.labs.math.expressions import expression
from assay.labs.math.rewards import DIFFERS
from assay.labs.math.sentences import final_answer
from tests.few import few
from tests.json_lines import json_lines
from tests.labs.math.many import in_one_call, judged, row

CASES = json_lines(Path(__file__).with_name("answer_cases.jsonl"))


@few("function", ["ruled", "judge"], fast=1)
def test_right_answers_are_accepted_and_wrong_ones_refused(function: str) -> None:
    rewards = judged([(row(case["gold"]), case["text"]) for case in CASES], function)
    values = list(zip(CASES, rewards, strict=True))
    assert [pair for pair in values if pair[1].value != float(pair[0]["right"])] == []
    sides = Counter(case["right"] for case in CASES)
    assert sides[True] >= 100 and sides[False] >= 100
    assert len({(case["gold"], case["text"]) for case in CASES}) == len(CASES)


def test_differences_to_math_verifys_own_verdict_are_a_part_of_the_reward() -> None:
    # Its own verdict credits both sides of 41=42, and agrees on 6*7=42.
    texts = (r"\boxed{41=42}", r"\boxed{6*7=42}", r"\boxed{42.}")
    untrue, true, plain = judged([(row("42"), text) for text in texts])
    assert untrue.parts[DIFFERS] == 1.0 and untrue.why == "by the rule: chain"
    assert true.parts[DIFFERS] == 0.0
    # Two plain numbers are compared without it.
    assert DIFFERS not in plain.parts


SHORT = 80
"""Characters of an answer that can be a final answer; longer ones are whole solutions."""

OTHERWISE = {
    "W(x)=1orW(x)=-1": "a chain of =, since nothing separates 'or' from its neighbours",
    "The solution is $x != 5$": "not LaTeX: math-verify has another reading of it as plain text",
    "$(0.6,2.6667]$": "2.6667 is no 8/3: the case asks for a precision of 2 digits",
    "Answer $ \n 9 \n $": "a formula may stand on lines of its own",
    "Answer $ \\frac{1}{2} \\$ = \\frac{10}{9} $": "1/2 = 10/9 is false",
    "$(5,2),(7,2)$": "two pairs are not four equations",
    "$x=1/3\\approx1.3$": "1/3 is not about 1.3",
    "so the number is 10 which is 1,000.99m²": "two numbers",
    "$-2 \\\\le x \\\\le 7$": "the inequality is the interval, in either order",
    "1,2": "boxes with words between them are no list",
    "1000,99": "a comma is no decimal point",
    "0.111": "0,111 in the gold is no decimal",
    "$x = 5+5+1 = 1/3 \\approx 11$": "5+5+1 = 1/3 is false",
    "$\\begin{pmatrix}0.33\\\\0.2 \\end{pmatrix}$": "the case asks for a precision of 2 digits",
    "-1 + sqrt(3)": "a function written as plain text is not LaTeX",
    "\\beginboxed{8\\sqrt{6}}": "a misspelt command is not repaired",
    "The identity matrix is $ \\begin{pmatrix}1 & 0 \\\\ 0 & 1\\end{pmatrix} $.": "a sentence",
    "$-x >= -1$": "an inequality is read where a variable stands alone",
    "0.6054": "the case asks for a precision of 1e-4",
    "0.002, 5.234": "the case asks for a precision of 1e-3",
}
"""Answers of the oracles that are judged otherwise here, and why."""


def oracle(shared: Path) -> list[tuple[str, str, bool]]:
    """Gold, answer and verdict of all three, where both are final answers."""
    folder = shared / "data" / "oracle"

    inspect = json_lines(folder / "inspect_ai_math_cases.jsonl")
    found = [(r["target"], r["output"], r["expected"] == "C") for r in inspect]
    for name in ("math_verify_cases.jsonl", "olympiadbench_judge_cases.jsonl"):
        rows = json_lines(folder / name)
        found += [(r["gold"], r["answer"], bool(r["verdict"])) for r in rows]
    kept = []
    for gold, answer, verdict in found:
        pair = (final_answer(gold) or gold, final_answer(answer) or answer)
        # A gold that is escaped twice is a slip of the case.
        if max(map(len, pair)) <= SHORT and r"\\frac" not in gold and r"\\left" not in gold:
            kept.append((pair, answer, verdict))
    return [(*pair, verdict) for pair, _, verdict in kept]


def test_other_judges_agree_but_for_the_differences_that_are_listed(shared: Path) -> None:
    cases = oracle(shared)
    assert len(cases) > 130
    values = in_one_call("ruled", [{"gold": g, "answer": a} for g, a, _ in cases])
    different = [
        case
        for case, value in zip(cases, values, strict=True)
        if (value["equal"] if value else False) != case[2]
    ]
    for gold, answer, verdict in different:
        print(f"{gold!r} ~ {answer!r}: theirs {verdict}: {OTHERWISE.get(answer, '?')}")
    print(f"{len(different)} of {len(cases)} cases of other judges are judged otherwise")
    assert {case[1] for case in different} <= set(OTHERWISE)


def test_every_gold_of_the_benchmarks_is_its_own_answer(shared: Path) -> None:
    folder = shared / "data" / "math"
    golds = [line["answer"] for line in json_lines(folder / "math500.jsonl")]
    golds += [line["final_answer"][0] for line in json_lines(folder / "olympiadbench.jsonl")]
    values = in_one_call("ruled", [{"gold": gold, "answer": gold} for gold in golds])
    failed = [g for g, v in zip(golds, values, strict=True) if not (v or {}).get("equal")]
    assert failed == []


@given(st.text(r"()[]{}\,;= ab1$.%^_", max_size=60))
def test_no_text_breaks_the_string_work(text: str) -> None:
    plain = written.plain(text)
    assert written.same_text(plain, plain)
    assert written.listed(plain) and written.links(plain)
    for read in (
        written.brackets,
        units.measured,
        regions.region,
        expression,
        written.without_percent,
        written.chosen,
        written.hedges,
        written.is_name,
        written.is_words,
    ):
        read(plain)


@pytest.mark.parametrize(("answer", "right"), [(r"\frac{9}{12}", False), (r"\frac34", True)])
def test_a_fraction_that_is_asked_for_in_lowest_terms_is_reduced(answer: str, right: bool) -> None:
    asked = [("Write 18/24 in simplest form.", right), ("What is 18/24?", True)]
    calls = [{"gold": "3/4", "answer": answer, "question": question} for question, _ in asked]
    values = in_one_call("ruled", calls)
    assert [value and value["equal"] for value in values] == [right for _, right in asked]
