"""The checks of `assay check` that demonstrations need: of their pools, of the images that prompts
will show, and of a selector's size, stages and vocabulary.

A run whose queries all pick from one small pool compares nothing: in a published one the pool was
the first rows of the training set, and selectors of different weights could not differ. Rows
without pools are no concern of these checks. Images are decoded, an even share of them where there
are many; no model is run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from assay.data.message_parts import images_in, picture_of
from assay.data.row import ImagePart, Message, Row
from assay.errors import Finding, InputError
from assay.experiment.stage_tables import GrpoStage
from assay.lab.check.subject import SHOWN, Number, Seen, Subject, share_of, some
from assay.lab.data.prepare import find_part
from assay.lab.models.helper_models import in_process
from assay.lab.models.language_learner import model_folder
from assay.labs.demos.demonstrations import DEMONSTRATIONS, FROZEN, POOL, Query, set_of
from assay.labs.demos.modules import make_selector
from assay.labs.demos.pools import excluded_of, right_answers
from assay.labs.demos.selection_file import read_selection_file
from assay.labs.demos.selector_learner import SelectorLearner, adapt
from assay.labs.demos.stored import (
    allowed,
    health_findings,
    selections_of,
    stored_file,
    stored_health,
)
from assay.models.vision_language import is_vision_language

FEWEST = 4
"""Queries from which on it is no chance that all have one pool."""
COUNTED = 200
"""Queries of which it is counted whether their pools hold a right answer."""
LEAST_ANSWERED = 0.2
"""A smaller share of pools with a right answer is worth a warning."""
MOST_DECODED = 256
"""Images that are tried; one of a photograph's size takes about 10 ms."""


def candidate_pools(subject: Subject) -> Seen:
    """The pools of every data set and evaluation that has some."""
    for place, rows in places_of(subject).items():
        # A learner of somebody's own may have pools of another kind.
        if picking := [row for row in rows if POOL in row.extra and DEMONSTRATIONS in row.extra]:
            yield from pools_at(place, picking)


def places_of(subject: Subject) -> Mapping[str, Sequence[Row]]:
    """The rows of each data set and evaluation."""
    session = subject.session
    places: dict[str, Sequence[Row]] = {
        f"data.{name}": made.rows for name, made in session.sets.items()
    }
    return places | {f"evaluate.{name}": made.items for name, made in session.evaluations.items()}


def pools_at(place: str, rows: Sequence[Row]) -> Seen:
    """The pools of some rows."""
    different = {frozenset(row.extra[POOL]) for row in rows}
    smallest = min(len(row.extra[POOL]) for row in rows)
    yield Number(place, "pool_demonstrations", smallest)
    yield Number(place, "different_pools", len(different))

    def fault(problem: str, ids: Sequence[str], fix: str) -> Iterator[Finding]:
        if ids:
            evidence = f"{share_of(len(ids), len(rows))}: {some(ids)}"
            yield Finding("error", f"{place}: {problem}", evidence, fix)

    problem = "a pool names a demonstration that there is not"
    fix = "number demonstrations by their places in the whole set, from 0"
    numbers = [range(len(set_of(row).demonstrations)) for row in rows]
    outside = [
        row.id
        for row, places in zip(rows, numbers, strict=True)
        if not all(type(number) is int and number in places for number in row.extra[POOL])
    ]
    yield from fault(problem, outside, fix)
    if outside:
        return
    # Beside the query itself, which is in no pool, there may be no other demonstration.
    if len(different) == 1 and len(rows) >= FEWEST and smallest < len(numbers[0]) - 1:
        fix = "give each query a pool of its own: sampler, pool and pool_seed of the options"
        yield from fault("all queries pick from the same pool", [row.id for row in rows], fix)
    # Whoever may pick itself has its answer copied by the frozen model.
    own = [
        row.id
        for row in rows
        if excluded_of(set_of(row), [Query(row.id, row.prompt[-1], ())])[0] & {*row.extra[POOL]}
    ]
    fix = "leave the query, and what asks the same, out of its pool"
    yield from fault("a query is in its own pool", own, fix)
    counted = rows[:COUNTED]
    answered = sum(bool(right_answers(row)) for row in counted)
    yield Number(place, "pools_with_a_right_answer", answered / len(counted))
    if answered < LEAST_ANSWERED * len(counted):
        yield Finding(
            "warning",
            f"{place}: few pools hold a demonstration with a right answer",
            share_of(answered, len(counted)),
            "take larger pools, or measure the arm selector:oracle to see what there is to win",
        )


