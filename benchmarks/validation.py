"""How many workflow programs the validator checks in a second, in one thread.

    python -m benchmarks.validation

Programs are generated ones of every strategy, each right and spoiled in one place, and one of 1 670
characters, somewhat longer than AFlow's published programs (median 1 494). The result lies in
`benchmarks/results/validation`.
"""

import random
import statistics
import time
from collections.abc import Sequence

from assay.labs.workflows.programs.validate import validate
from assay.tasks.user_code import load_file
from benchmarks.driver import ROOT
from benchmarks.results import machine, save_result
from benchmarks.worker import Record

WARM_UP = load_file("experiments/workflows/warm_up.py", ROOT).module
ROUNDS, SEEDS = 7, 4
WANTED = 500.0
PUBLISHED = '''\
from typing import Literal
import workspace.MBPP.workflows.template.operator as operator
import workspace.MBPP.workflows.round_1.prompt as prompt_custom
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
        self.custom_code_generate = operator.CustomCodeGenerate(self.llm)
        self.test = operator.Test(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)

    async def __call__(self, problem: str, entry_point: str):
        """
        Writes three solutions, tests the most consistent one and mends it once.
        """
        solutions = []
        for _ in range(3):
            solution = await self.custom_code_generate(
                problem=problem, entry_point=entry_point, instruction="Write the function."
            )
            solutions.append(solution["response"])
        best = await self.sc_ensemble(solutions=solutions, problem=problem)
        tested = await self.test(
            problem=problem, solution=best["response"], entry_point=entry_point
        )
        if tested["result"]:
            return tested["solution"], self.llm.get_usage_summary()["total_cost"]
        fixed = await self.custom(
            input=f"Problem: {problem}\\nSolution: {tested['solution']}", instruction="Mend it."
        )
        return fixed["response"], self.llm.get_usage_summary()["total_cost"]
'''


def programs() -> dict[str, list[tuple[str, bool]]]:
    """The sources of each cell, and whether they are for code problems."""
    right = [
        (WARM_UP.draw_one(name, kind, random.Random(seed))[0].source, kind == "code")
        for kind, names in WARM_UP.STRATEGIES.items()
        for name in names
        for seed in range(SEEDS)
    ]
    spoiled = [(source.replace("await ", "", 1), is_code) for source, is_code in right]
    return {"right": right, "spoiled": spoiled, "published": [(PUBLISHED, True)] * 100}


def rate(sources: Sequence[tuple[str, bool]]) -> float:
    """Validations per second of CPU."""
    start = time.process_time()
    for source, is_code in sources:
        validate(source, code_problem=is_code)
    return len(sources) / (time.process_time() - start)


def measure() -> Record:
    """The median rate of each cell over the rounds, which take turns."""
    cells = programs()
    assert not any(validate(source, code_problem=is_code) for source, is_code in cells["right"])
    assert all(validate(source, code_problem=is_code) for source, is_code in cells["spoiled"])
    assert not validate(PUBLISHED, code_problem=True)
    before = machine()
    rounds = [{name: rate(sources) for name, sources in cells.items()} for _ in range(ROUNDS)]
    rates = {name: statistics.median(each[name] for each in rounds) for name in cells}
    lengths = {name: statistics.mean(len(source) for source, _ in cells[name]) for name in cells}
    return {
        "per_second": rates,
        "characters": lengths,
        "rounds": rounds,
        "wanted_per_second": WANTED,
        "machine": before,
    }


if __name__ == "__main__":
    result = measure()
    for name, value in result["per_second"].items():
        print(f"{name}: {value:.0f} validations per second (wanted: {WANTED:.0f})")
    print(save_result("validation", "validation", result))
