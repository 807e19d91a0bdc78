"""Checks dpo stages: which pairs their rows give, how many groups give none, and the longest pair.

Pairs are made as the stage itself would make them. Nothing is trained.
"""

from dataclasses import dataclass

from assay.errors import Finding, InputError
from assay.experiment.stage_tables import DpoStage
from assay.lab.check.subject import Number, Seen, Subject, share_of
from assay.lab.setup.stage_methods import build_dpo
from assay.train.dpo import Dpo
from assay.train.pair_choice import Pair

FEW = 0.5
"""A smaller share of groups that give a pair is a warning."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a dpo stage has no pairs."""

    error: InputError


def pairs_of(subject: Subject, stage: DpoStage) -> Dpo | Unusable:
    """The method of a dpo stage, made once for a subject; or what is wrong with its rows."""
    if id(stage) not in subject.pairs:
        try:
            subject.pairs[id(stage)] = build_dpo(stage, subject.session.stage_input(stage))
        except InputError as error:
            subject.pairs[id(stage)] = Unusable(error)
    return subject.pairs[id(stage)]


def preference_pairs(subject: Subject) -> Seen:
    """The pairs of every dpo stage; an error where there is none."""
    for name, stage in subject.session.experiment.stage.items():
        if not isinstance(stage, DpoStage):
            continue
        place, found = f"stage.{name}", pairs_of(subject, stage)
        if isinstance(found, Unusable):
            fix = found.error.fix or "give its rows candidates with scores that differ"
            yield Finding("error", f"{place}: {found.error.problem}", "", fix)
            continue
        yield from sizes(subject, place, stage, found)
        yield from usefulness(place, found)


def sizes(subject: Subject, place: str, stage: DpoStage, found: Dpo) -> Seen:
    """How many pairs there are, and the longest completion against what the model reads."""
    learner = subject.session.learner
    size = learner.encoder(stage).size
    turns = [turn for p in found.pairs for side in (p.chosen, p.rejected) for turn in side.turns]
    longest = max(size(turn.context) + len(turn.actions) for turn in turns)
    yield Number(place, "pairs", len(found.pairs))
    yield Number(place, "groups with pairs", found.telling)
    yield Number(place, "longest candidate, tokens", longest)
    if learner.positions is not None and longest > learner.positions:
        yield Finding(
            "error",
            f"{place}: a candidate with its prompt is longer than the model reads",
            f"{longest:,} of {learner.positions:,} tokens",
            "leave such rows out: max_prompt_tokens of the data set, or where",
        )


def usefulness(place: str, found: Dpo) -> Seen:
    """The gap of the scores; groups and pairs that teach nothing."""
    yield Number(place, "score gap, mean", sum(p.gap for p in found.pairs) / len(found.pairs))
    silent = found.groups - found.telling
    if silent:
        yield Finding(
            "warning" if found.telling < FEW * found.groups else "note",
            f"{place}: groups whose scores do not differ give no pair",
            share_of(silent, found.groups),
            "nothing, or more candidates of each, or a finer reward",
        )
    if alike := sum(says_the_same(pair) for pair in found.pairs):
        yield Finding(
            "warning",
            f"{place}: pairs of one completion with two scores teach nothing",
            share_of(alike, len(found.pairs)),
            "judge each completion more often, or leave such groups out",
        )


def says_the_same(pair: Pair) -> bool:
    """Whether both completions of a pair are one."""
    chosen, rejected = ([turn.actions for turn in e.turns] for e in (pair.chosen, pair.rejected))
    return chosen == rejected