def shown_images(subject: Subject) -> Seen:
    """Images for a model of text, and the first few images that cannot be read."""
    session = subject.session
    spec = session.experiment.helpers.get(FROZEN)
    if spec is None or not in_process(spec):
        # Behind an endpoint the server decodes them.
        return
    images = [*{part.sha256: part for part in images_in(shown_messages(subject))}.values()]
    if not images:
        return
    if not is_vision_language(model_folder(spec.source, session.run.root, images=True)):
        yield Finding(
            "error",
            f"model.{FROZEN} reads text alone",
            f"its prompts show {len(images)} images, the first at {where(images[0])}",
            "name a model that reads images (hf:, path: or openai:), or questions without images",
        )
        return
    yield from unreadable_images(images)


def shown_messages(subject: Subject) -> Iterator[Message]:
    """The messages of every query, and of every demonstration that some query may pick."""
    rows = [row for made in places_of(subject).values() for row in made]
    picking = [row for row in rows if DEMONSTRATIONS in row.extra]
    for row in picking:
        yield from row.prompt
    for row in {row.extra[DEMONSTRATIONS]: row for row in picking}.values():
        yield from (each.question for each in set_of(row).demonstrations)


def unreadable_images(images: Sequence[ImagePart]) -> Iterator[Finding]:
    """The first few images that cannot be decoded, of an even share."""
    count = 0
    for part in images[:: max(1, len(images) // MOST_DECODED)]:
        try:
            picture_of(part)
        except InputError as error:
            count += 1
            yield Finding("error", error.problem, where(part), error.fix or "restore it")
        if count == SHOWN:
            return


def where(part: ImagePart) -> str:
    """File, line and field of an image."""
    file, line, field = part.origin
    return f"{file}:{line}: {field}"


def selector_checks(subject: Subject) -> Seen:
    """A selector's weights and the share of them that each stage trains, dropout in ratios, and
    words for all demonstrations."""
    learner, experiment = subject.session.learner, subject.session.experiment
    if not isinstance(learner, SelectorLearner):
        return
    module = make_selector(learner.kind, learner.sizes, 0)
    yield Number("model", "weights", sum(p.numel() for p in module.parameters()))
    for name, stage in experiment.stage.items():
        share = adapt(module, learner.kind, stage).share
        yield Number(f"stage.{name}", "trained_share", share)
        if isinstance(stage, GrpoStage) and stage.dropout and learner.sizes.dropout:
            yield Finding(
                "warning",
                f"stage.{name}: its likelihoods are computed with dropout, those of sampling "
                "without: the first ratio is not 1, and KL does not begin at 0",
                f"a dropout of {learner.sizes.dropout:g}",
                "leave it out of the stage, unless a report is repeated",
            )
    for name, data in subject.session.sets.items() if learner.kind == "lever" else ():
        count = max((len(set_of(row).demonstrations) for row in data.rows), default=0)
        if count > learner.sizes.vocabulary:
            yield Finding(
                "error",
                f"data.{name}: demonstrations that the Lever-LM has no words for",
                f"{count:,} demonstrations, words for {learner.sizes.vocabulary:,}",
                f"set selector.vocabulary = {count}",
            )


def stored_groups(subject: Subject) -> Seen:
    """Shares of positives and of groups without signal, of each table that a data set takes."""
    session = subject.session
    experiment = session.experiment
    for data in experiment.data.values():
        if (name := selections_of(data.source)) is None:
            continue
        spec, place = experiment.selections[name], f"selections.{name}"
        selections = read_selection_file(stored_file(experiment, name, session.run.root))
        health = stored_health(selections, spec, find_part(session.sets, spec.data))
        yield from (Number(place, key, value) for key, value in health.numbers().items())
        yield from health_findings(health, place, allowed(selections, spec))


CHECKS: Mapping[str, Callable[[Subject], Seen]] = {
    "stored selections": stored_groups,
    "pools": candidate_pools,
    "images": shown_images,
    "selector": selector_checks,
}
