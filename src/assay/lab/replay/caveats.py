"""What a reader of a replay must know besides its numbers, as findings."""

from assay.experiment.stage_tables import GrpoStage
from assay.judge.findings import Finding
from assay.lab.replay.replay_result import Gradients
from assay.lab.replay.side import Side
from assay.lab.replay.step import SampledStage


def notes(stage: SampledStage, other: Side, gradients: Gradients | None) -> list[Finding]:
    """Where the run would have gone another way with these settings, and what the gradients are."""
    found = [too_silent(stage, other), ended_earlier(other), gone_on(other)]
    if gradients is not None:
        found += [
            other_weights(gradients),
            other_log_probs(stage, gradients),
            no_gradient(gradients),
        ]
    return [finding for finding in found if finding is not None]


def too_silent(stage: SampledStage, other: Side) -> Finding | None:
    """So many abstentions that the run would have stopped."""
    reasons = [reward.why for reward in other.rewards if reward.value is None]
    if len(reasons) <= stage.max_abstained_share * len(other.rewards):
        return None
    common = max(set(reasons), key=reasons.count)
    return Finding(
        "warning",
        "with these settings the run would have stopped at this step",
        f"{len(reasons)} of {len(other.rewards)} rewards abstain, more than "
        f"{stage.max_abstained_share:.0%}; most often: {common}",
        "mend the reward, or raise max_abstained_share",
    )


def ended_earlier(other: Side) -> Finding | None:
    """Dynamic sampling would have had enough with fewer completions."""
    if other.drawn == len(other.rewards):
        return None
    said = f"{other.drawn} of {len(other.rewards)} completions would have been sampled"
    return Finding("note", "sampling would have ended earlier", said, "")


def gone_on(other: Side) -> Finding | None:
    """Dynamic sampling would have asked for completions that do not exist."""
    if not other.short:
        return None
    what = "with these settings more completions would have been sampled than are stored"
    evidence = f"{other.signal.signal_groups} groups carry signal"
    return Finding("warning", what, evidence, "read the update as that of the stored ones alone")


def other_weights(gradients: Gradients) -> Finding | None:
    """The gradients are not taken where the step was sampled."""
    weights = gradients.weights
    if weights.exact:
        return None
    return Finding(
        "note",
        f"the gradients are taken at {weights.checkpoint}, {weights.behind} steps before the "
        "weights that sampled",
        "those are not stored",
        "a smaller checkpoint_every keeps more of them",
    )


def other_log_probs(stage: SampledStage, gradients: Gradients) -> Finding | None:
    """The weights that should have sampled do not think of the samples as was recorded."""
    limit = stage.max_rollout_gap if isinstance(stage, GrpoStage) else float("inf")
    gap = gradients.rollout_gap
    if not gradients.weights.exact or gap is None or gap <= limit:
        return None
    return Finding(
        "warning",
        "prompts or weights are not those that sampled",
        f"log-probs differ from the recorded ones by {gap:.3f} on average, more than {limit}",
        "look for what has changed: data, template, model",
    )


def no_gradient(gradients: Gradients) -> Finding | None:
    """A side that would not have moved the weights has no direction."""
    whole = gradients.directions.whole
    empty = [side for side, norm in (("before", whole.before), ("after", whole.after)) if not norm]
    if not empty:
        return None
    return Finding("note", f"no gradient {' and '.join(empty)}", "nothing carries signal", "")
