"""What a run's helper models cost: sums of its ledger, and means.

A cost that is not known is None, never 0; so is each sum that it is part of. Shows nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from assay.experiment.price_table import units
from assay.runs.cost_ledger import LedgerCall, LedgerUnusable, lost_calls, read_calls
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of


@dataclass(frozen=True, slots=True)
class CostLine:
    """The sums of some calls. Money is in units of the price's currency."""

    name: str
    calls: int
    """That were sent; scores count as one a batch."""
    remembered: int
    """Answers that were known from before."""
    failed: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    """Of what was counted; None where the price of a call is not known."""
    uncertain: float
    """That may have been charged besides, at most."""
    mean: float | None
    """Of a call that was sent."""
    seconds: float
    """Of a call that was sent, in the mean."""


@dataclass(frozen=True, slots=True)
class RunCosts:
    """The costs of one run."""

    run: RunDirectory
    lost: str
    """What the ledger lacks of what it held before: the sums are too low; "" for nothing."""
    total: CostLine | None
    """None where nothing was asked."""
    models: tuple[CostLine, ...]
    stages: tuple[CostLine, ...]
    operators: tuple[CostLine, ...]
    problems: tuple[CostLine, ...]
    """The dearest first."""
    per_call: float | None
    per_problem: float | None
    """Of one completion of a problem in a stage or an evaluation, in the mean."""
    per_step: float | None
    """Of a step of a stage, in the mean."""


def run_costs(run: RunDirectory) -> RunCosts:
    """The costs of a run. Raises LedgerUnusable, and what reading its files raises."""
    lost = lost_calls(run)
    try:
        calls = read_calls(run.path)
    except LedgerUnusable:
        if not lost:
            raise
        calls = []
    stages = tuple(experiment_of(run).stage)
    of_stages = [call for call in calls if call.stage]
    trained = [call for call in calls if call.stage in stages and call.step]
    problems = cost_lines(calls, lambda call: call.problem)
    return RunCosts(
        run=run,
        lost=lost,
        total=cost_line("", calls) if calls else None,
        models=cost_lines(calls, lambda call: call.model),
        stages=cost_lines(calls, lambda call: call.stage or "-"),
        operators=cost_lines(calls, lambda call: call.operator),
        problems=tuple(sorted(problems, key=lambda x: (x.cost is None, -(x.cost or 0.0)))),
        per_call=_mean(calls, sum(sent(call) for call in calls)),
        per_problem=_mean_of(of_stages, lambda call: call.problem and completion_of(call)),
        per_step=_mean_of(trained, lambda call: f"{call.stage} {call.step}"),
    )


def completion_of(call: LedgerCall) -> tuple[str, int, str, str]:
    """Names the completion that a call was for."""
    return call.stage, call.step, call.problem, call.completion


def sent(call: LedgerCall) -> bool:
    """Whether a call went to its model."""
    return call.status != "remembered"


def known(call: LedgerCall) -> bool:
    """Whether a call's cost is known, up to what is uncertain."""
    return call.cost is not None or (call.priced and call.kind == "answer")


def cost_lines(
    calls: Iterable[LedgerCall], name: Callable[[LedgerCall], str]
) -> tuple[CostLine, ...]:
    """A line for each name but "", in the order of their first calls."""
    groups: defaultdict[str, list[LedgerCall]] = defaultdict(list)
    for call in calls:
        groups[name(call)].append(call)
    return tuple(cost_line(each, group) for each, group in groups.items() if each)


def cost_line(name: str, calls: Sequence[LedgerCall]) -> CostLine:
    """The sums of some calls."""
    count = sum(map(sent, calls))
    return CostLine(
        name,
        count,
        len(calls) - count,
        sum(call.status == "failed" for call in calls),
        sum(call.prompt_tokens or 0 for call in calls if sent(call)),
        sum(call.completion_tokens or 0 for call in calls if sent(call)),
        cost_of(calls),
        units(sum(call.uncertain for call in calls)),
        _mean(calls, count),
        sum(call.seconds for call in calls) / count if count else 0.0,
    )


def cost_of(calls: Sequence[LedgerCall]) -> float | None:
    """What was counted; None where a cost is not known."""
    return units(sum(call.cost or 0 for call in calls)) if all(map(known, calls)) else None


def _mean(calls: Sequence[LedgerCall], count: int) -> float | None:
    cost = cost_of(calls)
    return None if cost is None or not count else cost / count


def _mean_of(calls: Sequence[LedgerCall], name: Callable[[LedgerCall], object]) -> float | None:
    """The mean cost of what `name` tells apart, calls that it gives no name left out."""
    named = [call for call in calls if name(call)]
    return _mean(named, len({name(call) for call in named}))
