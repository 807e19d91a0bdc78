"""Reads what the executor model answered for an operator; nothing of it is run or trusted.

What AFlow 364399e reads, this reads alike (its `formatter.py`): fields in tags, as
`<answer>7</answer>`, of which the last ones count; code by `sanitize`; texts as they are.
Besides that each field is read as the prompts ask for it, and a verdict is a real bool. An answer
that has not what the operator needs is `OperatorFailed("malformed")`, where AFlow's programs meet a
KeyError. `MOST_CHARACTERS` of a text are read.
"""

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence

from assay.labs.workflows.programs.operators import LETTERS, Operator, OperatorFailed

MOST_CHARACTERS = 100_000
FENCE = "```"
MOST_PARSED = 1_000_000
"""Characters that are parsed in search of the longest run; what was found until then is taken."""
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What a text may do to Python's parser."""

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


def code_in_answer(text: str, function: str = "") -> str:
    """The code that defines `function`, or all that an answer defines without one; "" where it
    defines nothing. What is no Python at all is handed on, for whoever runs it to fail."""
    code = longest_python(
        "\n\n".join(blocks(text, f"{FENCE}python") or blocks(text, FENCE)) or text
    )
    try:
        return needed(parsed(code).body, function)
    except UNREADABLE:
        return code


def blocks(text: str, opening: str) -> list[str]:
    """The closed blocks of a text that begin with `opening`, each stripped."""
    found, at = [], 0
    while (start := text.find(opening, at)) >= 0:
        start += len(opening)
        end = text.find(FENCE, start)
        if end < 0:
            break
        found.append(text[start:end].strip())
        at = end + len(FENCE)
    return found


def longest_python(text: str) -> str:
    """The first of the runs of two lines or more that are Python and have most lines with text;
    the first line where there is none."""
    lines = text.split("\n")
    best, most, left = lines[0], 0, MOST_PARSED
    for first, line in enumerate(lines):
        last = len(lines) if line[:1].strip() else first
        while last - first > 1 and left > 0:
            run = lines[first:last]
            written = sum(map(bool, map(str.strip, run)))
            if written <= most:
                break
            left -= sum(map(len, run))
            try:
                parsed("\n".join(run))
            except UNREADABLE as error:
                # No longer run from here passes the line that the parser stops at.
                wrong = error.lineno if isinstance(error, SyntaxError) else None
                last = min(last - 1, first + (wrong or len(run)) - 1)
            else:
                best, most = "\n".join(run), written
    return best


def parsed(code: str) -> ast.Module:
    """The syntax tree. Raises one of UNREADABLE."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def needed(body: Sequence[ast.stmt], function: str) -> str:
    """The imports of a module's statements, then those that set what `function` reads, directly or
    through others; all that set a name where `function` is "". Raises one of UNREADABLE."""
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in body if node not in imports]
    sets = [names_set(node) for node in others]
    reads = [{n.id for n in ast.walk(node) if isinstance(n, ast.Name)} for node in others]
    wanted, before = {function} if function else set[str]().union(*sets), -1
    while before != len(wanted):
        before = len(wanted)
        for own, more in zip(sets, reads, strict=True):
            wanted |= own | more if own & wanted else set()
    kept = [node for node, own in zip(others, sets, strict=True) if own & wanted]
    return "\n".join(ast.unparse(node) for node in (*imports, *kept))


def names_set(node: ast.stmt) -> set[str]:
    """The names that a statement binds, or whose values it changes where it stands, as
    `seen.add(1)` does."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    found = set[str]()
    for each in ast.walk(node):
        match each:
            case ast.alias(name=name, asname=other):
                found.add(other or name.partition(".")[0])
            case (
                ast.Name(ctx=ast.Store())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
                | ast.Attribute(ctx=ast.Store())
                | ast.Expr(value=ast.Call(func=ast.Attribute()))
            ):
                target = each.value.func if isinstance(each, ast.Expr) else each  # pyright: ignore[reportAttributeAccessIssue]
                while isinstance(target, ast.Attribute | ast.Subscript):
                    target = target.value
                found |= {target.id} if isinstance(target, ast.Name) else set()
    return found
