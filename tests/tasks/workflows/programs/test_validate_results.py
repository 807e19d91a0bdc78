"""Results are followed through statements: no wrong key is missed, no right one is found."""

import pytest

from assay.tasks.workflows.programs.validate import validate
from tests.tasks.workflows.programs.good_programs import text

CUSTOM = 'r = await self.custom(problem, "")\n'
MODULES = "import asyncio\nimport json\n\n"

WRONG = {
    "behind a function": f'{CUSTOM}\ndef f():\n    return "x"\nreturn f() + r["answer"]',
    "annotated": 'r: dict = await self.custom(problem, "")\nreturn r["answer"]',
    "second target": 'first = r = await self.custom(problem, "")\nreturn r["answer"]',
    "appended": f'{CUSTOM}rs = []\nrs.append(r)\nreturn rs[0]["answer"]',
    "appended in a loop": "rs = []\nfor _ in range(3):\n"
    '    rs.append(await self.custom(problem, ""))\n'
    'return rs[0]["answer"]',
    "appended to others": f"{CUSTOM}rs = [r]\nfor _ in range(3):\n"
    '    rs.append(r)\nreturn rs[0]["answer"]',
    "slice": f'{CUSTOM}rs = [r, r]\nreturn rs[:1][0]["answer"]',
    "unpacked list": f'{CUSTOM}rs = [r]\nreturn [*rs][0]["answer"]',
    "loop over a list": f'{CUSTOM}for each in [r]:\n    return each["answer"]\nreturn "x"',
    "list comprehension": f'{CUSTOM}return str([each["answer"] for each in [r]])',
    "set comprehension": f'{CUSTOM}return str({{each["answer"] for each in [r]}})',
    "dictionary comprehension": f'{CUSTOM}return str({{1: each["answer"] for each in [r]}})',
    "generator": f'{CUSTOM}return str(list(each["answer"] for each in [r]))',
    "comprehension's list": f'{CUSTOM}rs = [r for _ in range(3)]\nreturn rs[0]["answer"]',
    "lambda": f'{CUSTOM}return (lambda: r["answer"])()',
    "walrus": 'if (r := await self.custom(problem, "")):\n    return r["answer"]\nreturn "x"',
    "inline walrus": 'return (r := await self.custom(problem, ""))["response"] + r["answer"]',
    "condition": f'{CUSTOM}if r["answer"]:\n    return "x"\nreturn "y"',
    "one or the other": f'{CUSTOM}s = r if problem else await self.custom(problem, "x")\n'
    'return s["answer"]',
    "while": f'{CUSTOM}while r["answer"]:\n    return "x"\nreturn "y"',
    "for": f'{CUSTOM}for word in r["answer"]:\n    return word\nreturn "y"',
    "loop that returns": f'{CUSTOM}for word in problem:\n    return word\nreturn r["answer"]',
    "else of a loop": f"{CUSTOM}for word in problem:\n    pass\n"
    'else:\n    return r["answer"]\nreturn "x"',
    "match": f'{CUSTOM}match r["answer"]:\n    case _:\n        return "x"',
    "case": f'{CUSTOM}match problem:\n    case "x":\n        return r["answer"]\nreturn "x"',
    "after a match": f'{CUSTOM}match problem:\n    case "x":\n        pass\nreturn r["answer"]',
    "context": f'{CUSTOM}async with asyncio.timeout(float(r["answer"])):\n    pass\nreturn "x"',
    "after a context": f'async with asyncio.Semaphore(1):\n    {CUSTOM}return r["answer"]',
    "try": f'try:\n    {CUSTOM}    return r["answer"]\nexcept Exception:\n    return "x"',
    "else of a try": f"try:\n    {CUSTOM}except Exception:\n"
    '    return "x"\nelse:\n    return r["answer"]',
    "handler": f'{CUSTOM}try:\n    pass\nexcept Exception:\n    return r["answer"]\nreturn "x"',
    "finally": f'{CUSTOM}try:\n    pass\nfinally:\n    print(r["answer"])\nreturn "x"',
    "finally after return": f'{CUSTOM}try:\n    return "x"\nfinally:\n    print(r["answer"])',
    "after finally": f'{CUSTOM}try:\n    pass\nfinally:\n    pass\nreturn r["answer"]',
    "both ways of a try": f'try:\n    {CUSTOM}except Exception:\n    {CUSTOM}return r["answer"]',
    "both branches": f'if problem:\n    {CUSTOM}else:\n    r = await self.revise(problem, "", "")\n'
    'return r["answer"]',
    "the branch that goes on": "if problem:\n    r = await self.programmer(problem)\n"
    f'    return r["output"]\nelse:\n    {CUSTOM}return r["output"]',
    "task": 'task = asyncio.create_task(self.custom(problem, ""))\nreturn (await task)["answer"]',
    "future": 'task = asyncio.ensure_future(self.custom(problem, ""))\n'
    'return (await task)["answer"]',
    "waited for": 'r = await asyncio.wait_for(self.custom(problem, ""), 5)\nreturn r["answer"]',
    "pending": 'task = self.custom(problem, "")\nr = await task\nreturn r["answer"]',
    "pending list": 'tasks = [self.custom(problem, "")]\nrs = await asyncio.gather(*tasks)\n'
    'return rs[0]["answer"]',
    "gathered list": 'rs = await asyncio.gather(self.custom(problem, ""))\nreturn rs[0]["answer"]',
    "raise in a branch": f'{CUSTOM}if problem:\n    raise ValueError(r["answer"])\nreturn "x"',
    "keyword": f'{CUSTOM}return (await self.custom(input=r["answer"], instruction=""))["response"]',
    "f-string": f"{CUSTOM}return f\"it is {{r['answer']}}\"",
    "augmented": f'{CUSTOM}words = ""\nwords += r["answer"]\nreturn words',
    "assert": f'{CUSTOM}assert r["answer"]\nreturn "x"',
}
UNSURE = {
    "comprehension's variables": f"{CUSTOM}pairs = enumerate(json.loads(problem))\n"
    'return str([r["answer"] for n, r in pairs])',
    "rebound in a loop": f"{CUSTOM}for _ in range(2):\n    r = await self.programmer(problem)\n"
    'return r["output"]',
    "read before it is rebound": f'{CUSTOM}for _ in range(2):\n    print(r["output"])\n'
    '    r = await self.programmer(problem)\nreturn "x"',
    "rebound in while": f'{CUSTOM}while r["output"]:\n    r = await self.programmer(problem)\n'
    'return r["output"]',
    "loop variable": f'{CUSTOM}for r in json.loads(problem):\n    return r["answer"]\nreturn "x"',
    "after a loop variable": f'{CUSTOM}for r in json.loads(problem):\n    pass\nreturn r["answer"]',
    "unpacked loop variable": f"{CUSTOM}for n, r in enumerate(json.loads(problem)):\n"
    '    return r["answer"]\nreturn "x"',
    "appended before a break": f"{CUSTOM}rs = [r]\nfor _ in range(2):\n"
    '    rs.append(await self.programmer(problem))\n    break\nreturn rs[1]["output"]',
    "appended before continue": f"{CUSTOM}rs = [r]\nfor _ in range(2):\n"
    '    rs.append(await self.programmer(problem))\n    continue\nreturn rs[1]["output"]',
    "extended": f'{CUSTOM}rs = [r]\nrs.extend(json.loads(problem))\nreturn rs[1]["answer"]',
    "updated": f'{CUSTOM}r.update(answer="x")\nreturn r["answer"]',
    "appended unknown": f'{CUSTOM}rs = [r]\nrs.append(json.loads(problem))\nreturn rs[1]["answer"]',
    "unpacked unknown": f'{CUSTOM}rs = [r, *json.loads(problem)]\nreturn rs[1]["answer"]',
    "augmented": f'{CUSTOM}r |= {{"answer": "x"}}\nreturn r["answer"]',
    "tuple": f'{CUSTOM}r, n = {{"answer": "x"}}, 2\nreturn r["answer"]',
    "one of two branches": f'r = {{"answer": "x"}}\nif problem:\n'
    f'    {CUSTOM}return r.get("answer", "")',
    "branch without it": 'r = json.loads(problem)\nif r:\n    r = await self.custom(problem, "")\n'
    'return r["answer"]',
    "one of two operators": f"if problem:\n    {CUSTOM}else:\n"
    "    r = await self.programmer(problem)\n"
    'return r["output"]',
    "handler of a rebinding body": f"{CUSTOM}try:\n    r = await self.programmer(problem)\n"
    'except Exception:\n    return r["output"]\nreturn "x"',
    "handler of an appending body": f"{CUSTOM}rs = [r]\ntry:\n    rs.append(json.loads(problem))\n"
    'except Exception:\n    return rs[1]["answer"]\nreturn "x"',
    "the error's name": f"{CUSTOM}try:\n    pass\nexcept KeyError as r:\n"
    '    return r.answer\nreturn "x"',
    "behind a return": f'{CUSTOM}return "x"\nreturn r["answer"]',
    "behind a raise": f'{CUSTOM}raise ValueError\nreturn r["answer"]',
    "behind a break": f'{CUSTOM}while True:\n    break\n    print(r["answer"])\nreturn "x"',
    "behind try with finally": f'{CUSTOM}try:\n    return "x"\nfinally:\n'
    '    pass\nreturn r["answer"]',
    "with as": f'{CUSTOM}async with asyncio.timeout(1) as r:\n    return r.answer\nreturn "x"',
    "case binds": f'{CUSTOM}match json.loads(problem):\n    case r:\n        return r["answer"]',
    "case binds a rest": f"{CUSTOM}match json.loads(problem):\n"
    '    case [*r]:\n        return r["answer"]\n'
    'return "x"',
    "case rebinds": f"{CUSTOM}match problem:\n    case _:\n"
    '        r = json.loads(problem)\nreturn r["answer"]',
    "comprehension's variable": f'{CUSTOM}return str([r["answer"] for r in json.loads(problem)])',
    "lambda's parameter": f'{CUSTOM}return (lambda r: r["answer"])({{"answer": "x"}})',
    "inner function": f'{CUSTOM}\ndef r():\n    return "x"\nreturn r.answer or "x"',
    "deleted": f'{CUSTOM}del r\nr = json.loads(problem)\nreturn r["answer"]',
    "gathered from a list": "words = problem\n"
    "a, b = await asyncio.gather(*[self.custom(problem, w) for w in words])\n"
    'return a["answer"]',
    "gathered, more names": "a, *b = await asyncio.gather(self.custom(problem, problem))\n"
    'return b[0]["answer"]',
    "shuffled in a list": f'{CUSTOM}rs = [r, {{"answer": "x"}}]\nreturn rs[1]["answer"]',
    "key that is no text": f"{CUSTOM}return r[problem]",
    "dictionary's method": f"{CUSTOM}return str(r.keys())",
    "list's method": f"{CUSTOM}rs = [r]\nreturn str(rs.count(r))",
    "text's method": 'r = await self.custom(problem, "")\nreturn r["response"].strip()',
}


