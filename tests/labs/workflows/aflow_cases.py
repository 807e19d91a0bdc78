"""Operator calls with scripted replies, on which AFlow and this lab are compared."""

from typing import Any

SOLVE = "def solve():\n    return 7"


def fence(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


STYLES = {
    "returned": fence(SOLVE),
    "without a fence": SOLVE,
    "between sentences": f"Here is the code:\n\n{SOLVE}\n\nIt returns seven.",
    "an open fence": f"Sure:\n```python\n{SOLVE}\n",
    "a plain fence": fence(SOLVE, ""),
    "another fence": fence(SOLVE, "py"),
    "several blocks": fence("LIMIT = 7") + "\nthen\n" + fence("def solve():\n    return LIMIT"),
    "a block that is no Python": fence("pip install x", "") + fence(SOLVE),
    "main guard": fence(f"{SOLVE}\n\nif __name__ == '__main__':\n    print(solve())"),
    "main guard with more": fence(
        f"import math\n{SOLVE}\ndef main():\n    print('Answer:', solve())\n\n"
        "if __name__ == '__main__':\n    main()"
    ),
    "printed at the end": fence(f"{SOLVE}\n\nprint(solve())"),
    "printed with words": fence(f"{SOLVE}\nresult = solve()\nprint(f'The answer is {{result}}')"),
    "prints inside": fence("def solve():\n    print('adding 3 and 4')\n    return 3 + 4"),
    "prints and returns nothing": fence("def solve():\n    print(7)"),
    "examples that fail": fence(f"{SOLVE}\nassert solve() == 8\nprint(solve(1))"),
    "reads input at the end": fence(f"{SOLVE}\nn = int(input())\nprint(n)"),
    "lambda": fence("solve = lambda: 7\nprint(solve())"),
    "a class": fence(
        "class Shop:\n    price = 7\n    def cost(self):\n        return self.price\n\n"
        "def solve():\n    return Shop().cost()"
    ),
    "dataclass": fence(
        "from dataclasses import dataclass\n@dataclass\nclass Item:\n    price: int\n\n"
        "def solve():\n    return Item(7).price"
    ),
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
    "docstring and comment": fence('def solve():\n    """Adds."""\n    # three\n    return 3 + 4'),
}
"""Replies of which each is one program, by the way in which it is written."""
FAILS = {
    "raises": fence("def solve():\n    return x"),
    "raises with words": fence("def solve():\n    raise ValueError('no such thing')"),
    "no function": fence("import math\nprint(7)"),
    "banned": fence("import sys\ndef solve():\n    return sys.maxsize"),
    "no Python": "The answer is 7",
    "needs an argument": fence("def solve(n):\n    return n"),
    "cut": "```python\ndef solve():\n    return (1 +",
}
"""Replies whose program fails."""
NO_CODE = {"a number": "7", "nothing": "", "a call": fence("print(7)"), "a comment": "# hm"}


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


TWICE = "def twice(n):\n    return {} * n"
TEST = ["assert candidate(3) == 6"]
CASES = {
    **{f"Programmer: {name}": programmed(reply) for name, reply in STYLES.items()},
    **{f"Programmer fails: {name}": programmed(*[reply] * 3) for name, reply in FAILS.items()},
    **{
        f"Programmer mends: {name}": programmed(reply, STYLES["returned"])
        for name, reply in FAILS.items()
    },
    **{f"Programmer without code: {name}": programmed(reply) for name, reply in NO_CODE.items()},
    "Programmer fails in three ways": programmed(*list(FAILS.values())[:3]),
    "Programmer fails, then no code": programmed(FAILS["raises"], "7"),
    "Programmer with analysis": programmed(STYLES["returned"], analysis="Add them."),
    "Custom": case("Custom", ["seven"], input="3 + 4?", instruction="Add."),
    "Custom keeps space": case("Custom", [" seven\n"], input=" 3 + 4?\n", instruction="Add:\n"),
    "Custom keeps tags": case("Custom", ["<response>7</response>"], input="None", instruction=""),
    "Custom of nothing": case("Custom", [""], input="", instruction="Say nothing."),
    "AnswerGenerate": case(
        "AnswerGenerate", ["<thought>3+4</thought>\n<answer> 7 </answer>"], input="3 + 4?"
    ),
    "AnswerGenerate: the last counts": case(
        "AnswerGenerate",
        ["<answer>6</answer><thought>or</thought><answer>7</answer>"],
        input="3 + 4?",
    ),
    "AnswerGenerate: tags in a thought": case(
        "AnswerGenerate",
        ["<answer>7</answer><thought>not <answer>6</answer></thought>"],
        input="3 + 4?",
    ),
    "AnswerGenerate: empty": case(
        "AnswerGenerate", ["<thought>hm</thought><answer></answer>"], input="3 + 4?"
    ),
    "ScEnsemble": letters("ScEnsemble", "B"),
    "ScEnsemble in small letters": letters("ScEnsemble", " d "),
    "MdEnsemble": letters("MdEnsemble", "B", "A", "B", "D", "B"),
    "MdEnsemble: equal solutions share votes": letters("MdEnsemble", "B", "A", "B", "C", "A"),
    "MdEnsemble: the first vote wins a tie": letters("MdEnsemble", "D", "B", "B", "D", "A"),
    "MdEnsemble drops what is no letter": letters("MdEnsemble", "none", "B", "Z", "", "A and B"),
    "Review: right": case(
        "Review",
        ["<review_result>True</review_result><feedback>- adds up.</feedback>"],
        problem="3 + 4?",
        solution="7",
    ),
    "Review: wrong": case(
        "Review",
        ["<review_result>\nfalse\n</review_result>\n<feedback>It is 7.</feedback>"],
        problem="3 + 4?",
        solution="None",
    ),
    "Revise": case(
        "Revise", ["<solution>7</solution>"], problem="3 + 4?", solution="6", feedback="More."
    ),
    "Revise: code in tags": case(
        "Revise",
        [f"<solution>\n{fence(SOLVE)}\n</solution>"],
        problem="3 + 4?",
        solution="6",
        feedback="More.",
    ),
    "Format": case("Format", [" 7\n"], problem="3 + 4?", solution="It is 7."),
    "CustomCodeGenerate": case(
        "CustomCodeGenerate",
        ["So:\n" + fence(TWICE.format(2) + "\nprint(twice(1))")],
        problem="Double.",
        entry_point="twice",
        instruction="Be short. ",
    ),
    "CustomCodeGenerate of words": case(
        "CustomCodeGenerate",
        ["I cannot."],
        problem="Double.",
        entry_point="twice",
        instruction="",
    ),
    "Test: passes": case(
        "Test", [], TEST, problem="Double.", solution=TWICE.format(2), entry_point="twice"
    ),
    "Test: mended": case(
        "Test",
        [fence(TWICE.format(2) + "\nhalf = 1")],
        TEST,
        problem="Double.",
        solution=TWICE.format(3),
        entry_point="twice",
    ),
    "Test: a crash is mended too": case(
        "Test",
        ["I cannot.", fence(TWICE.format(2))],
        TEST,
        problem="Double.",
        solution=TWICE.format("x"),
        entry_point="twice",
    ),
    "Test: never": case(
        "Test",
        [fence(TWICE.format(3))] * 2,
        TEST,
        problem="Double.",
        solution=TWICE.format(4),
        entry_point="twice",
        test_loop=2,
    ),
    "Test: a reply that defines nothing": case(
        "Test", ["7"], TEST, problem="Double.", solution=TWICE.format(3), entry_point="twice"
    ),
    "ScEnsemble: no such letter": letters("ScEnsemble", "Z"),
    "MdEnsemble: no letter at all": letters("MdEnsemble", *["none"] * 5),
    "CustomCodeGenerate: nothing is defined": case(
        "CustomCodeGenerate", ["7"], problem="Double.", entry_point="twice", instruction=""
    ),
}
