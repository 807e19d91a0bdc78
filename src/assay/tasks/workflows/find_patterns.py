"""`find_patterns`: what a run's recorded programs say of patterns, rewards and choices.

Reads records and computes; words and pages are made in `page`.
"""

from dataclasses import dataclass

from assay.runs.run_directory import RunDirectory
from assay.tasks.workflows.operator_choice import OperatorChoice, operator_choice
from assay.tasks.workflows.recorded_programs import (
    PatternRequest,
    judged,
    recorded_programs,
    reward_bounds,
)
from assay.tasks.workflows.reward_patterns import RewardPatterns, reward_patterns


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of a run's programs."""

    run: str
    source: PatternRequest
    completions: int
    valid: int
    abstained: int
    prompts: int
    bounds: tuple[float, float]
    """The scale of the rewards."""
    rewards: RewardPatterns
    choice: OperatorChoice


def find_patterns(run: RunDirectory, request: PatternRequest) -> Patterns:
    """The patterns of the programs that a request names.

    Raises NothingRecorded, NotMeasured, InputError and DamagedRecord.
    """
    found = recorded_programs(run, request)
    programs = found.programs
    return Patterns(
        run=str(run),
        source=found.source,
        completions=len(programs),
        valid=sum(program.shape is not None for program in programs),
        abstained=len(programs) - sum(1 for _ in judged(programs)),
        prompts=len({program.prompt for program in programs}),
        bounds=reward_bounds(programs),
        rewards=reward_patterns(programs),
        choice=operator_choice(programs),
    )
