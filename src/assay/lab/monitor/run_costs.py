"""What a run's helper models cost: sums of its ledger, means, and a forecast of the whole run.

A cost that is not known is None, never 0; so is each sum that it is part of. Shows nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from assay.experiment.price_table import units
from assay.judge.trends import FORETELLING, Forecast, forecast_total
from assay.lab.monitor.stage_health import planned_steps
from assay.runs.cost_ledger import LedgerCall, LedgerUnusable, lost_calls, read_calls
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.runs.status import read_status


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
class CostsAhead:
    """What the run is going to cost."""

    stage: str = ""
    """The last stage that recorded a step; "" where none has."""
    recorded: int = 0
    """Steps of it that are recorded."""
    planned: int | None = None
    forecast: Forecast | None = None
    """Of the whole run's cost at the end of that stage."""
    missing: tuple[str, ...] = ()
    """Stages and evaluations that it leaves out, because they have not begun."""


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
    steps: tuple[CostLine, ...]
    """Of stages and of evaluations of checkpoints, in the order in which they began."""
    per_call: float | None
    per_problem: float | None
    """Of one completion of a problem in a stage or an evaluation, in the mean."""
    per_step: float | None
    """Of a step of a stage, in the mean."""
    ahead: CostsAhead | None
    """None for a run that has finished."""


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
    asked = [call for call in calls if call.stage]
    trained = [call for call in calls if call.stage in stages and call.step]
    return RunCosts(
        run=run,
        lost=lost,
        total=cost_line("", calls) if calls else None,
        models=cost_lines(calls, lambda call: call.model),
        stages=cost_lines(calls, lambda call: call.stage or "-"),
        operators=cost_lines(calls, lambda call: call.operator),
        problems=tuple(
            sorted(
                cost_lines(calls, lambda call: call.problem),
                key=lambda line: (line.cost is None, -(line.cost or 0.0)),
            )
        ),
        steps=cost_lines(calls, lambda call: f"{call.stage or '-'} {call.step}"),
        per_call=_mean(calls, sum(sent(call) for call in calls)),
        per_problem=_mean_of(asked, lambda call: call.problem and completion_of(call)),
        per_step=_mean_of(trained, lambda call: f"{call.stage} {call.step}"),
        ahead=_ahead(run, calls),
    )


def completion_of(call: LedgerCall) -> tuple[str, int, str, str]:
    """Names the completion that a call was for."""
    return call.stage, call.step, call.problem, call.completion


def sent(call: LedgerCall) -> bool:
    """Whether a call went to its model."""
    return call.status != "remembered"


def _ahead(run: RunDirectory, calls: Sequence[LedgerCall]) -> CostsAhead | None:
    status, history = read_status(run.path).status, History(run)
    if status == "finished":
        return None
    begun = {call.stage for call in calls} | history.metrics.keys()
    planned_for = (*history.experiment.stage, *history.experiment.evaluate)
    missing = tuple(name for name in planned_for if name not in begun)
    stage = history.last_stage
    if stage is None:
        return CostsAhead(missing=missing)
    steps = [line["step"] for line in history.lines(stage)]
    planned = planned_steps(history, stage)
    forecast = _forecast(calls, stage, steps, planned, live=status == "running")
    return CostsAhead(stage, len(steps), planned, forecast, missing)


def _forecast(
    calls: Sequence[LedgerCall],
    stage: str,
    steps: Sequence[int],
    planned: int | None,
    live: bool = True,
) -> Forecast | None:
    """None for fewer than FORETELLING steps, without a plan, and where a cost is not known.

    What a step cost is what its last try did; a try that a kill ended is spent, and not to come
    again. Of a `live` run's step under way, only what it has cost beyond its forecast comes on top,
    because the steps to come hold it. Nothing is forecast below what is spent.
    """
    if planned is None or len(steps) < FORETELLING or not all(map(known, calls)):
        return None
    tried = _last_tries(calls, stage)
    costs = [units(tried[step]) for step in steps]
    spent = units(sum(call.most for call in calls))
    own = [call for call in calls if call.stage == stage]
    last = max((call.opening for call in own), default=0)
    under_way = {c.step for c in own if c.step > steps[-1] and c.opening == last}
    begun = [units(tried[step]) for step in under_way] if live else []
    following = forecast_total(costs, 1, planned)
    expected = following.value - sum(costs) if following else 0.0
    beyond = sum(max(cost - expected, 0.0) for cost in begun)
    before = spent - sum(costs) - sum(begun) + beyond
    found = forecast_total(costs, max(planned - steps[-1], 0), planned, before)
    if found is None:
        return None
    low, high = max(found.interval.low, spent), max(found.interval.high, spent)
    interval = replace(found.interval, low=low, high=high)
    return replace(found, value=max(found.value, spent), interval=interval)


def _last_tries(calls: Sequence[LedgerCall], stage: str) -> Counter[int]:
    """What the last try of each step of a stage cost at most."""
    last = {
        c.step: c.opening for c in sorted(calls, key=lambda call: call.opening) if c.stage == stage
    }
    each: Counter[int] = Counter()
    for call in calls:
        if call.stage == stage and call.opening == last[call.step]:
            each[call.step] += call.most
    return each


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
    return tuple(cost_line(each, found) for each, found in groups.items() if each)


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
