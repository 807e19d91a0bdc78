"""What the policy is asked: how programs are written, with which operators, and the problem.

The problem comes last, so that all problems of a type share the rest. Nothing is measured here.
"""

from collections.abc import Mapping, Sequence

from assay.errors import InputError, nearest
from assay.tasks.workflows.programs.operators import OPERATORS, Operator

PROBLEM_TYPES = ("math", "code", "qa")
INSTRUCTION = (
    "Write a Python class Workflow that solves the problem. It calls operators, which ask a "
    "language model. Operators and the keys of their results (dicts):"
)
RULES = (
    "Make each operator in __init__, await each call, read results by key, and return the answer "
    "as a text on every path. Use no operator that is not listed, and nothing of the llm."
)
TEMPLATE = """\
class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, {parameters}):
        ...
        return answer
"""
PARAMETERS = {"math": "problem", "qa": "problem", "code": "problem, entry_point"}
"""What `__call__` takes, by problem type."""


def policy_prompt(
    problem_text: str,
    problem_type: str,
    entry_point: str,
    examples: Sequence[str] = (),
    *,
    operators: Mapping[str, Operator] = OPERATORS,
) -> str:
    """The one user message that asks for a program.

    `examples` are whole programs, shown as they are. Raises InputError for an unknown problem type,
    and for a code problem without an entry point.
    """
    if problem_type not in PROBLEM_TYPES:
        fix = nearest(problem_type, PROBLEM_TYPES)
        raise InputError(f"unknown type {problem_type!r}", field="problem_type", fix=fix)
    if problem_type == "code" and not entry_point:
        fix = "the name of the function that is asked for"
        raise InputError("a code problem needs an entry point", field="entry_point", fix=fix)
    named = f"\n\nEntry point: {entry_point}" if entry_point else ""
    shown = [f"Example:\n{fenced(program)}" for program in examples]
    fixed = prefix(problem_type, operators)
    return "\n\n".join((fixed, *shown, f"Problem ({problem_type}):\n{problem_text}{named}"))


def prefix(problem_type: str, operators: Mapping[str, Operator] = OPERATORS) -> str:
    """What the prompts of all problems of a type begin with."""
    listed = "\n".join(map(line_of, operators.values()))
    template = TEMPLATE.replace("{parameters}", PARAMETERS[problem_type])
    return f"{INSTRUCTION}\n{listed}\n\n{fenced(template)}\n{RULES}"


def line_of(operator: Operator) -> str:
    """An operator as the prompt lists it: `ScEnsemble(solutions: list, problem) -> response`."""
    shown = (
        each.name
        + (": list" if each.kind == "texts" else "")
        + ("" if each.required else f"={each.default!r}")
        for each in operator.parameters
    )
    keys = ", ".join(
        key + (": bool" if kind == "bool" else "") for key, kind in operator.returns.items()
    )
    return f"{operator.name}({', '.join(shown)}) -> {keys}"


def fenced(program: str) -> str:
    """A program as a completion holds it."""
    return f"```python\n{program.strip()}\n```"
