"""How long prompts and gold answers are in tokens, against what may be sampled and what fits."""

from assay.data.lengths import length_statistics
from assay.judge.findings import Finding
from assay.lab.checks.subject import Golds, Number, Seen, Subject, samples, share_of, some


def lengths(subject: Subject) -> Seen:
    """Stages that sample, and evaluations, against their `max_tokens`; all against the model."""
    session = subject.session
    for name, stage in session.experiment.stage.items():
        golds = subject.golds_of_data(stage.data, stage.rendering)
        limit = stage.sampling.max_tokens if samples(stage) else None
        yield from measured(f"stage.{name}", golds)
        yield from compared(subject, f"stage.{name}", golds, limit)
    for name, evaluation in session.evaluations.items():
        golds = subject.golds_of_items(evaluation)
        yield from measured(f"evaluate.{name}", golds)
        limit = evaluation.spec.sampling.max_tokens
        yield from compared(subject, f"evaluate.{name}", golds, limit)


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
