"""Keys of results: what no path could make right is found, what one path may is not."""

import pytest

from assay.labs.workflows.programs.validate import validate
from tests.labs.workflows.programs.good_programs import text

CUSTOM = 'r = await self.custom(problem, "")\n'
MODULES = "import asyncio\nimport json\n\n"
WRONG = {
    "a variable": f'{CUSTOM}return r["answer"]',
    "at once": 'return (await self.custom(problem, ""))["answer"]',
    "by get": f'{CUSTOM}return r.get("answer")',
    "as an attribute": f"{CUSTOM}return r.response",
    "in a branch below": f'{CUSTOM}if problem:\n    return r["answer"]\nreturn "x"',
    "of two operators": f'{CUSTOM}print(r["answer"])\nr = await self.revise(problem, "", "")\n'
    'return r["solution"]',
    "behind a guard": f'{CUSTOM}if problem:\n    return "x"\nreturn r["answer"]',
}
UNSURE = {
    "rebound": f'{CUSTOM}r = json.loads(problem)\nreturn r["answer"]',
    "its own text": f'{CUSTOM}r = r["response"]\nreturn r',
    "loop variable": f'{CUSTOM}for r in json.loads(problem):\n    return r["answer"]\nreturn "x"',
    "updated": f'{CUSTOM}r.update(answer="x")\nreturn r["answer"]',
    "set": f'{CUSTOM}r["answer"] = "x"\nreturn r["answer"]',
    "one of two branches": f"if problem:\n    {CUSTOM}else:\n"
    '    r = await self.programmer(problem)\nreturn r["output"]',
    "another branch": 'answer = (await self.programmer(problem))["output"]\nif answer:\n'
    f'    return answer\nelse:\n    {CUSTOM}return r.get("response") or r["response"]',
    "a branch that may not be taken": f"if problem:\n    {CUSTOM}else:\n    r2 = 1\n"
    'return problem or r["output"]',
    "try": f'try:\n    return r["output"]\nexcept Exception:\n    {CUSTOM}    return "x"',
    "comprehension's variable": f'{CUSTOM}return str([r["answer"] for r in json.loads(problem)])',
    "inner function": f'{CUSTOM}\ndef r():\n    return "x"\nreturn r.answer or "x"',
    "key that is no text": f"{CUSTOM}return r[problem]",
    "dictionary's method": f"{CUSTOM}return str(r.keys())",
}


def keys(body: str, after: str = "") -> list[str]:
    findings = validate(text(body, before=MODULES, after=after))
    assert {each.code for each in findings} <= {"unknown_key"}, findings
    return [each.problem for each in findings]


@pytest.mark.parametrize("name", WRONG)
def test_a_key_that_no_path_makes_right_is_found(name: str) -> None:
    assert len(keys(WRONG[name])) == 1


@pytest.mark.parametrize("name", UNSURE)
def test_a_key_that_some_path_makes_right_is_not_found(name: str) -> None:
    assert keys(UNSURE[name]) == []


def test_a_parameter_is_not_taken_for_a_variable_of_another_function() -> None:
    more = "\n    async def more(self, r):\n        return r['answer']\n"
    assert keys(f"{CUSTOM}return await self.more(r['response'])", more) == []


def test_a_finding_names_the_operators() -> None:
    assert keys(WRONG["a variable"]) == ["Custom has no key 'answer'"]
    assert keys(WRONG["as an attribute"]) == ["Custom has no .response"]
    assert keys(WRONG["of two operators"]) == ["Custom, Revise has no key 'answer'"]
