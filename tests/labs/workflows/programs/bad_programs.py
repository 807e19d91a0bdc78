"""Programs that are wrong, written by hand: `# <- CODE` ends each line that has a finding.

A line may have several, with commas; `WHOLE` are findings of no line.
"""

import re

from tests.labs.workflows.programs.good_programs import PROGRAMS

MARK = re.compile(r"#\s*<- ([\w, ]+)$")


def expected(source: str) -> set[tuple[str, int]]:
    """The findings that the marks of a program name."""
    return {
        (code.strip(), number)
        for number, line in enumerate(source.split("\n"), 1)
        if (mark := MARK.search(line))
        for code in mark[1].split(",")
    }


BAD, BAD_CODE = PROGRAMS["bad"], PROGRAMS["bad_code"]
WHOLE = {
    "empty": ("", "no_workflow"),
    "prose": ("Here is my answer.", "syntax"),
    "another class": ("class Flow:\n    pass\n", "no_workflow"),
}
LATE = {
    "bare return": ("if problem:\n    return\nreturn 'x'", "no_answer"),
    "made without llm": ("ask = operator.Custom()\nreturn 'x'", "raised TypeError"),
    "a text for a list": (
        "return (await self.sc_ensemble('x', problem))['response']",
        "operator arguments",
    ),
    "a huge count": (
        "return (await self.test(problem, '', 'f', test_loop=1000))['solution']",
        "operator arguments",
    ),
    "key of the result before": (
        "r = await self.custom(problem, '')\nr = await self.revise(problem, '', '')\n"
        "return r['response']",
        "raised KeyError",
    ),
    "key in no branch": (
        "if problem:\n    r = await self.custom(problem, '')\n"
        "else:\n    r = await self.programmer(problem)\nreturn r['answer']",
        "raised KeyError",
    ),
}
"""Bodies that the validator lets pass and the sandbox ends, and how."""
