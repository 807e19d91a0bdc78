"""Operator calls with scripted replies."""

from typing import Any

SOLVE = "def solve():\n    return 7"


def fence(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


STYLES = {
    "returned": fence(SOLVE),
    "without a fence": SOLVE,
    "between sentences": f"Here is the code:\n\n{SOLVE}\n\nIt returns seven.",
    "an open fence": f"Sure:\n```python\n{SOLVE}\n",
    "several blocks": fence("LIMIT = 7") + "\nthen\n" + fence("def solve():\n    return LIMIT"),
    "a block that is no Python": fence("pip install x", "") + fence(SOLVE),
    "main guard with more": fence(
        f"import math\n{SOLVE}\ndef main():\n    print('Answer:', solve())\n\n"
        "if __name__ == '__main__':\n    main()"
    ),
    "printed with words": fence(f"{SOLVE}\nresult = solve()\nprint(f'The answer is {{result}}')"),
    "prints inside": fence("def solve():\n    print('adding 3 and 4')\n    return 3 + 4"),
    "prints and returns nothing": fence("def solve():\n    print(7)"),
    "examples that fail": fence(f"{SOLVE}\nassert solve() == 8\nprint(solve(1))"),
    "reads input at the end": fence(f"{SOLVE}\nn = int(input())\nprint(n)"),
    "helpers and constants": fence(
        "import math\nA, B = 3, 4\nTOTAL = 25\ndef root():\n    return math.sqrt(TOTAL)\n"
        "def unused():\n    return A\ndef solve():\n    return root()"
    ),
    "float": fence("def solve():\n    return 0.1 + 0.2"),
    "list": fence("def solve():\n    return [1, 'a']"),
    "text with space around": fence("def solve():\n    return ' 7 \\n'"),
    "nothing": fence("def solve():\n    x = 7"),
    "defined twice": fence("def solve():\n    return 6\ndef solve():\n    return 7"),
    "a local named as a global": fence(
        "result = 5\ndef solve():\n    result = 7\n    return result"
    ),
}
"""Replies of which each is one program, by the way in which it is written."""
FAILS = {
    "raises": fence("def solve():\n    return x"),
}
"""Replies whose program fails."""


def case(operator: str, replies: list[str], tests: Any = (), **arguments: Any) -> dict[str, Any]:
    return {
        "operator": operator,
        "arguments": arguments,
        "replies": replies,
        "tests": list(tests),
    }


def programmed(*replies: str, **more: Any) -> dict[str, Any]:
    return case("Programmer", list(replies), problem="3 + 4?", **more)


def letters(operator: str, *said: str) -> dict[str, Any]:
    replies = [
        f"<thought>A or B</thought><solution_letter>{each}</solution_letter>" for each in said
    ]
    return case(operator, replies, solutions=["six", "seven", "six", "eight"], problem="3 + 4?")
