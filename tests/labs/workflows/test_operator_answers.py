"""What an executor answers is read as it was asked for, and anything else is a typed error."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.labs.workflows.executor import read_answer
from assay.labs.workflows.inside import OperatorError
from assay.labs.workflows.programs.operators import OPERATORS


def read(name: str, text: str) -> dict:
    return read_answer(OPERATORS[name], text)


def malformed(name: str, text: str) -> str:
    with pytest.raises(OperatorError) as failure:
        read(name, text)
    assert failure.value.kind == "malformed"
    return failure.value.why


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_an_empty_answer_is_a_text_or_no_code_or_malformed(name: str, text: str) -> None:
    if name in ("Custom", "Format"):
        assert set(read(name, text).values()) == {text}
    elif name == "Programmer":
        assert read(name, text) == {"code": ""}
    else:
        assert "nothing" in malformed(name, text)


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<thought>2+2</thought><answer>4</answer>", "2+2", "4"),
        ("2+2\n<answer>4</answer>", "2+2", "4"),
        ("2+2 is 4.\nAnswer: 4", "2+2 is 4.", "4"),
        ("2 + 2 = 4\n#### 4", "2 + 2 = 4", "4"),
        (r"so \boxed{\frac{1}{2}}.", r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("<answer>5</answer> wait <answer>6</answer>", "<answer>5</answer> wait", "6"),
        ("<thought>a</thought><answer>5</answer><thought>b</thought><answer>6</answer>", "b", "6"),
        (
            "<answer>5</answer><thought>not <answer>6</answer></thought>",
            "not <answer>6</answer>",
            "5",
        ),
    ],
)
def test_thought_and_answer_are_told_apart(text: str, thought: str, answer: str) -> None:
    assert read("AnswerGenerate", text) == {"thought": thought, "answer": answer}


@pytest.mark.parametrize(
    "text",
    ["4", "the answer is 4", "Answer:", r"\boxed{4", "<answer>4"],
)
def test_a_text_without_a_marked_answer_is_malformed(text: str) -> None:
    assert "marks no answer" in malformed("AnswerGenerate", text)


@pytest.mark.parametrize(
    ("text", "result", "feedback"),
    [
        ("True. It adds up.", True, "It adds up"),
        ("False, 2+2 is 4", False, "2+2 is 4"),
        ("<review_result>False</review_result><feedback>no</feedback>", False, "no"),
        ("<review_result>True</review_result><feedback>- ok.</feedback>", True, "- ok."),
        (
            "<review_result>True</review_result> no <review_result>False</review_result> wrong",
            False,
            "wrong",
        ),
    ],
)
def test_a_verdict_is_a_real_bool(text: str, result: bool, feedback: str) -> None:
    answer = read("Review", text)
    assert answer == {"review_result": result, "feedback": feedback}
    assert type(answer["review_result"]) is bool


@pytest.mark.parametrize("name", ["ScEnsemble", "MdEnsemble"])
@pytest.mark.parametrize(
    "text",
    [
        "B",
        "(B)",
        "The answer is B",
        "B\nA and C differ",
        "<thought>A is wrong</thought><solution_letter>B</solution_letter>",
        "<solution_letter> b </solution_letter>",
    ],
)
def test_a_letter_is_read(name: str, text: str) -> None:
    assert read(name, text) == {"solution_letter": "B"}


@pytest.mark.parametrize(
    "text",
    [
        "A solution that is right",
        "Solution A and solution B",
        "<solution_letter>the letter</solution_letter>",
        "\nten\nB",
    ],
)
def test_no_letter_or_several_are_malformed(text: str) -> None:
    assert "no letter" in malformed("ScEnsemble", text)


CODE = "def solve():\n    return 4"


@pytest.mark.parametrize(
    ("name", "key"),
    [("Programmer", "code"), ("Test", "solution"), ("CustomCodeGenerate", "response")],
)
@pytest.mark.parametrize(
    "text",
    [
        CODE,
        f"```python\n{CODE}\n```",
        f"Here it is:\n```python\n{CODE}\n```\nIt adds.\n```python\nprint(solve())\n```",
        f"```\nnot code\n```\n```python\n{CODE}\n```",
        f"So it is:\n\n{CODE}\n\nThat is all.",
        f"```python\n{CODE}\n\nif __name__ == '__main__':\n    print(solve())\n```",
    ],
)
def test_code_is_taken_out_of_its_fence(name: str, key: str, text: str) -> None:
    assert read(name, text) == {key: CODE}


def test_of_several_blocks_what_the_function_needs_is_code() -> None:
    other = "def other():\n    return N"
    text = f"```python\nimport math\nN = 1\n```\n```python\n{CODE} + N\n\n{other}\n```"
    operator = OPERATORS["Programmer"]
    assert read_answer(operator, text, "solve") == {"code": f"import math\nN = 1\n{CODE} + N"}
    assert "def other" in str(read_answer(operator, text)["code"])
    assert read_answer(operator, text, "none_such") == {"code": "import math"}


def test_a_solution_is_what_stands_in_its_tags_else_the_text() -> None:
    assert read("Revise", " ten \n") == {"solution": "ten"}
    assert read("Revise", "so:\n<solution>ten</solution>") == {"solution": "ten"}
    assert read("Revise", "<solution>ten") == {"solution": "<solution>ten"}


@given(st.sampled_from(sorted(OPERATORS)), st.text())
def test_any_answer_is_fields_or_a_typed_error(name: str, text: str) -> None:
    try:
        fields = read(name, text)
    except OperatorError as failure:
        assert failure.kind == "malformed"
        return
    wanted = {"ScEnsemble": {"solution_letter"}, "MdEnsemble": {"solution_letter"}}
    keys = set(OPERATORS[name].keys)
    wanted |= {"Programmer": {"code"}, "Test": {"solution"}}
    assert set(fields) == wanted.get(name, keys)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    "unit", ["<answer>", "answer: ", "\\boxed{", "{", "*", "```", "(", "A ", "\n", " "]
)
def test_a_long_answer_takes_no_time(name: str, unit: str) -> None:
    start = time.process_time()
    with contextlib.suppress(OperatorError):
        read(name, unit * 30_000)
    assert time.process_time() - start < 2
