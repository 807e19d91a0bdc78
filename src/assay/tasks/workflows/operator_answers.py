"""Reads what the executor model answered for an operator; nothing of it is run or trusted.

What AFlow 364399e reads, this reads alike (its `formatter.py`): fields in tags, as
`<answer>7</answer>`, of which the last ones count; code by `operator_code`; texts as they are.
Besides that each field is read as the prompts ask for it, and a verdict is a real bool. An answer
that has not what the operator needs is `OperatorFailed("malformed")`, where AFlow's programs meet a
KeyError. `MOST_CHARACTERS` of a text are read.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from assay.tasks.workflows.operator_code import code_in_answer
from assay.tasks.workflows.programs.operators import LETTERS, Operator, OperatorFailed

MOST_CHARACTERS = 100_000

_ANSWER_LINE = re.compile(r"^[ \t*_#]*(?:final )?answer[ \t*_]*:", re.IGNORECASE | re.MULTILINE)
_BOXED = r"\boxed{"
_GSM8K = "####"
_OPENED = re.compile(r"<(\w+)>")
_VERDICTS = {"true": True, "false": False, "yes": True, "no": False}
_WORD = re.compile(r"[A-Za-z]+")
_LETTER = re.compile(
    r"^\W*([A-Z])(?:\W*$|[.:)*])"
    r"|\b(?i:solution|option|letter)\W*([A-Z])\b"
    r"|\b(?i:answer)(?: is)?\W*([A-Z])(?=\W*$|[.,:;)])"
)


def read_answer(operator: Operator, text: str, function: str = "") -> dict[str, str | bool]:
    """The fields that the operator's answer holds.

    Custom and Format: the text. Revise: `solution`. AnswerGenerate: `thought` and `answer`. Review:
    `review_result` as a real bool, and `feedback`. ScEnsemble, MdEnsemble: `solution_letter`, for
    `chosen`. Programmer: `code`, which may be ""; Test: `solution`; CustomCodeGenerate: `response`;
    all three the code that defines `function`. Raises OperatorFailed("malformed").
    """
    return READERS[operator.name](operator, text[:MOST_CHARACTERS], function)


def chosen(operator: Operator, solutions: Sequence[str], letter: str) -> str:
    """The solution that a letter names. Raises OperatorFailed("malformed") for one of none."""
    place = LETTERS.find(letter) if len(letter) == 1 else -1
    if not 0 <= place < len(solutions):
        raise malformed(operator, f"no solution {letter!r}, there are {len(solutions)}")
    return solutions[place]


def malformed(operator: Operator, why: str) -> OperatorFailed:
    """The failure of an answer without what the operator needs."""
    return OperatorFailed("malformed", f"{operator.name}: {why}")


def _text(operator: Operator, text: str, function: str) -> dict[str, str | bool]:
    return dict.fromkeys(operator.keys, text)


def _solution(operator: Operator, text: str, function: str) -> dict[str, str | bool]:
    said = tagged(filled(operator, text), "solution")
    return {"solution": text.strip() if said is None else said}


def _thought_and_answer(operator: Operator, text: str, function: str) -> dict[str, str | bool]:
    """The answer after the last mark; the thought is what stands before it."""
    text = filled(operator, text)
    if (answer := tagged(text, "answer")) is not None:
        thought = tagged(text, "thought")
        if thought is None:
            before, _, _ = text.rpartition("</answer>")
            thought = before.rpartition("<answer>")[0].strip()
        return {"thought": thought, "answer": answer}
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


def _verdict(operator: Operator, text: str, function: str) -> dict[str, str | bool]:
    """The verdict is the field's first word, else the answer's; the rest is the feedback."""
    text = filled(operator, text)
    said = tagged(text, "review_result")
    word = _WORD.search(text if said is None else said)
    result = _VERDICTS.get(word[0].lower()) if word else None
    if word is None or result is None:
        raise malformed(operator, "it starts with neither True nor False")
    feedback = tagged(text, "feedback")
    if feedback is None:
        rest = text[word.end() :] if said is None else text.rpartition("</review_result>")[2]
        feedback = rest.strip(" \t\n.,:;*_-")
    return {"review_result": result, "feedback": feedback}


def _letter(operator: Operator, text: str, function: str) -> dict[str, str | bool]:
    """The one letter that the first line is, or names; the article "A" is none."""
    text = filled(operator, text)
    said = tagged(text, "solution_letter")
    line = (text if said is None else said).split("\n")[0].strip()
    if len(bare := line.strip(" \t.:()*")) == 1:
        line = bare.upper()
    letters = {"".join(found) for found in _LETTER.findall(line)}
    if len(letters) != 1:
        raise malformed(operator, "the answer names no letter of a solution, or several")
    return {"solution_letter": letters.pop()}


def _program(operator: Operator, text: str, function: str) -> dict[str, str | bool]:
    """Programmer's code; "" for none, which it tells its program."""
    return {"code": code_in_answer(text, function)}


def _code(operator: Operator, text: str, function: str) -> dict[str, str | bool]:
    code = code_in_answer(filled(operator, text), function)
    if not code.strip():
        raise malformed(operator, f"the answer defines no function {function}".rstrip())
    return {"solution" if operator.name == "Test" else "response": code}


def filled(operator: Operator, text: str) -> str:
    """A text without the space around it. Raises OperatorFailed("malformed") where none is left."""
    if not text.strip():
        raise malformed(operator, "the executor answered nothing")
    return text.strip()


def tagged(text: str, name: str) -> str | None:
    """What stands in the last `<name>...</name>`, stripped; None where there is none. One that lies
    in no other tags goes before one that does."""
    if (said := fields(text).get(name)) is not None:
        return said
    before, _, _ = text.rpartition(f"</{name}>")
    _, opened, body = before.rpartition(f"<{name}>")
    return body.strip() if opened else None


def fields(text: str) -> dict[str, str]:
    """What stands in the outermost tags of a text, by name; of equal names the last."""
    found: dict[str, str] = {}
    at, unclosed = 0, set[str]()
    while opened := _OPENED.search(text, at):
        name, at = opened[1], opened.end()
        end = -1 if name in unclosed else text.find(f"</{name}>", at)
        if end < 0:
            unclosed.add(name)
        else:
            found[name] = text[at:end].strip()
            at = end + len(f"</{name}>")
    return found


READERS: Mapping[str, Callable[[Operator, str, str], dict[str, str | bool]]] = {
    "Custom": _text,
    "AnswerGenerate": _thought_and_answer,
    "Programmer": _program,
    "ScEnsemble": _letter,
    "Review": _verdict,
    "Revise": _solution,
    "Test": _code,
    "CustomCodeGenerate": _code,
    "MdEnsemble": _letter,
    "Format": _text,
}
