"""How far the shared path may be from the plain one, and which part of the model gives it away.

In fp32 the allowances are constants. In bf16 two right ways of computing differ by rounding, so
they are multiples of how far the plain path itself moves between bf16 and fp32 on the same turns.
Nothing is computed by a model here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from assay.errors import RunFailure

LOGP = 1e-4
"""Largest difference of a log-prob in fp32. SmolLM2-135M (30 layers) shows 2.7e-5."""
ROLLOUT_LOGP = 3e-4
"""The same of what the rollout recorded, a token at a time. SmolLM2-135M shows 6.1e-5."""
GRADIENT = 1e-3
"""Largest relative difference of a parameter's gradient in fp32. SmolLM2-135M shows 2e-4."""
LOSS = 1e-5
"""Difference of the loss on top of what the log-probs' allowance amounts to."""
ROUNDINGS = 4.0
"""bf16: times the plain path's own rounding. Errors of equal size and any direction give 1 to 2;
SmolLM2-135M shows up to 1.5 for log-probs and up to 3 for the gradient of a single parameter."""
ROLLOUT_ROUNDINGS = 6.0
"""bf16: the same for the rollout, a third way of computing. SmolLM2-135M shows up to 1.9."""
UNSTEADY, UNSTEADY_GRADIENT = 0.1, 0.5
"""bf16: over the root of the tokens, on top, because the rounding of a few tokens scatters."""
NOTICEABLE = 0.1
"""A parameter's gradient counts as at least this share of its family's: what is far smaller is what
cancellation left, as in a bias on keys, which moves all scores of a query alike."""

HEAD = "lm_head"
ATTENTION = "attention projections (q_proj, k_proj, v_proj, o_proj)"
FAMILIES = (
    ("norms", ("norm",)),
    (ATTENTION, ("attn", "attention")),
    ("MLP", ("mlp", "feed_forward", "ffn")),
    ("embeddings and head", ("embed", HEAD, "wte", "wpe")),
)
"""Layer families by parts of parameter names, the first that fits."""
ROLLOUT = "rollout"
REASONS = {
    ATTENTION: "its mask, positions or scores are not those that the shared path computes",
    "embeddings and head": "the output head changes logits in a way of its own",
    ROLLOUT: "the sampler computes something else, or from other weights",
}
OTHER_REASON = "these layers compute something else than the shared path does"


class SelfCheckFailed(RunFailure):
    """The shared path and the plain path disagree on this model; training would be wrong."""

    def __init__(self, family: str, what: str):
        """`family` names where the paths part."""
        why = REASONS.get(family, OTHER_REASON)
        super().__init__(
            f"self-check: {what}; the paths part in: {family}; {why}; train a dense Llama, Qwen2 "
            "or Qwen3 model with the pinned versions of torch and transformers"
        )
        self.family = family


@dataclass(frozen=True)
class Gradients:
    """Norms by parameter: of the gradient, of the paths' difference, of the plain path's rounding
    (0 where it computes in the masters' type)."""

    norms: Mapping[str, float]
    errors: Mapping[str, float]
    roundings: Mapping[str, float]


@dataclass(frozen=True)
class Differences:
    """What the check measured on S tokens; absolute differences."""

    logp_S: Tensor
    rollout_S: Tensor
    rounding_S: Tensor | None
    """Of log-probs between bf16 and fp32 on the plain path; None in fp32."""
    loss: float
    slope: float
    """By how much the loss moves at most when every log-prob moves by 1 at most."""
    gradients: Gradients


def family_of(parameter: str) -> str:
    """The layer family of a parameter, adapters with the layer they adapt."""
    for family, parts in FAMILIES:
        if any(p in parameter for p in parts):
            return family
    return "other weights"


def spread(found: Differences, values_S: Tensor) -> float:
    """The largest value in fp32; the mean in bf16, where single tokens scatter widely."""
    return float(values_S.max() if found.rounding_S is None else values_S.mean())


def rounding_of(found: Differences) -> tuple[float, float]:
    """The plain path's own rounding, mean over S tokens, and 1 / sqrt(S); both 0 in fp32."""
    if found.rounding_S is None:
        return 0.0, 0.0
    return float(found.rounding_S.mean()), len(found.rounding_S) ** -0.5


def judge(found: Differences, locate: Callable[[], str | None]) -> dict[str, float]:
    """Metrics of a check that passed; raises SelfCheckFailed, for the rollout last.

    `locate` names the first sublayer that the two paths compute differently, if there is one.
    """
    rounding, few = rounding_of(found)
    logp, rollout = spread(found, found.logp_S), spread(found, found.rollout_S)
    excess, relative = gradient_excess(found.gradients, GRADIENT + UNSTEADY_GRADIENT * few)
    allowed = LOGP + ROUNDINGS * rounding + UNSTEADY * few

    def forward() -> str:
        return family_of(locate() or HEAD)

    def backward() -> str:
        sublayer = locate()
        return family_of(sublayer) if sublayer else worst_family(found.gradients)

    expect("log-probs of the shared and the plain path differ", logp, allowed, forward)
    expect("the paths' losses differ", found.loss, LOSS + found.slope * allowed, forward)
    expect("the paths' gradients differ, in units of the allowed,", excess, 1.0, backward)
    allowed = ROLLOUT_LOGP + ROLLOUT_ROUNDINGS * rounding + UNSTEADY * few
    expect("log-probs of rollout and training differ", rollout, allowed, lambda: ROLLOUT)
    return {
        "self_check_logp": logp,
        "self_check_loss": found.loss,
        "self_check_gradient": relative,
        "self_check_rollout": rollout,
    }


def expect(what: str, value: float, allowed: float, family: Callable[[], str]) -> None:
    """Raise SelfCheckFailed where a value is above what is allowed, or not a number."""
    if not value <= allowed:
        raise SelfCheckFailed(family(), f"{what} by {value:.2g}, allowed {allowed:.2g}")


def gradient_excess(gradients: Gradients, allowed: float) -> tuple[float, float]:
    """Over all parameters, the largest error in units of the allowed, and the largest relative.

    Rounding, the parameter's or its family's, is allowed on top of `allowed`.
    """
    norms, roundings = by_family(gradients.norms), by_family(gradients.roundings)
    excess, relative = [0.0], [0.0]
    for name, error in gradients.errors.items():
        family = family_of(name)
        norm = max(gradients.norms[name], NOTICEABLE * norms[family])
        own = ratio(gradients.roundings[name], norm)
        rounding = max(own, ratio(roundings[family], norms[family]))
        relative.append(ratio(error, norm))
        excess.append(relative[-1] / (allowed + ROUNDINGS * rounding))
    return max(excess), max(relative)


def worst_family(gradients: Gradients) -> str:
    """The family whose gradient differs most, relative to its norm."""
    norms, errors = by_family(gradients.norms), by_family(gradients.errors)
    return max(norms, key=lambda family: ratio(errors[family], norms[family]))


def by_family(values: Mapping[str, float]) -> dict[str, float]:
    """The norm of each family from those of its parameters."""
    squares: dict[str, float] = {}
    for name, value in values.items():
        family = family_of(name)
        squares[family] = squares.get(family, 0.0) + value**2
    return {family: square**0.5 for family, square in squares.items()}


def ratio(error: float, norm: float) -> float:
    """error / norm; 0 of no error, infinite where a number is missing."""
    if error == 0:
        return 0.0
    return error / norm if norm and math.isfinite(error) else math.inf
