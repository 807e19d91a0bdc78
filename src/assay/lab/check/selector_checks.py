"""What `assay check` says of a selector of demonstrations: its size, what each stage trains of it,
dropout that makes likelihoods unlike those of sampling, and demonstrations without a word.

Trains nothing.
"""

from assay.experiment.stage_tables import GrpoStage
from assay.judge.findings import Finding
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.setup.selector_learner import SelectorLearner, adapt
from assay.models.selectors.kinds import make_selector
from assay.tasks.demos.demonstrations import set_of


def learner_of(subject: Subject) -> SelectorLearner:
    """The selector that is checked."""
    learner = subject.session.learner
    assert isinstance(learner, SelectorLearner)
    return learner


def selector_weights(subject: Subject) -> Seen:
    """How many weights there are, and which share each stage trains."""
    learner = learner_of(subject)
    module = make_selector(learner.kind, learner.sizes, 0)
    yield Number("model", "weights", sum(p.numel() for p in module.parameters()))
    for name, stage in subject.session.experiment.stage.items():
        share = adapt(module, learner.kind, stage).share
        yield Number(f"stage.{name}", "trained_share", share)


def dropout_in_ratios(subject: Subject) -> Seen:
    """A stage that compares likelihoods under dropout with those of sampling, which has none."""
    learner = learner_of(subject)
    for name, stage in subject.session.experiment.stage.items():
        if isinstance(stage, GrpoStage) and stage.dropout and learner.sizes.dropout:
            yield Finding(
                "warning",
                f"stage.{name}: its likelihoods are computed with dropout, those of sampling "
                "without: the first ratio is not 1, and KL does not begin at 0",
                f"a dropout of {learner.sizes.dropout:g}",
                "leave it out of the stage, unless a report is repeated",
            )


def demonstrations_without_words(subject: Subject) -> Seen:
    """Demonstration sets that are larger than a Lever-LM's vocabulary."""
    learner = learner_of(subject)
    if learner.kind != "lever":
        return
    for name, data in subject.session.sets.items():
        count = max((len(set_of(row).demonstrations) for row in data.rows), default=0)
        if count > learner.sizes.vocabulary:
            yield Finding(
                "error",
                f"data.{name}: demonstrations that the Lever-LM has no words for",
                f"{count:,} demonstrations, words for {learner.sizes.vocabulary:,}",
                f"set selector.vocabulary = {count}",
            )
