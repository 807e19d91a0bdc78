"""Finds the examples that the text of a code problem gives away, as assertions anyone may see.

A docstring says them as doctests (`>>> f(2)` above `4`) or in a line: `f(2) == 4`, `f(2) -> 4`,
`f(2) should return 4`. Kept is what has literals on both sides; nothing is run.
"""

import ast
import doctest
import re

_SAYS = re.compile(
    r"\s*(?:==>|==|=>|=|->|-->|➞|→|➡|returns?\b|should return\b|#\s*(?:=>|returns?)?)\s*"
)
_LINE_END = re.compile(r"[\s.;,]*(?:#.*)?$")
LONGEST_LINE = 1000
"""Characters of a line that is looked at."""


def examples_in(text: str, entry_point: str) -> tuple[str, ...]:
    """`assert f(2) == 4` for each example of `entry_point` in a text, in order, none twice."""
    found = [*_doctests(text, entry_point), *_lines(text, entry_point)]
    return tuple(dict.fromkeys(found))


def _doctests(text: str, entry_point: str) -> list[str]:
    try:
        examples = doctest.DocTestParser().get_examples(text)
    except ValueError:
        return []  # a text with odd indentation has no doctests
    # A docstring may end right below the value of its last example.
    pairs = ((each.source.strip(), each.want.strip().rstrip('"').strip()) for each in examples)
    made = (_assertion(call, want, entry_point) for call, want in pairs)
    return [each for each in made if each]


def _lines(text: str, entry_point: str) -> list[str]:
    call = re.compile(rf"\b{re.escape(entry_point)}\s*\(")
    made = []
    for line in text.splitlines():
        start = call.search(line[:LONGEST_LINE])
        if start is None or line.lstrip().startswith("def "):
            continue
        # The call ends at the first bracket at which it is one expression.
        ends = (n + 1 for n in range(start.end(), len(line)) if line[n] == ")")
        end = next((n for n in ends if _parsed(f"f{line[start.end() - 1 : n]}")), 0)
        says = _SAYS.match(line, end) if end else None
        if says:
            want = _LINE_END.sub("", line[says.end() :])
            made.append(_assertion(line[start.start() : end], want, entry_point))
    return [each for each in made if each]


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _assertion(call: str, want: str, entry_point: str) -> str:
    """The assertion; "" where the call is of something else, or a side is no literal."""
    called = _parsed(call)
    if not (isinstance(called, ast.Call) and isinstance(called.func, ast.Name)):
        return ""
    try:
        ast.literal_eval(want)
        for each in (*called.args, *(keyword.value for keyword in called.keywords)):
            ast.literal_eval(each)
    except (SyntaxError, ValueError):
        return ""
    return f"assert {call} == {want}" if called.func.id == entry_point else ""