def keys(body: str) -> list[tuple[str, str]]:
    findings = validate(text(body, before=MODULES))
    assert {each.code for each in findings} <= {"unknown_key"}, findings
    return [(each.problem, each.hint) for each in findings]


@pytest.mark.parametrize("name", WRONG)
def test_a_key_that_no_path_makes_right_is_found(name: str) -> None:
    assert len(keys(WRONG[name])) == 1


@pytest.mark.parametrize("name", UNSURE)
def test_a_key_that_some_path_makes_right_is_not_found(name: str) -> None:
    assert keys(UNSURE[name]) == []


def test_a_finding_names_the_operator_and_its_keys() -> None:
    assert keys(f'{CUSTOM}return r["answer"]') == [
        ("Custom has no key 'answer'", "known: response")
    ]
    ((problem, hint),) = keys(f"{CUSTOM}return r.response")
    assert (problem, hint) == ("Custom has no .response", "write ['response']")
    ((problem, hint),) = keys(f"{CUSTOM}return r.reply")
    assert problem == "Custom has no .reply"
    assert "response" in hint
    ((problem, hint),) = keys(f'{CUSTOM}rs = [r]\nreturn rs["response"]')
    assert hint == "it is no result of an operator"
    ((_, hint),) = keys('r = await self.answer_generate(problem)\nreturn r["answer"]["thought"]')
    assert hint == "it is no result of an operator"


def test_both_operators_are_named_where_either_may_be_meant() -> None:
    ((problem, _),) = keys(WRONG["both branches"])
    assert problem == "Custom, Revise has no key 'answer'"
