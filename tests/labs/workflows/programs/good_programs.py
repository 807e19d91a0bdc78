"""Programs that are right, written by hand: ways of writing that the validator has to know.

`TEXT` take a problem, `CODE` a problem and an entry point.
"""

HEAD = """\
class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.answer_generate = operator.AnswerGenerate(self.llm)
        self.programmer = operator.Programmer(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)
        self.md_ensemble = operator.MdEnsemble(self.llm)
        self.review = operator.Review(self.llm)
        self.revise = operator.Revise(self.llm)
        self.format = operator.Format(self.llm)
        self.test = operator.Test(self.llm)
        self.custom_code_generate = operator.CustomCodeGenerate(self.llm)

"""


def text(body: str, before: str = "", after: str = "") -> str:
    """A program with all operators made, and `__call__` with a body."""
    lines = "\n".join(f"        {line}" if line else "" for line in body.strip().split("\n"))
    return f"{before}{HEAD}    async def __call__(self, problem):\n{lines}\n{after}"


def code(body: str) -> str:
    """The same for code problems."""
    return text(body).replace("(self, problem)", "(self, problem, entry_point)")


AFLOW = '''\
from typing import Literal
import workspace.MATH.workflows.template.operator as operator
import workspace.MATH.workflows.round_1.prompt as prompt_custom
from scripts.async_llm import create_llm_instance

from scripts.evaluator import DatasetType


class Workflow:
    def __init__(
        self,
        name: str,
        llm_config,
        dataset: DatasetType,
    ) -> None:
        self.name = name
        self.dataset = dataset
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str):
        """
        Implementation of the workflow
        """
        solution = await self.custom(input=problem, instruction="")
        return solution["response"], self.llm.get_usage_summary()["total_cost"]
'''

TEXT = {
    "what reads and sets its own attributes by name": text("""
for name in ("first", "second"):
    setattr(self, name, self.custom)
if hasattr(self, "cache"):
    return self.cache
self.__dict__.update(count=self.__class__.__name__)
result = await self.first(input=problem, instruction=self.count)
return result["response"]
"""),
    "keys that are looked for first": text("""
result = await self.custom(input=problem, instruction="")
if "answer" in result:
    return result["answer"]
return result.get("solution") or result.get("text", result["response"])
"""),
    "calls kept in a dict, and an async generator": text(
        """
open_calls = {n: self.custom(input=problem, instruction=str(n)) for n in range(2)}
results = {n: await call for n, call in open_calls.items()}
async for each in self.each(results):
    return each
""",
        "import base64, struct, uuid\n\n",
        """
    async def each(self, results):
        for result in results.values():
            yield result["response"]
""",
    ),
    "aflow": AFLOW,
    "direct": text('r = await self.answer_generate(input=problem)\nreturn r["answer"]'),
    "gather named": text(
        """
first, second = await asyncio.gather(self.custom(problem, ""), self.programmer(problem))
return first["response"] + second["output"]
""",
        before="import asyncio\n\n",
    ),
    "review and revise": text("""
solution = (await self.answer_generate(input=problem))["answer"]
for _ in range(2):
    review = await self.review(problem=problem, solution=solution)
    if review["review_result"]:
        break
    revised = await self.revise(problem=problem, solution=solution, feedback=review["feedback"])
    solution = revised["solution"]
return solution
"""),
    "helper method": text(
        """
return await self.solve(problem, 2)
""",
        after="""
    async def solve(self, problem, times):
        for _ in range(times):
            r = await self.custom(input=problem, instruction="Solve.")
        return r["response"]
""",
    ),
    "standard library": text(
        """
rs = [(await self.answer_generate(problem))["answer"] for _ in range(5)]
answer, _ = Counter(rs).most_common(1)[0]
return str(math.floor(float(answer))) if answer.isdigit() else json.dumps(answer)
""",
        before="import json\nimport math\nfrom collections import Counter\n\n",
    ),
    "local operator": text("""
again = operator.Custom(self.llm)
r = await again(input=problem, instruction="Solve.")
return r["response"]
"""),
    "alias of an attribute": text("""
ask = self.custom
r = await ask(input=problem, instruction="Solve.")
return r["response"]
"""),
    "from import": AFLOW.replace(
        "import workspace.MATH.workflows.template.operator as operator",
        "from workspace.MATH.workflows.template.operator import Custom",
    ).replace("operator.Custom(", "Custom("),
    "dotted import": AFLOW.replace(" as operator\n", "\n").replace(
        "operator.Custom(self", "workspace.MATH.workflows.template.operator.Custom(self"
    ),
    "helper that hands on": text(
        'return (await self.ask(problem))["response"]',
        after="""
    def ask(self, problem):
        return self.custom(input=problem, instruction="Solve.")
""",
    ),
    "tasks awaited in a loop": text("""
tasks = [self.custom(problem, words) for words in ("Solve.", "Think.")]
answer = ""
for task in tasks:
    answer += (await task)["response"]
return answer
"""),
    "task group": text(
        """
async with asyncio.TaskGroup() as group:
    task = group.create_task(self.custom(problem, "Solve."))
return task.result()["response"]
""",
        before="import asyncio\n\n",
    ),
}

CODE = {
    "generate": code("""
r = await self.custom_code_generate(problem=problem, entry_point=entry_point, instruction="")
return r["response"], self.llm.get_usage_summary()["total_cost"]
"""),
    "test": code("""
r = await self.custom_code_generate(problem, entry_point, "Write it.")
tested = await self.test(problem=problem, solution=r["response"], entry_point=entry_point)
if tested["result"]:
    return tested["solution"]
r = await self.custom(input=problem + tested["solution"], instruction="Mend it.")
return r["response"]
"""),
    "either signature": code('return "x"').replace("entry_point):", 'entry_point=""):'),
}
