"""Do training and evaluation write conversations alike, and do gold answers survive as tokens?"""

from assay.data.encoding import Codec
from assay.data.renderings.rendering import first_difference
from assay.experiment.stage_tables import StageSpec
from assay.judge.findings import Finding
from assay.lab.check.rendering_mismatch import (
    Parting,
    allowed,
    compare,
    last_of,
    measured,
    names,
    parting,
    spread,
    starts,
)
from assay.lab.check.subject import Gold, Seen, Subject, reading, share_of, some
from assay.lab.setup.prepare import find_part
from assay.lab.setup.session import Session


def renderings(subject: Subject) -> Seen:
    """Every stage's rows as tokens and back, and every stage against what measures it."""
    for place, stage, data in reading(subject.session):
        yield from round_trip(subject, place, stage, data)
    yield from differing(subject)


def round_trip(subject: Subject, place: str, stage: StageSpec, data: str) -> Seen:
    """Rows that cannot be rendered, or whose answer the tokenizer does not give back."""
    golds = subject.golds_of_data(data, stage.rendering)
    whole = len(golds.answers) + len(golds.broken)
    if golds.broken:
        ids = [id_ for id_, _ in golds.broken]
        yield Finding(
            "error",
            f"{place}: rows cannot be rendered by {stage.rendering!r}",
            f"{share_of(len(ids), whole)}: {some(ids)}; {golds.broken[0][1]}",
            "choose another rendering, or leave these rows out",
        )
    elsewhere = [gold for gold in golds.answers if gold.context != gold.prompt]
    if elsewhere:
        tokenizer = subject.session.base.tokenizer
        first = elsewhere[0]
        yield Finding(
            "error",
            f"{place}: answers are trained after another prompt than they are sampled after",
            f"{share_of(len(elsewhere), whole)}: {some([g.row.id for g in elsewhere])}; "
            f"{first_difference(tokenizer, first.prompt, first.context) or 'it is longer'}",
            "choose a rendering whose prompt begins its conversation",
        )
    yield from reencoded(subject, place, golds.answers)


def reencoded(subject: Subject, place: str, golds: tuple[Gold, ...]) -> Seen:
    """Answers whose text, as rewards see it, gives other tokens than the ones trained on."""
    session = subject.session
    codec = Codec(session.base.tokenizer)
    changed: list[tuple[str, str]] = []
    for gold in golds:
        spoken = [t for t in gold.actions if t not in session.base.end_tokens]
        again = codec.encode(codec.break_up(gold.text), first=False)
        if spoken != again:
            difference = first_difference(session.base.tokenizer, spoken, again)
            changed.append((gold.row.id, difference or "the second goes on"))
    if changed:
        yield Finding(
            "warning",
            f"{place}: gold answers change on the way through text",
            f"{share_of(len(changed), len(golds))}: {some([id_ for id_, _ in changed])}; "
            f"{changed[0][1]}",
            "rewards read the decoded text: see that the tokenizer keeps spaces and rare signs",
        )


def differing(subject: Subject) -> Seen:
    """Stages that are measured on, or start from, prompts written otherwise than their own."""
    session = subject.session
    for stage, evaluation in measured(session):
        found = parting(session, stage, evaluation)
        if isinstance(found, Parting) or found:
            yield of_evaluation(session, stage, evaluation, found)
    for name, before in starts(session).items():
        trained = session.experiment.stage[before]
        rows = [("row", row) for row in spread(find_part(session.sets, trained.data))]
        found = compare(session, trained.rendering, f"stage.{name}", rows, last_of(trained))
        if isinstance(found, Parting):
            yield Finding(
                "warning",
                f"stage.{name} renders by {session.experiment.stage[name].rendering!r}, "
                f"stage.{before}, which it starts from, by {trained.rendering!r}",
                str(found),
                "use one rendering for both, else the second stage has to unlearn the first",
            )
    yield from idle_permissions(subject)


def of_evaluation(session: Session, stage: str, evaluation: str, found: Parting | int) -> Finding:
    """What is said of a stage and an evaluation whose renderings go by different names."""
    trained, asked = names(session, stage, evaluation)
    what = f"stage.{stage} is trained by {trained!r}, evaluate.{evaluation} asks by {asked!r}"
    if not isinstance(found, Parting):
        alike = f"{found} conversations are alike token by token"
        return Finding("note", f"{what}: no difference", alike, "nothing; one name would do")
    if evaluation in allowed(session, stage):
        fix = "nothing, as the stage allows it; pages and comparisons carry the mark"
        return Finding("warning", what, str(found), fix)
    fix = f'use one rendering, or allow it: other_rendering_than = ["{evaluation}"]'
    return Finding("error", what, str(found), fix)


def idle_permissions(subject: Subject) -> Seen:
    """Evaluations that a stage may part from and does not."""
    session = subject.session
    pairs = measured(session)
    for name in session.experiment.stage:
        for evaluation in allowed(session, name):
            pair = (name, evaluation)
            if pair in pairs and isinstance(parting(session, *pair), Parting):
                continue
            yield Finding(
                "note",
                f"stage.{name} allows evaluate.{evaluation} another rendering for nothing",
                "they do not part" if pair in pairs else "it measures none of its checkpoints",
                "leave the name out of other_rendering_than",
            )
