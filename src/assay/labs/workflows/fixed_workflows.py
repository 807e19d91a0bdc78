"""Fixed workflows: programs that do the same on every problem, which a policy has to beat.

They are programs like those of a policy, and pass the same validator.
"""

from collections.abc import Mapping

from assay.data.formats.problem_rows import LEVEL, PROBLEM_TYPE, TOPIC
from assay.data.row import Row
from assay.errors import InputError, nearest

WORKFLOW = "workflow"
"""Begins the model source of a fixed workflow: `workflow:direct`."""
HEAD = """class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
"""


def workflow(operators: Mapping[str, str], body: str, parameters: str = "problem") -> str:
    """A program with these operators (attribute -> class) and the lines of its `__call__`."""
    made = "".join(f"        self.{a} = operator.{c}(self.llm)\n" for a, c in operators.items())
    lines = "".join(f"        {line}\n" if line else "\n" for line in body.strip().splitlines())
    return f"{HEAD}{made}\n    async def __call__(self, {parameters}):\n{lines}"


COST = 'self.llm.get_usage_summary()["total_cost"]'

DIRECT = workflow(
    {"answer_generate": "AnswerGenerate"},
    f"""
result = await self.answer_generate(input=problem)
return result["answer"], {COST}
""",
)
CUSTOM = workflow(
    {"custom": "Custom"},
    f"""
result = await self.custom(input=problem, instruction="")
return result["response"], {COST}
""",
)
REVIEW = workflow(
    {"answer_generate": "AnswerGenerate", "review": "Review", "revise": "Revise"},
    f"""
result = await self.answer_generate(input=problem)
solution = result["answer"]
review = await self.review(problem=problem, solution=solution)
if not review["review_result"]:
    revised = await self.revise(problem=problem, solution=solution, feedback=review["feedback"])
    solution = revised["solution"]
return solution, {COST}
""",
)
PROGRAMMER = workflow(
    {"programmer": "Programmer"},
    f"""
result = await self.programmer(problem=problem)
return result["output"], {COST}
""",
)
CODE = workflow(
    {"custom_code_generate": "CustomCodeGenerate"},
    f"""
result = await self.custom_code_generate(problem=problem, entry_point=entry_point, instruction="")
return result["response"], {COST}
""",
    "problem, entry_point",
)
TESTED = workflow(
    {"custom_code_generate": "CustomCodeGenerate", "test": "Test"},
    f"""
code = await self.custom_code_generate(problem=problem, entry_point=entry_point, instruction="")
result = await self.test(problem=problem, solution=code["response"], entry_point=entry_point)
return result["solution"], {COST}
""",
    "problem, entry_point",
)


def self_consistency(count: int) -> str:
    """The answer that an ensemble picks out of `count` independent ones."""
    return workflow(
        {"answer_generate": "AnswerGenerate", "sc_ensemble": "ScEnsemble"},
        f"""
solutions = []
for _ in range({count}):
    result = await self.answer_generate(input=problem)
    solutions.append(result["answer"])
result = await self.sc_ensemble(solutions=solutions, problem=problem)
return result["response"], {COST}
""",
    )


FIXED: Mapping[str, str] = {
    "direct": DIRECT,
    "custom": CUSTOM,
    "programmer": PROGRAMMER,
    "review and revise": REVIEW,
    "self-consistency of 3": self_consistency(3),
    "self-consistency of 5": self_consistency(5),
}
"""By name; for problems that are answered with a text."""
FIXED_CODE: Mapping[str, str] = {"direct code": CODE, "test-driven code": TESTED}
"""By name; for problems that are answered with code."""
FALLBACK: Mapping[str, str] = {"text": CUSTOM, "code": CODE}
"""What answers in place of a failed program where an evaluation asks for that (AFlow's default)."""
FIXED_SOURCES: Mapping[str, Mapping[str, str]] = {
    name.replace(",", "").replace(" ", "-"): {"text": program, "code": CODE}
    for name, program in FIXED.items()
} | {"test-driven-code": {"text": DIRECT, "code": TESTED}}
"""The programs of `model = "workflow:NAME"`, for texts and for code."""
OTHERS = "*"
"""In a router's table: every problem that no other entry fits."""


def table_of(text: str) -> dict[str, str]:
    """The workflow by TOPIC/LEVEL, TOPIC, type or OTHERS, of `KEY=NAME,...`; a single name is that
    of all problems. Raises InputError for a workflow that there is not and a key given twice."""
    table: dict[str, str] = {}
    for entry in text.split(","):
        key, named, name = entry.partition("=")
        key, name = (key, name) if named else (OTHERS, entry)
        if name not in FIXED_SOURCES:
            raise InputError(
                f"no workflow {name!r}", field="model", fix=nearest(name, FIXED_SOURCES)
            )
        if table.setdefault(key, name) != name:
            fix = "one entry for each key"
            raise InputError(f"{key!r} has two workflows", field="model", fix=fix)
    return table


def routed(table: Mapping[str, str], row: Row) -> str:
    """The program for a problem: of the first of its TOPIC/LEVEL, topic, type and OTHERS that the
    table has. Raises InputError where it has none of them."""
    kind = row.extra[PROBLEM_TYPE]
    topic = row.extra.get(TOPIC) or kind
    for key in (f"{topic}/{row.extra.get(LEVEL)}", topic, kind, OTHERS):
        if key in table:
            return FIXED_SOURCES[table[key]]["code" if kind == "code" else "text"]
    fix = f'add "{topic}=NAME" or "{OTHERS}=NAME"'
    raise InputError(f"the router has no workflow for {topic!r}", field="model", fix=fix)
