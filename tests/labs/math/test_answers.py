"""The final answer is the last one given, whatever its braces; plain numbers compare exactly."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.episode import Completion
from assay.labs.math.rewards import answer_of
from assay.labs.math.sentences import canonical, final_answer, last_boxed, number, stated_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1} or rather \boxed{2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2^{3}}}}", r"\frac{1}{\sqrt{2^{3}}}"),
        ("#### 12. I hope it is correct.", "12."),
        (r"\boxed{7} and then \boxed{8", "7"),
        (r"\boxed{1", None),
        ("steps\n#### 18", "18"),
        (r"\boxed{4}" + "\n#### 3", "3"),
        ("The answer is 5.", None),
    ],
)
def test_the_last_final_answer_is_taken(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("42", "42"),
        ("6 and 7.\nThe answer is 42.", "42"),
        ("6 and 7. So the final answer is: -5.50", "-5.50"),
        ("6 加 7。所以最终答案为：1,450。", "1,450"),
        # Polite sentences after the answer are none of it.
        ("Final Answer: The final answer is $42$. I hope it is correct.", "$42$"),
        ("The answer is 42. Let me know if you have more questions.", "42"),
        ("The answer is 42. I hope it is 43.", "I hope it is 43."),
        # No final statement, or none of a plain number alone.
        ("6 and 7 make 42", None),
        ("The answer is 42?", "42?"),
        ("The answer is 42 or 43", "42 or 43"),
        ("The answer is 42. No, it is not.", "No, it is not."),
        # A box or a marker, even without an answer, is the only place to look.
        (r"The answer is \boxed{}. The answer is 42", None),
    ],
)
def test_a_plain_number_counts_where_it_is_all_or_the_last_statement(
    text: str, answer: str | None
) -> None:
    assert stated_answer(text) == answer
    # What records of before were judged by has not changed.
    assert final_answer(text) is None


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        ("1,450.", "1450"),
        (r"\$1,450.00", "1450"),
        ("007.50", "7.5"),
        (r"$\left(1, 2\right)$", "(1, 2)"),
        (r"\dfrac{1}{2}", r"\frac{1}{2}"),
        ("Monday", "Monday"),
    ],
)
def test_records_hold_answers_so_that_equal_ones_are_equal_texts(answer: str, fact: str) -> None:
    assert canonical(answer) == fact == canonical(fact)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4))
def test_the_fact_of_a_plain_number_is_that_number(value: Decimal) -> None:
    text = f"{value:,.6f}"
    assert number(canonical(text)) == Fraction(value) == number(text)
    assert len(canonical(text)) <= len(text)


nested = st.recursive(
    st.text("ab1 ", max_size=3),
    lambda inner: st.tuples(inner, inner).map(lambda p: f"{p[0]}{{{p[1]}}}"),
)


@given(nested, st.text("abc {}\\", max_size=20))
def test_any_balanced_content_comes_back(content: str, before: str) -> None:
    text = before.replace("{", "").replace("\\", "") + rf"\boxed{{{content}}} tail"
    assert last_boxed(text)[0] == (content.strip() or None)


def test_deep_nesting_and_many_open_boxes_are_read_in_linear_time() -> None:
    depth = 100_000
    assert last_boxed(r"\boxed{" + "{" * depth + "}" * depth + "}")[0] == "{" * depth + "}" * depth
    assert last_boxed(r"\boxed{" * depth) == (None, -1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,450,000", 1_450_000),
        ("-$5.50", Fraction(-11, 2)),
        (" $42$ ", 42),
        ("1,45", None),
        ("٣", 3),
        ("9" * 41, None),
    ],
)
def test_only_plain_numbers_are_numbers(text: str, value: int | Fraction | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize("behind", [" ", "$", "\n", "\n1", "no, ", "not ", "The answer is "])
def test_what_follows_an_answer_is_read_in_linear_time(behind: str) -> None:
    assert answer_of(Completion(r"\boxed{12}" + behind * 30_000)) == "12"
    answer_of(Completion("The answer is 12." + behind * 30_000))
    assert answer_of(Completion(rf"\boxed{{1{behind * 30_000}2}}"))
