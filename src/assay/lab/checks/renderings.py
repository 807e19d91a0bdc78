"""Do training and evaluation write conversations alike, and do gold answers survive as tokens?"""

from assay.data.encoding import Codec
from assay.data.rendering import first_difference
from assay.data.renderings.template import RenderingError
from assay.judge.findings import Finding
from assay.lab.checks.subject import Gold, Seen, Subject, share_of, some
from assay.lab.prepare import find_part, make_renderer
from assay.lab.spec.references import parse_checkpoint
from assay.lab.spec.stage import StageSpec


def renderings(subject: Subject) -> Seen:
    """Every stage's rows as tokens and back, and every stage against what measures it."""
    for name, stage in subject.session.experiment.stage.items():
        yield from round_trip(subject, name, stage)
    yield from differing(subject)


def round_trip(subject: Subject, name: str, stage: StageSpec) -> Seen:
    """Rows that cannot be rendered, or whose answer the tokenizer does not give back."""
    golds = subject.golds_of_data(stage.data, stage.rendering)
    whole = len(golds.answers) + len(golds.broken)
    if golds.broken:
        ids = [id_ for id_, _ in golds.broken]
        yield Finding(
            "error",
            f"stage.{name}: rows cannot be rendered by {stage.rendering!r}",
            f"{share_of(len(ids), whole)}: {some(ids)}; {golds.broken[0][1]}",
            "choose another rendering, or leave these rows out",
        )
    elsewhere = [gold for gold in golds.answers if gold.context != gold.prompt]
    if elsewhere:
        tokenizer = subject.session.base.tokenizer
        first = elsewhere[0]
        yield Finding(
            "error",
            f"stage.{name}: answers are trained after another prompt than they are sampled after",
            f"{share_of(len(elsewhere), whole)}: {some([g.row.id for g in elsewhere])}; "
            f"{first_difference(tokenizer, first.prompt, first.context) or 'it is longer'}",
            "choose a rendering whose prompt begins its conversation",
        )
    yield from reencoded(subject, name, golds.answers)


def reencoded(subject: Subject, name: str, golds: tuple[Gold, ...]) -> Seen:
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
            f"stage.{name}: gold answers change on the way through text",
            f"{share_of(len(changed), len(golds))}: {some([id_ for id_, _ in changed])}; "
            f"{changed[0][1]}",
            "rewards read the decoded text: see that the tokenizer keeps spaces and rare signs",
        )


def differing(subject: Subject) -> Seen:
    """Stages that start from, or are measured with, another rendering than they were trained in."""
    experiment = subject.session.experiment
    pairs = [
        (f"stage.{name}", stage.rendering, parse_checkpoint(stage.start))
        for name, stage in experiment.stage.items()
    ]
    pairs += [
        (f"evaluate.{name}", spec.rendering, parse_checkpoint(text))
        for name, spec in experiment.evaluate.items()
        for text in spec.checkpoints
    ]
    for place, rendering, reference in pairs:
        if reference is None or reference.stage is None:
            continue
        trained = experiment.stage[reference.stage]
        if fingerprint(subject, trained.rendering) != fingerprint(subject, rendering):
            yield other_rendering(subject, place, rendering, reference.stage)


def other_rendering(subject: Subject, place: str, rendering: str, stage: str) -> Finding:
    """The warning, with the first token at which the two prompts part."""
    session = subject.session
    trained = session.experiment.stage[stage]
    row = find_part(session.sets, trained.data)[0]
    prompts = []
    for name in (trained.rendering, rendering):
        try:
            renderer = make_renderer(session.base.tokenizer, name)
            prompts.append(renderer.prompt(session.task.prompt(row), row.tools))
        except RenderingError as error:
            prompts.append(f"{name!r} cannot write row {row.id}: {error}")
    told = [text for text in prompts if isinstance(text, str)]
    evidence = told[0] if told else first_difference(session.base.tokenizer, *prompts)
    return Finding(
        "warning",
        f"{place} renders by {rendering!r}, stage.{stage} was trained by {trained.rendering!r}",
        evidence or f"the prompts of row {row.id} are alike; other conversations may differ",
        "use one rendering for both, else the prompt is part of what is compared",
    )


def fingerprint(subject: Subject, rendering: str) -> str:
    """The fingerprint of a rendering with the experiment's tokenizer."""
    return make_renderer(subject.session.base.tokenizer, rendering).fingerprint
