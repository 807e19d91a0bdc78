"""Programs that are wrong, written by hand: `# <- CODE` ends each line that has a finding.

A line may have several, with commas; `WHOLE` are findings of no line.
"""

import re

from tests.labs.workflows.programs.good_programs import AFLOW, text

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
    "call is not async": "class Workflow:\n    def __init__(self, a, b, c):\n        self.a = a\n"
    "    def __call__(self, problem):  # <- not_async\n        return self.a\n",
    "call without problem": text("return 'x'").replace(
        "__call__(self, problem):", "__call__(self):  # <- call_arguments"
    ),
    # What is returned.
    "no return": text("r = await self.custom(problem, '')").replace(
        "problem):", "problem):  # <- no_return"
    ),
    "three values": text("return 'x', 0.0, 1  # <- return_shape"),
    "result returned": text(
        "r = await self.custom(problem, '')\nreturn r, 0.0  # <- result_returned"
    ),
    # Imports and names.
    "import os": "import os  # <- import_not_allowed\n" + AFLOW,
    "relative import": "from . import prompt  # <- import_not_allowed\n" + AFLOW,
    "eval": text("return str(eval(problem))  # <- forbidden_name"),
    "dunder import": text("return __import__('os').name  # <- dunder"),
    "undefined name": text("return answer  # <- undefined_name"),
    "class name without module": AFLOW.replace(
        "operator.Custom(self.llm)", "Custom(self.llm)  # <- undefined_name"
    ),
    # Operators and how they are made.
    "unknown operator": marked(
        "operator.Custom(self.llm)", "operator.Solver(self.llm)  # <- unknown_operator"
    ),
    "llm is never set": marked(
        "        self.llm = create_llm_instance(llm_config)\n",
        "",
        AFLOW.replace("Custom(self.llm)", "Custom(self.llm)  # <- unset_attribute"),
    ).replace('"], self.llm.get_usage_summary()["total_cost"]\n', '"]\n'),
    "never made": AFLOW.replace("        self.custom = operator.Custom(self.llm)\n", "").replace(
        'instruction="")', 'instruction="")  # <- not_instantiated'
    ),
    "attribute of an operator": text("return self.custom.name  # <- unknown_attribute"),
    # Await.
    "not awaited": text("r = self.custom(problem, '')  # <- not_awaited\nreturn r['response']"),
    "not awaited as an argument": text(
        "return (await self.custom(self.programmer(problem), ''))['response']  # <- not_awaited"
    ),
    "sleep not awaited": "import asyncio\n"
    + text("asyncio.sleep(1)  # <- not_awaited\nreturn 'x'"),
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
    "given twice": text(
        "r = await self.custom(problem, '', input=problem)  # <- repeated_parameter\n"
        "return r['response']"
    ),
    "too many": text(
        "return (await self.answer_generate(problem, 'x'))['answer']  # <- too_many_arguments"
    ),
    # Results.
    "unknown key": text("r = await self.custom(problem, '')\nreturn r['answer']  # <- unknown_key"),
    "key as attribute": text(
        "r = await self.custom(problem, '')\nreturn r.response  # <- unknown_key"
    ),
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
    # Python.
    "syntax": text("return ('x'  # <- syntax"),
}
BAD_CODE = {
    "no entry point": AFLOW.replace(
        "def __call__(self, problem: str):",
        "def __call__(self, problem: str):  # <- call_arguments",
    ),
}
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
