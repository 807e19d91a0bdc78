"""Programs that are wrong, written by hand: `# <- CODE` ends each line that has a finding.

A line may have several, with commas; `WHOLE` are findings of no line.
"""

import re

from tests.tasks.workflows.programs.good_programs import AFLOW, code, text

MARK = re.compile(r"#\s*<- ([\w, ]+)$")


def expected(source: str) -> set[tuple[str, int]]:
    """The findings that the marks of a program name."""
    return {
        (code.strip(), number)
        for number, line in enumerate(source.split("\n"), 1)
        if (mark := MARK.search(line))
        for code in mark[1].split(",")
    }


def marked(old: str, new: str, source: str = AFLOW) -> str:
    """A program in which `old` stands as `new`; it has to be there."""
    assert old in source
    return source.replace(old, new)


CALL = "    async def __call__(self, problem):\n        return 'x'\n"
BAD = {
    # The frame.
    "no call": AFLOW.replace("class Workflow:", "class Workflow:  # <- no_call").replace(
        "async def __call__", "async def call"
    ),
    "no init": "class Workflow:  # <- no_init\n" + CALL,
    "init without dataset": marked(
        """    def __init__(
        self,
        name: str,
        llm_config,
        dataset: DatasetType,
    ) -> None:
        self.name = name
        self.dataset = dataset
""",
        "    def __init__(self, llm_config):  # <- no_init\n",
    ),
    "async init": "class Workflow:\n"
    "    async def __init__(self, a, b, c):  # <- no_init\n        self.x = a\n" + CALL,
    "call is not async": "class Workflow:\n    def __init__(self, a, b, c):\n        self.a = a\n"
    "    def __call__(self, problem):  # <- not_async\n        return self.a\n",
    "call without problem": text("return 'x'").replace(
        "__call__(self, problem):", "__call__(self):  # <- call_arguments"
    ),
    "call with more": text("return 'x'").replace(
        "(self, problem):", "(self, problem, task):  # <- call_arguments"
    ),
    "call with a keyword only": text("return 'x'").replace(
        "(self, problem):", "(self, problem, *, task):  # <- call_arguments"
    ),
    "yields": text("yield problem  # <- not_async\nyield 'x'  # <- not_async").replace(
        "problem):", "problem):  # <- no_return"
    ),
    # What is returned.
    "no return": text("r = await self.custom(problem, '')").replace(
        "problem):", "problem):  # <- no_return"
    ),
    "return in one branch": text("if problem:\n    return 'x'").replace(
        "problem):", "problem):  # <- no_return"
    ),
    "return in a loop only": text("for _ in range(3):\n    return 'x'").replace(
        "problem):", "problem):  # <- no_return"
    ),
    "while true with a break": text(
        "while True:\n    if problem:\n        break\n    return 'x'"
    ).replace("problem):", "problem):  # <- no_return"),
    "for else with a break": text(
        "for letter in problem:\n    if letter:\n        break\nelse:\n    return 'x'"
    ).replace("problem):", "problem):  # <- no_return"),
    "while else with a break": text(
        "while problem:\n    try:\n        break\n    finally:\n        pass\nelse:\n    return 'x'"
    ).replace("problem):", "problem):  # <- no_return"),
    "handler falls through": text(
        "try:\n    return (await self.custom(problem, ''))['response']\nexcept Exception:\n    pass"
    ).replace("problem):", "problem):  # <- no_return"),
    "match without a rest": text("match problem:\n    case 'x':\n        return 'x'").replace(
        "problem):", "problem):  # <- no_return"
    ),
    "bare return": text("if problem:\n    return  # <- no_return\nreturn 'x'"),
    "returns none": text("return None  # <- no_return"),
    "answer is none": text("return None, 0.0  # <- no_return"),
    "three values": text("return 'x', 0.0, 1  # <- return_shape"),
    "result returned": text(
        "r = await self.custom(problem, '')\nreturn r, 0.0  # <- result_returned"
    ),
    "result returned at once": text("return await self.custom(problem, '')  # <- result_returned"),
    "usage returned": text("return self.llm.get_usage_summary()  # <- result_returned"),
    # Imports and names.
    "import os": "import os  # <- import_not_allowed\n" + AFLOW,
    "import a submodule": "import os.path as p  # <- import_not_allowed\n" + AFLOW,
    "import pathlib": "from pathlib import Path  # <- import_not_allowed\n" + AFLOW,
    "import operator of the library": "import operator  # <- import_not_allowed\n"
    + text("return 'x'"),
    "import numpy": text("import numpy as np  # <- import_not_allowed\nreturn 'x'"),
    "relative import": "from . import prompt  # <- import_not_allowed\n" + AFLOW,
    "star import": "from math import *  # <- import_not_allowed\n" + AFLOW,
    "unknown name of a module": "from math import squareroot  # <- unknown_attribute\n" + AFLOW,
    "module inside a module": "import random\n"
    + text("return random._os.name  # <- unknown_attribute"),
    "asyncio's processes": "import asyncio\n"
    + text("await asyncio.create_subprocess_shell('x')  # <- unknown_attribute\nreturn 'x'"),
    "typing evaluates": "from typing import get_type_hints  # <- unknown_attribute\n" + AFLOW,
    "unknown module of aflow": "from scripts.memory import Memory  # <- import_not_allowed\n"
    + AFLOW,
    "eval": text("return str(eval(problem))  # <- forbidden_name"),
    "exec": text("exec(problem)  # <- forbidden_name\nreturn 'x'"),
    "compile": text("compile(problem, '', 'exec')  # <- forbidden_name\nreturn 'x'"),
    "open": text("return open('/etc/passwd').read()  # <- forbidden_name"),
    "getattr": text("return getattr(self, 'x')  # <- forbidden_name"),
    "globals": text("return str(globals())  # <- forbidden_name"),
    "input": text("return input()  # <- forbidden_name"),
    "dunder import": text("return __import__('os').name  # <- dunder"),
    "os without import": text("return os.getcwd()  # <- forbidden_name"),
    "requests without import": text("return requests.get(problem).text  # <- forbidden_name"),
    "subclasses": text("return str(().__class__.__base__.__subclasses__())  # <- dunder"),
    "globals of a function": text(
        "return str(self.custom.__call__.__globals__)  # <- dunder, unknown_attribute"
    ),
    "frames": text("return str((lambda: 0).f_globals)  # <- forbidden_name"),
    "format text": text("return '{0.__class__}'.format(problem)  # <- dunder"),
    "dunder name": text("return __name__  # <- dunder"),
    "dunder method": text(
        "return 'x'", after="\n    def __del__(self):  # <- dunder\n        pass\n"
    ),
    "undefined name": text("return answer  # <- undefined_name"),
    "undefined in another function": text(
        "r = 1\nreturn await self.more(problem)",
        after="\n    async def more(self, problem):\n        return r  # <- undefined_name\n",
    ),
    "undefined value of an annotated name": text(
        "answer: str = missing  # <- undefined_name\nreturn answer"
    ),
    "undefined annotation at the top": "words: List = []  # <- undefined_name\n" + AFLOW,
    "typing not imported": text("return 'x'").replace(
        "(self, problem):", "(self, problem: List[str]):  # <- undefined_name"
    ),
    "class name without module": AFLOW.replace(
        "operator.Custom(self.llm)", "Custom(self.llm)  # <- undefined_name"
    ),
    "method as a name": text(
        "return more(problem)  # <- undefined_name",
        after="\n    def more(self, problem):\n        return problem\n",
    ),
    # Operators and how they are made.
    "unknown operator": marked(
        "operator.Custom(self.llm)", "operator.Solver(self.llm)  # <- unknown_operator"
    ),
    "operator in lower case": marked(
        "operator.Custom(self.llm)", "operator.custom(self.llm)  # <- unknown_operator"
    ),
    "made without llm": marked(
        "operator.Custom(self.llm)", "operator.Custom()  # <- operator_setup"
    ),
    "made with more": marked(
        "operator.Custom(self.llm)", "operator.Custom(self.llm, votes=3)  # <- operator_setup"
    ),
    "made with three": marked(
        "operator.Custom(self.llm)", "operator.Custom(self.llm, 'a', 'b')  # <- operator_setup"
    ),
    "made with a name only": marked(
        "operator.Custom(self.llm)", "operator.Custom(name='a')  # <- operator_setup"
    ),
    "attribute that object does not have": text("return self.answer  # <- unset_attribute").replace(
        "class Workflow:", "class Workflow(object):"
    ),
    "llm is never set": marked(
        "        self.llm = create_llm_instance(llm_config)\n",
        "",
        AFLOW.replace("Custom(self.llm)", "Custom(self.llm)  # <- unset_attribute"),
    ).replace('"], self.llm.get_usage_summary()["total_cost"]\n', '"]\n'),
    "never made": AFLOW.replace("        self.custom = operator.Custom(self.llm)\n", "").replace(
        'instruction="")', 'instruction="")  # <- not_instantiated'
    ),
    "made too late": text("""
r = await self.late(problem, "")  # <- not_instantiated
self.late = operator.Custom(self.llm)
return r["response"]
"""),
    "made too late in a variable": text("""
r = await late(problem, "")  # <- not_instantiated
late = operator.Custom(self.llm)
return r["response"]
"""),
    "attribute that nothing sets": text("return self.answer  # <- unset_attribute"),
    "attribute of an operator": text("return self.custom.name  # <- unknown_attribute"),
    # Await.
    "not awaited": text("r = self.custom(problem, '')  # <- not_awaited\nreturn r['response']"),
    "not awaited and dropped": text("self.custom(problem, '')  # <- not_awaited\nreturn 'x'"),
    "not awaited and subscripted": text(
        "return self.custom(problem, '')['response']  # <- not_awaited"
    ),
    "not awaited in a list": text(
        "rs = [self.custom(problem, '') for _ in range(3)]  # <- not_awaited\nreturn str(rs)"
    ),
    "not awaited as an argument": text(
        "return (await self.custom(self.programmer(problem), ''))['response']  # <- not_awaited"
    ),
    "not awaited and returned": text("return self.custom(problem, '')  # <- not_awaited"),
    "tasks looped over, not awaited": text("""
tasks = [self.custom(problem, "") for _ in range(3)]  # <- not_awaited
return str([task for task in tasks])
"""),
    "tasks handed to a plain function": text("""
tasks = [self.custom(problem, "") for _ in range(3)]  # <- not_awaited
return str(tasks)
"""),
    "task awaited in another function": text(
        "task = self.custom(problem, '')  # <- not_awaited\nreturn 'x'",
        after="\n    async def more(self, task):\n        return await task\n",
    ),
    "alias not awaited": text(
        "ask = self.custom\nr = ask(problem, '')  # <- not_awaited\nreturn str(r)"
    ),
    "sleep not awaited": "import asyncio\n"
    + text("asyncio.sleep(1)  # <- not_awaited\nreturn 'x'"),
    "inner function not awaited": text("""
async def once():
    return "x"
return once()  # <- not_awaited
"""),
    "lambda not awaited": text("""
ask = lambda words: self.custom(problem, words)
return ask("Solve.")  # <- not_awaited
"""),
    "gather not awaited": "import asyncio\n"
    + text("rs = asyncio.gather(self.custom(problem, ''))  # <- not_awaited\nreturn str(rs)"),
    "helper not awaited": text(
        "return self.more(problem)  # <- not_awaited",
        after="\n    async def more(self, problem):\n        return problem\n",
    ),
    "usage awaited": text(
        "return 'x', (await self.llm.get_usage_summary())['total_cost']  # <- needless_await"
    ),
    "helper awaited": text(
        "return await self.more(problem)  # <- needless_await",
        after="\n    def more(self, problem):\n        return problem\n",
    ),
    "await in a plain function": text(
        "return 'x'", after="\n    def more(self):\n        return await self.x  # <- syntax\n"
    ),
    # Arguments.
    "unknown parameter": text(
        "return (await self.custom(input=problem, prompt='x', instruction=''))['response']"
        "  # <- unknown_parameter"
    ),
    "missing parameter": text(
        "return (await self.custom(input=problem))['response']  # <- missing_parameter"
    ),
    "both": text(
        "return (await self.custom(input=problem, prompt=''))['response']"
        "  # <- unknown_parameter, missing_parameter"
    ),
    "given twice": text(
        "r = await self.custom(problem, '', input=problem)  # <- repeated_parameter\n"
        "return r['response']"
    ),
    "too many": text(
        "return (await self.answer_generate(problem, 'x'))['answer']  # <- too_many_arguments"
    ),
    "a text for a list": text(
        "return (await self.sc_ensemble(solutions='x', problem=problem))['response']"
        "  # <- wrong_type"
    ),
    "an empty list": text(
        "return (await self.sc_ensemble([], problem))['response']  # <- wrong_type"
    ),
    "none for a text": text("return (await self.custom(None, ''))['response']  # <- wrong_type"),
    "a text for a count": code(
        "return (await self.test(problem, '', entry_point, test_loop='3'))['solution']"
        "  # <- wrong_type"
    ),
    "a huge count": code(
        "return (await self.test(problem, '', entry_point, test_loop=1000))['solution']"
        "  # <- wrong_type"
    ),
    # Results.
    "unknown key": text("r = await self.custom(problem, '')\nreturn r['answer']  # <- unknown_key"),
    "unknown key at once": text(
        "return (await self.review(problem, ''))['result']  # <- unknown_key"
    ),
    "unknown key by get": text(
        "r = await self.custom(problem, '')\nreturn r.get('answer', '')  # <- unknown_key"
    ),
    "key as attribute": text(
        "r = await self.custom(problem, '')\nreturn r.response  # <- unknown_key"
    ),
    "key of the result before": text("""
r = await self.custom(problem, "")
r = await self.revise(problem, r["response"], "")
return r["response"]  # <- unknown_key
"""),
    "key in no branch": text("""
if problem:
    r = await self.custom(problem, "")
else:
    r = await self.programmer(problem)
return r["answer"]  # <- unknown_key
"""),
    "key of a gathered result": "import asyncio\n"
    + text("""
rs = await asyncio.gather(*[self.custom(problem, "") for _ in range(3)])
return [r["answer"] for r in rs][0]  # <- unknown_key
"""),
    "key of one gathered result": "import asyncio\n"
    + text("""
a, b = await asyncio.gather(self.custom(problem, ""), self.programmer(problem))
return a["response"] + b["response"]  # <- unknown_key
"""),
    "key of one of two operators": text("""
one, other = operator.Custom(self.llm), operator.Programmer(self.llm)
r = await other(problem)
return r["response"]  # <- unknown_key
"""),
    "key in an inner function": text("""
ask = operator.Custom(self.llm)
async def once():
    return (await ask(problem, "Solve."))["answer"]  # <- unknown_key
return await once()
"""),
    "key of a list": text("""
rs = [await self.custom(problem, "") for _ in range(3)]
return rs["response"]  # <- unknown_key
"""),
    "key in a loop": text("""
texts = []
for _ in range(3):
    r = await self.custom(problem, "")
    texts.append(r["solution"])  # <- unknown_key
return texts[0]
"""),
    "key of a text": text("""
r = await self.custom(problem, "")
answer = r["response"]
return answer["response"]  # <- unknown_key
"""),
    "key of the problem": text("return problem['question']  # <- unknown_key"),
    "key of the usage": text("return 'x', self.llm.get_usage_summary()['cost']  # <- unknown_key"),
    # The llm.
    "llm attribute": text("return await self.llm.answer_generate(problem)  # <- llm_attribute"),
    "usage not called": text(
        "return 'x', self.llm.get_usage_summary['total_cost']  # <- llm_attribute"
    ),
    "llm called": text("return await self.llm(problem)  # <- llm_called"),
    # Prompts.
    "prompt": text(
        "return (await self.custom(problem, prompt_custom.SOLVE))['response']  # <- unknown_prompt"
    ),
    "imported prompt": "from workspace.MATH.prompt import SOLVE  # <- unknown_prompt\n"
    + text("return (await self.custom(problem, SOLVE))['response']"),
    # Python.
    "syntax": text("return ('x'  # <- syntax"),
    "indentation": text("if problem:\nreturn 'x'  # <- syntax"),
    "return outside": "return 1  # <- syntax\n" + AFLOW,
    "break outside": text("break  # <- syntax\nreturn 'x'"),
}
BAD_CODE = {
    "no entry point": AFLOW.replace(
        "def __call__(self, problem: str):",
        "def __call__(self, problem: str):  # <- call_arguments",
    ),
    "unknown key of test": code("""
r = await self.test(problem, "", entry_point)
return r["response"]  # <- unknown_key
"""),
    "missing entry point": code(
        "return (await self.custom_code_generate(problem, instruction=''))['response']"
        "  # <- missing_parameter"
    ),
}
WHOLE = {
    "empty": ("", "no_workflow"),
    "prose": ("Here is my answer.", "syntax"),
    "another class": ("class Flow:\n    pass\n", "no_workflow"),
    "class in a function": ("def f():\n    class Workflow:\n        pass\n", "no_workflow"),
    "class in a branch": ("if 1:\n    class Workflow:\n        pass\n", "no_workflow"),
}
