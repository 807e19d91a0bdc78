"""Rules about equal answers of two checkpoints, sums that differ from their parts, contradictions.

Each takes recorded counts and numbers and returns a finding or None. The caller loads answers and
weights.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from assay.errors import Finding, finding

Metrics = Sequence[Mapping[str, Any]]

FEW_ANSWERS = 2
"""With at most this many different answers to all items, two policies can hardly differ."""
LOSS = "loss"
ADDED = ("policy_loss", "pg_loss", "ppo_loss", "rce_loss", "nll_loss")
"""Parts that enter the logged loss as they are."""
WEIGHED = {"kl": ("kl_coef", "beta"), "entropy": ("entropy_coef",)}
"""Parts that enter it times a coefficient, by the names that the coefficient is logged under."""
AVERAGED = {"kl": "kl_loss", "entropy": "entropy_bonus"}
"""The same parts under the loss's own average, which is looked at first."""
SIGNS = {"entropy": -1.0}
ROUNDING = 1e-4
"""Share of the largest term by which a sum in single precision may be off."""
SMALLEST = 2.0**-126
"""Below it single precision rounds to fixed steps, not to a share of the number."""
FALLBACK = "fallback"
MANY_FALLBACKS, MOST_FALLBACKS = 0.1, 0.5
"""Shares of a record's answers that a fallback metric scored: above the first there is a warning,
above the second nothing goes on."""
CAUSES = ("api_error", "execution_error", "attribute_error", "runtime_error")
"""Metrics that begin so count errors after which only a fallback gives a result."""


def same_answers(
    one: str,
    other: str,
    counts: Mapping[str, int],
    same_weights: bool | None,
    changed_share: float | None,
    greedy: bool,
) -> Finding:
    """What identical answers of two checkpoints to every item in every repeat come from, as far as
    the record shows.

    `counts` are those of `items`, `answers` and `distinct` answers. `same_weights` is None where
    the weights of one no longer exist, `changed_share` where it is not known.
    """
    code = "same_greedy"
    if same_weights:
        code = "same_weights"
    elif counts["distinct"] <= FEW_ANSWERS < counts["items"]:
        code = "no_choice"
    elif not greedy:
        code = "same_although_sampled"
    elif same_weights is None:
        code = "same_and_weights_gone"
    weights, more = "same" if same_weights else "different", dict[str, str]()
    if same_weights is None:
        weights = "unknown"
    elif not same_weights and changed_share is not None:
        weights, more = "different_share", {"share": f"{changed_share:.2%}"}
    decoding = "greedy" if greedy else "sampled"
    return finding(
        code,
        "warning" if code in ("same_greedy", "same_and_weights_gone") else "error",
        template="twins",
        one=one,
        other=other,
        words={"weights": f"twins.{weights}", "decoding": f"twins.{decoding}"},
        **counts,
        **more,
    )


def loss_parts(metrics: Metrics) -> Finding | None:
    """A logged loss that its logged parts do not add up to.

    loss = policy loss + kl_coef * KL - entropy_coef * entropy, of the terms that a step logs;
    `kl_loss` without a coefficient is added as it is.
    Numbers that were rounded before they were logged may be off by half of their last digit.
    """
    steps = [step for step in metrics if _finite(step.get(LOSS)) and _terms(step)]
    off = [step for step in steps if not _adds_up(step)]
    if not off:
        return None
    first, terms = off[0], _terms(off[0])
    total = math.fsum(coef * value for coef, value in terms.values())
    names = " + ".join(
        name if coef == 1 else f"{coef:g} x {name}" for name, (coef, _) in terms.items()
    )
    return finding(
        "loss_parts",
        "error",
        off=len(off),
        steps=len(steps),
        step=first.get("step", "?"),
        names=names,
        total=f"{total:.6g}",
        loss=f"{first[LOSS]:.6g}",
    )


