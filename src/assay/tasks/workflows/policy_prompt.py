"""What a policy is asked: the operators, the form of a program, and the problem at the end, so that
all prompts begin alike."""

from collections.abc import Mapping, Sequence

from assay.tasks.workflows.operators import OPERATORS, Operator

TEMPLATE = """class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, {parameters}):
"""


def policy_prompt(
    problem: str,
    problem_type: str,
    entry_point: str = "",
    examples: Sequence[str] = (),
    operators: Mapping[str, Operator] = OPERATORS,
) -> str:
    """The user message of a problem: instruction, signatures, template, examples, the problem."""
    signatures = "\n".join(f"- {each.name}: self.{each.signature}" for each in operators.values())
    parameters = "problem, entry_point" if entry_point else "problem"
    shown = "".join(f"\nAn example:\n```python\n{each.strip()}\n```\n" for each in examples)
    function = f"\nFunction: {entry_point}" if entry_point else ""
    return (
        "Write a Python class Workflow that solves the problem with these operators:\n"
        f"{signatures}\n\nIt begins so, awaits its operators and returns (answer, cost):\n"
        f"```python\n{TEMPLATE.format(parameters=parameters)}```\n{shown}\n"
        f"Type: {problem_type}\nProblem: {problem}{function}"
    )
