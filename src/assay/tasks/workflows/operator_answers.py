"""Reads what the executor model answered for an operator; nothing of it is run or trusted.

An answer that has not what the operator needs is `OperatorFailed("malformed")`, never a text that
happens to count as true. Every field may be written in AFlow's tags, `<answer>7</answer>`, of which
the last ones count (AFlow 364399e, `XmlFormatter.validate_response`); besides that each is read as
the prompts ask for it. Linear in the text, of which `MOST_CHARACTERS` are read.
"""

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence

from assay.tasks.workflows.programs.operators import LETTERS, Operator, OperatorFailed

MOST_CHARACTERS = 100_000
FENCE = "```"

_ANSWER_LINE = re.compile(r"^[ \t*_#]*(?:final )?answer[ \t*_]*:", re.IGNORECASE | re.MULTILINE)
_BOXED = r"\boxed{"
_GSM8K = "####"
_VERDICTS = {"true": True, "false": False, "yes": True, "no": False}
_WORD = re.compile(r"[A-Za-z]+")
_LETTER = re.compile(
    r"^\W*([A-Z])(?:\W*$|[.:)*])"
    r"|\b(?i:solution|option|letter)\W*([A-Z])\b"
    r"|\b(?i:answer)(?: is)?\W*([A-Z])(?=\W*$|[.,:;)])"
)


def read_answer(operator: Operator, text: str) -> dict[str, str | bool]:
    """The fields that the operator's answer holds.

    Custom, Revise, Format: their result. AnswerGenerate: `thought` and `answer`. Review:
    `review_result` as a real bool, and `feedback`. ScEnsemble, MdEnsemble: `solution_letter`, for
    `chosen`. Programmer: `code`; Test: `solution`; CustomCodeGenerate: `response`, all three
    Python that parses. Raises OperatorFailed("malformed") otherwise.
    """
    text = text[:MOST_CHARACTERS].strip()
    if not text:
        raise malformed(operator, "the executor answered nothing")
    return READERS[operator.name](operator, text)


def chosen(operator: Operator, solutions: Sequence[str], letter: str) -> str:
    """The solution that a letter names. Raises OperatorFailed("malformed") for one of none."""
    place = LETTERS.find(letter) if len(letter) == 1 else -1
    if not 0 <= place < len(solutions):
        raise malformed(operator, f"no solution {letter!r}, there are {len(solutions)}")
    return solutions[place]


def malformed(operator: Operator, why: str) -> OperatorFailed:
    """The failure of an answer without what the operator needs."""
    return OperatorFailed("malformed", f"{operator.name}: {why}")


def _text(operator: Operator, text: str) -> dict[str, str | bool]:
    (key,) = operator.returns
    return {key: tagged(text, key) or text}


def _thought_and_answer(operator: Operator, text: str) -> dict[str, str | bool]:
    """The answer after the last mark; the thought is what stands before it."""
    if (answer := tagged(text, "answer")) is not None:
        thought = tagged(text, "thought")
        if thought is None:
            before, _, _ = text.rpartition("</answer>")
            thought = before.rpartition("<answer>")[0].strip()
    else:
        thought, answer = _marked(text)
    if not answer:
        raise malformed(operator, "it marks no answer")
    return {"thought": thought, "answer": answer}


def _marked(text: str) -> tuple[str, str]:
    r"""What stands before and behind the last "Answer:", "####" or "\boxed{"; "" for no answer."""
    lines = list(_ANSWER_LINE.finditer(text))
    if lines:
        return text[: lines[-1].start()].strip(), text[lines[-1].end() :].strip(" \t\n*_")
    if _GSM8K in text:
        thought, _, answer = text.rpartition(_GSM8K)
        return thought.strip(), answer.strip()
    thought, mark, rest = text.rpartition(_BOXED)
    return (text, _balanced(rest)) if mark else (thought, "")


def _balanced(text: str) -> str:
    """`text` up to the brace that closes the one before it; "" where none does."""
    depth = 1
    for place, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if not depth:
            return text[:place].strip()
    return ""


def _verdict(operator: Operator, text: str) -> dict[str, str | bool]:
    """The verdict is the field's first word, else the answer's; the rest is the feedback."""
    said = tagged(text, "review_result")
    word = _WORD.search(text if said is None else said)
    result = _VERDICTS.get(word[0].lower()) if word else None
    if word is None or result is None:
        raise malformed(operator, "it starts with neither True nor False")
    feedback = tagged(text, "feedback")
    if feedback is None:
        feedback = text[word.end() :] if said is None else text.rpartition("</review_result>")[2]
    return {"review_result": result, "feedback": feedback.strip(" \t\n.,:;*_-")}


def _letter(operator: Operator, text: str) -> dict[str, str | bool]:
    """The one letter that the first line is, or names; the article "A" is none."""
    said = tagged(text, "solution_letter")
    line = (text if said is None else said).split("\n")[0].strip()
    if len(bare := line.strip(" \t.:()*")) == 1:
        line = bare.upper()
    letters = {"".join(found) for found in _LETTER.findall(line)}
    if len(letters) != 1:
        raise malformed(operator, "the answer names no letter of a solution, or several")
    return {"solution_letter": letters.pop()}


def _code(operator: Operator, text: str) -> dict[str, str | bool]:
    """Python out of the first fenced block, or the text itself where there is none."""
    key = {"Programmer": "code", "Test": "solution"}.get(operator.name, "response")
    code = fenced(text)
    if not parses(code):
        raise malformed(operator, "the answer is not Python that parses")
    return {key: code}


def tagged(text: str, name: str) -> str | None:
    """What stands in the last `<name>...</name>`, stripped; None where there is none."""
    before, _, _ = text.rpartition(f"</{name}>")
    _, opened, body = before.rpartition(f"<{name}>")
    return body.strip() if opened else None


def fenced(text: str) -> str:
    """The first ```python block, else the first block, else all of the text."""
    for start in (f"{FENCE}python", FENCE):
        _, found, rest = text.partition(start)
        if found:
            body = rest.partition("\n")[2]
            return body.partition(FENCE)[0].strip("\n")
    return text


def parses(code: str) -> bool:
    """Whether it is Python; what cannot be parsed in the memory and depth there is, is not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(ast.parse(code).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


READERS: Mapping[str, Callable[[Operator, str], dict[str, str | bool]]] = {
    "Custom": _text,
    "AnswerGenerate": _thought_and_answer,
    "Programmer": _code,
    "ScEnsemble": _letter,
    "Review": _verdict,
    "Revise": _text,
    "Test": _code,
    "CustomCodeGenerate": _code,
    "MdEnsemble": _letter,
    "Format": _text,
}