def _terms(step: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Coefficient and value of every part of the loss that a step logs.

    {} where that is no whole sum: no policy term is logged, or a part without its coefficient.
    """
    terms = {name: (1.0, step[name]) for name in ADDED if _finite(step.get(name))}
    if not terms:
        return {}
    for kind, coefficients in WEIGHED.items():
        name = next((n for n in (AVERAGED[kind], kind) if _finite(step.get(n))), None)
        if name is None:
            continue
        coefficient = next((step[c] for c in coefficients if _finite(step.get(c))), None)
        if coefficient is None and name != "kl_loss":
            return {}
        factor = 1.0 if coefficient is None else coefficient
        terms[name] = (SIGNS.get(kind, 1.0) * factor, step[name])
    return terms


def _adds_up(step: Mapping[str, Any]) -> bool:
    terms = _terms(step)
    total = math.fsum(coef * value for coef, value in terms.values())
    largest = max(abs(step[LOSS]), *(abs(coef * value) for coef, value in terms.values()))
    slack = _half_digit(step[LOSS]) + sum(abs(c) * _half_digit(v) for c, v in terms.values())
    return abs(total - step[LOSS]) <= slack + ROUNDING * largest + SMALLEST


def _half_digit(value: float) -> float:
    """Half a unit of the last decimal that a number is written with."""
    mantissa, _, exponent = repr(float(value)).partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return 0.5 * 10.0 ** -max(decimals, 0)


def fallback_contradiction(metrics: Metrics) -> Finding | None:
    """A fallback count of 0 beside errors that must cause a fallback."""
    causes: dict[str, float] = {}
    fallbacks = []
    for step in metrics:
        fallbacks += [v for k, v in step.items() if FALLBACK in k and _finite(v)]
        for key, value in step.items():
            if key.startswith(CAUSES) and _finite(value):
                causes[key] = causes.get(key, 0.0) + value
    caused = {key: value for key, value in causes.items() if value > 0}
    if not fallbacks or any(fallbacks) or not caused:
        return None
    named = ", ".join(f"{key} {value:g}" for key, value in caused.items())
    counts = {"fallback": FALLBACK, "steps": len(metrics), "errors": named}
    template = "fallback_in_steps"
    return finding("fallback_contradiction", "error", template=template, **counts)


def impossible_share(metrics: Metrics) -> Finding | None:
    """A share below 0 or above 1."""
    for step in metrics:
        for key, value in step.items():
            if key.endswith("_share") and _finite(value) and not 0 <= value <= 1 + 1e-6:
                step_number = step.get("step", "?")
                value = f"{value:g}"
                return finding("impossible_share", "error", key=key, value=value, step=step_number)
    return None


def signal_without_spread(metrics: Metrics) -> Finding | None:
    """Groups with signal where every reward of the step was the same."""
    wrong = [
        step
        for step in metrics
        if (step.get("signal_share") or 0) > 0 and step.get("reward_std") == 0
    ]
    if not wrong:
        return None
    first = wrong[0].get("step", "?")
    return finding("signal_without_spread", "error", count=len(wrong), step=first)


IDENTITY_RULES: tuple[Callable[[Metrics], Finding | None], ...] = (
    *(loss_parts, fallback_contradiction, impossible_share, signal_without_spread),
)
"""Rules over the metrics of one stage; `health_checks` applies them too."""


def contradictory_answers(
    name: str, answers: Iterable[tuple[float | None, str, Mapping[str, float]]]
) -> list[Finding]:
    """Answers of one checkpoint, each (score, error type, parts), that contradict themselves.

    A full score with an error type, and a fallback part of 0 beside an error that causes one.
    """
    right = uncounted = total = 0
    for score, error, parts in answers:
        total += 1
        right += bool(error) and score is not None and score >= 1.0
        uncounted += error.startswith(CAUSES) and is_fallback(parts) is False
    findings = []
    if right:
        counts = {"count": right, "total": total}
        findings.append(finding("error_at_full_score", "warning", name=name, **counts))
    if uncounted:
        counts = {"count": uncounted, "total": total}
        template = {"template": "fallback_in_answers", "name": name}
        findings.append(finding("fallback_contradiction", "error", **template, **counts))
    return findings


def is_fallback(parts: Mapping[str, float]) -> bool | None:
    """Whether a score was made by a fallback metric: its part `fallback`; None without one."""
    marks = [value for key, value in parts.items() if key.rpartition("/")[2] == FALLBACK]
    return any(marks) if marks else None


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
