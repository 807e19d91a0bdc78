"""Operators and findings of programs as Markdown: `python -m tests.docs.workflow_tables`."""

from assay.labs.workflows.programs.operators import OPERATORS
from assay.labs.workflows.programs.validate import CODES


def operators() -> str:
    """A table of the operators: call, results, what it does, what the executor is asked."""
    lines = ["| operator | call | result | what it does |", "|---|---|---|---|"]
    for operator in OPERATORS.values():
        keys = ", ".join(f"`{key}: {kind}`" for key, kind in operator.returns.items())
        about = operator.about
        lines.append(f"| {operator.name} | `{operator.signature}` | {keys} | {about} |")
    return "\n".join(lines)


def codes() -> str:
    """A table of the codes of findings."""
    lines = ["| code | what is wrong |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in CODES.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(operators(), codes(), sep="\n\n")
