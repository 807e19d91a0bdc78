"""How long rows are in tokens: every data set, and prompts and answers against what fits."""

from assay.data.lengths import length_statistics
from assay.judge.findings import Finding
from assay.lab.check.subject import (
    Golds,
    Histogram,
    Number,
    Seen,
    Subject,
    reading,
    samples,
    share_of,
    some,
)
from assay.lab.setup.prepare import make_renderer


def lengths(subject: Subject) -> Seen:
    """Data sets; stages that sample, and evaluations, against their `max_tokens` and the model."""
    session = subject.session
    for name in session.sets:
        yield from conversations(subject, name)
    for place, stage, data in reading(session):
        golds = subject.golds_of_data(data, stage.rendering)
        limit = stage.sampling.max_tokens if samples(stage) else None
        yield from measured(place, golds)
        yield from compared(subject, place, golds, limit)
    for name, evaluation in session.evaluations.items():
        golds = subject.golds_of_items(evaluation)
        yield from measured(f"evaluate.{name}", golds)
        limit = evaluation.spec.sampling.max_tokens
        yield from compared(subject, f"evaluate.{name}", golds, limit)


def conversations(subject: Subject, name: str) -> Seen:
    """Statistics of the whole rows of a data set, dev part included, answers included."""
    found = length_statistics(conversation_lengths(subject, name))
    place, what = f"data.{name}", "conversation_tokens"
    yield Number(place, f"{what}_mean", found.mean)
    yield Number(place, f"{what}_sd", found.sd)
    yield Number(place, f"{what}_smallest", found.smallest)
    for percentile, value in found.percentiles.items():
        yield Number(place, f"{what}_{percentile}", value)
    yield Number(place, f"{what}_largest", found.largest)
    if found.count:
        yield Histogram(place, what, found.histogram, found.edges)


def conversation_lengths(subject: Subject, name: str) -> list[int]:
    """Tokens of each row that can be rendered, as the first stage that reads it renders it."""
    session = subject.session
    reads = reading(session)
    used = [stage.rendering for _, stage, data in reads if data.removesuffix(".dev") == name]
    rendering = used[0] if used else "auto"
    renderer = make_renderer(session.base.tokenizer, rendering)
    data = session.sets[name]
    found: list[int] = []
    for part in (name, f"{name}.dev"):
        golds = subject.golds_of_data(part, rendering)
        found += [len(gold.context) + len(gold.actions) for gold in golds.answers]
        bare = [row for row in data.part(part) if row.id in set(golds.missing)]
        found += [len(renderer.prompt(session.task.prompt(row), row.tools)) for row in bare]
    return found


def measured(place: str, golds: Golds) -> Seen:
    """Statistics of prompts and answers."""
    for what, counts in (
        ("prompt", [len(gold.prompt) for gold in golds.answers]),
        ("answer", [len(gold.actions) for gold in golds.answers]),
    ):
        found = length_statistics(counts)
        yield Number(place, f"{what}_tokens_mean", found.mean)
        yield Number(place, f"{what}_tokens_median", found.percentiles[50])
        yield Number(place, f"{what}_tokens_95", found.percentiles[95])
        yield Number(place, f"{what}_tokens_largest", found.largest)


def compared(subject: Subject, place: str, golds: Golds, limit: int | None) -> Seen:
    """Answers that cannot be said within `max_tokens`, and rows that the model cannot hold."""
    whole = len(golds.answers)
    if limit is not None:
        cut = [gold.row.id for gold in golds.answers if len(gold.actions) > limit]
        if cut:
            yield Finding(
                "warning",
                f"{place}: gold answers are longer than sampling.max_tokens",
                f"{share_of(len(cut), whole)} over {limit} tokens: {some(cut)}",
                "the full reward is out of reach there; raise max_tokens or drop these rows",
            )
    window = getattr(subject.session.base.config, "max_position_embeddings", None)
    if window is None:
        return
    over = [
        gold.row.id
        for gold in golds.answers
        if len(gold.prompt) + (len(gold.actions) if limit is None else limit) > window
    ]
    if over:
        yield Finding(
            "error",
            f"{place}: rows do not fit into the model's {window} positions",
            f"{share_of(len(over), whole)}: {some(over)}",
            "set data.NAME.max_prompt_tokens, or lower sampling.max_tokens",
        )
