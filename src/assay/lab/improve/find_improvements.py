"""Lists the improvements that the records of a run support, ranked.

`RULES` is the register; nothing is listed that no rule found evidence for. Adds no words.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from assay.judge.improvements import Improvement, ranked
from assay.lab.improve import result_rules, training_rules
from assay.lab.improve.run_evidence import RunEvidence, gather_evidence
from assay.lab.setup.learner import begun_from
from assay.runs.run_directory import RunDirectory
from assay.tasks.task import labs, task

RULES: Mapping[str, Callable[[RunEvidence], Iterator[Improvement]]] = {
    "keep_start": result_rules.keep_start,
    "take_best": result_rules.take_best,
    "stop_early": result_rules.stop_early,
    "look_at_dev": result_rules.look_at_dev,
    "load_strictly": training_rules.load_strictly,
    "same_picks": result_rules.same_picks,
    "fallback_scores": training_rules.fallback_scores,
    "standardised_twice": training_rules.standardised_twice,
    "kl_at_start": training_rules.kl_at_start,
    "health": training_rules.health,
    "tied_groups": training_rules.tied_groups,
    "nothing_changed": result_rules.nothing_changed,
    "kl_on_ties": training_rules.kl_on_ties,
    "kl_returns": training_rules.kl_returns,
    "flat_weights": training_rules.flat_weights,
    "more_items": result_rules.more_items,
    "break_ties": training_rules.break_ties,
    "freeze": training_rules.freeze,
}
"""By name. Each yields improvements for the stages, evaluations and data sets that it looks at; a
task has further ones (`BaseTask.rules`)."""


@dataclass(frozen=True, slots=True)
class Improvements:
    """What the records of a run say could be done better."""

    run: RunDirectory
    found: tuple[Improvement, ...]
    """Ranked, see `judge.improvements.ranked`."""
    looked_at: tuple[str, ...]
    """The stages and evaluations that recorded something."""


def find_improvements(run: RunDirectory) -> Improvements:
    """The improvements that the records of a run support. Raises what reading them raises."""
    evidence = gather_evidence(run)
    experiment = evidence.experiment
    source, _ = begun_from(experiment.model, run.root)
    own = labs(task(experiment.task, run.root), source)
    rules = [*RULES.values(), *(rule for lab in own for rule in lab.rules.values())]
    found = ranked(each for rule in rules for each in rule(evidence))
    names = (*evidence.stages, *(each.record.name for each in evidence.measured))
    return Improvements(run, tuple(found), names)
