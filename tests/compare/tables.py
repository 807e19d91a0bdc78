"""Tables of runs and of made-up arms, as tests ask for them."""

import json
from collections.abc import Mapping, Sequence

from assay.compare.arm import Arm, arm_of
from assay.compare.compare_names import ArmRequest, compare_named, compare_requests
from assay.compare.fairness import Terms
from assay.compare.table import ComparisonTable
from assay.data.results.foreign_result import ForeignAnswer, Result
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import write_listed

Scores = Mapping[tuple[str, int], float | None]


def runs_table(
    *runs: RunDirectory | ArmRequest,
    on: str | None = None,
    vary: Sequence[str] | None = None,
    allow: Sequence[str] = (),
) -> ComparisonTable:
    """Runs of a lab against the first; `vary` is what their experiment files declare."""
    requests = [run if isinstance(run, ArmRequest) else ArmRequest(run) for run in runs]
    for run in [request.run for request in requests if vary is not None]:
        lines = run.spec.read_text().splitlines(keepends=True)
        others = [line for line in lines if not line.startswith("vary =")]
        write_listed(run.path, run.spec, "".join([f"vary = {json.dumps(vary)}\n", *others]))
    return compare_requests(requests, on, Terms(allow=tuple(allow)))


def results_table(
    *sides: Result | Arm, control: str | None = None, allow: Sequence[str] = ()
) -> ComparisonTable:
    """Results of other tools, and arms, against the first or the one named."""
    arms = [arm_of(side) if isinstance(side, Result) else side for side in sides]
    return compare_named(["files"], lambda _: arms, control, Terms(allow=tuple(allow)))


def answers(scores: Scores, outputs: Mapping[tuple[str, int], str]) -> tuple[ForeignAnswer, ...]:
    """The answers of a result, by item and repeat."""
    return tuple(ForeignAnswer(*key, score, outputs.get(key)) for key, score in scores.items())
