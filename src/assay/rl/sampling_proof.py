"""Whether completions are drawn, and their log-probs told, as a sampler was asked to.

Where the model's distribution p has entropy H and V = sum p log^2 p - H^2, a draw x has
E[log p(x)] = -H and Var[log p(x)] = V whatever came before: the excess log p(x) + H, summed over
drawn positions, is a martingale, also where an end token or a limit stops it. It is the score
statistic of the temperature, so that no test of a wrong one has more power.

Told log-probs differ from one's own by rounding: by nothing on average, and not in proportion to
the excess, as those of a temperature T do: log p_T(x) - log p(x) = (1/T - 1) (log p(x) + H) to
first order. Those of a cut vocabulary are higher by -log of the share that was left.

A completion repeats an earlier one of its prompt with a chance that log-probs tell. A bet against
it is a martingale of mean 1 and reaches b with a chance of 1/b at most (Ville's inequality).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.data.episode import Context, Turn
from assay.errors import RunFailure
from assay.rl.policy import Stop

ALPHA = 1e-4
"""Chance at most that an honest run is stopped, however long it is."""
LOOKS = 14
"""At each step: the excess of step, last steps and run; gap and slope of step and run; both ways.
Step k may spend ALPHA / (k (k + 1)) on them together."""
SCALES = (1.0, 6.0)
"""Nats by which the excess is heavier than normal, above and below, as a sub-gamma variable
(Boucheron, Lugosi and Massart, Concentration Inequalities, 2.4: log E exp(a X) is at most
a^2 V / (2 (1 - scale a))). Above, a word of 10 % among 50,000 equal ones would need 2.3; below,
words that have 1/10,000 of the chance together need less."""
FADES = 0.75
"""What counts of a step at the next, among the last steps."""
WARMTH = 0.01
"""Share of the temperature by which rounding may seem to change it."""
TOGETHER = 2.0
"""Times by which the variance of a mean may exceed that of single tokens: errors of a completion
come together."""
SPREAD = 1e-4
"""Nats of rounding that are allowed everywhere."""
NORMAL, BIAS = 2.2, 4.0
"""Variance of a normal error over its median square; and the mean error that is allowed, over that
variance. A cut vocabulary changes some words a lot, and not the median. SmolLM2 in vLLM's bf16
has a mean of 0.001 nats and a variance of 0.003."""
LEAST, FEW = 64, 16
"""Tokens of which rounding errors are judged; and as if of so many alike, for a slope."""
REPEATS = (0.25, 0.9)
"""Shares of completions that an engine is bet to repeat."""
SLACK = 2.0
"""Times by which rounding may change the chance of a completion."""
LONGEST = 300.0
"""Nats of one step's bet that are counted."""

TOLD = "sampling proof: "
"""Begins the names of such sums among an objective's."""

Sums = dict[str, float]
Drawn = tuple[Context, tuple[int, ...], float]
"""A completion: what it followed, its tokens and the log-prob of all."""


class NotAsTold(RunFailure):
    """Completions are not what the sampler was asked for."""


def drawn_sums(
    logps_S: np.ndarray,
    entropies_S: np.ndarray,
    variances_S: np.ndarray,
    told_S: np.ndarray | None = None,
) -> Sums:
    """What the tokens of a step, drawn from the full softmax, add to its proof.

    Log-probs, entropies and variances (see above) are of one forward; `told_S` are log-probs that
    another told as it drew.
    """
    excess_S = logps_S + entropies_S
    sums = {"excess": float(excess_S.sum()), "variance": float(variances_S.sum())}
    return sums if told_S is None else sums | told_sums(told_S - logps_S, excess_S)


def told_sums(gap_S: np.ndarray, excess_S: np.ndarray) -> Sums:
    """The same of told minus own log-probs, and of their slope on the excess.

    Errors are those that mean and slope of the step leave, which systematic ones do not enlarge.
    """
    count, squares_S = len(gap_S), excess_S**2
    squares = float(squares_S.sum())
    if count < LEAST:
        return {}
    cross = float(gap_S @ excess_S)
    slope = cross / squares if squares else 0.0
    left_S = (gap_S - gap_S.mean() - slope * excess_S) ** 2 + SPREAD**2
    sums = {"told": float(count), "gap": float(gap_S.sum()), "left": float(left_S.sum())}
    sums["usual"] = count * NORMAL * float(np.median(left_S))
    # A slope that hangs on a few words leaves no errors at them.
    if squares**2 < FEW * float(squares_S @ squares_S) or not squares:
        return sums
    least = sums["left"] / count
    cross_left = float(np.maximum(left_S, least) @ squares_S)
    return sums | {"cross": cross, "squares": squares, "cross_left": cross_left}


@dataclass(frozen=True, slots=True)
class Statistic:
    """A figure of a step or a run, in its standard errors."""

    name: str
    z: float
    bound: float
    """What an honest sampler stays below, in size."""


WORDS = {
    "drawn": "log-probs of drawn tokens against minus the entropy",
    "told": "the mean of told minus own log-probs",
    "told_slope": "the slope of told minus own log-probs on log-probs",
}
HINTS = {
    "drawn": (
        "it draws colder than at the temperature it was asked for, or from a part of the words",
        "it draws hotter than at the temperature it was asked for, or from other weights",
    ),
    "told": (
        "it leaves words out, as top-p and top-k do, or has a lower temperature",
        "it tells log-probs of other weights, or of a higher temperature",
    ),
    "told_slope": (
        "it tells log-probs of a lower temperature, or of a part of the words",
        "it tells log-probs of a higher temperature",
    ),
}
"""By the sign."""


@dataclass
class SamplingProof:
    """What the steps of a run have shown of its sampler."""

    run: Sums = field(default_factory=dict)
    """Sums over the run and its bets, which a checkpoint keeps."""
    broken: str = ""
    """What an honest sampler does not do, of the last step; "" where all is well."""

    def add(self, step: Sums, completions: Sequence[Drawn] = ()) -> dict[str, float]:
        """Metrics of a step and of the run with it; completions have different seeds."""
        run, self.broken = self.run, ""
        if not step and not completions:
            return {}
        for name, value in {"steps": 1.0, **step}.items():
            run[name] = run.get(name, 0.0) + value
        last = {}
        for name, fades in (("excess", FADES), ("variance", FADES**2)):
            last[name] = run[f"last {name}"] = fades * run.get(f"last {name}", 0.0) + step.get(
                name, 0.0
            )
        steps = run["steps"]
        spend = math.log(LOOKS * steps * (steps + 1) / ALPHA)
        spans = (("", step), ("_last", last), ("_run", run))
        figures = [(of, one) for of, sums in spans for one in statistics(sums, spend)]
        metrics = {f"{one.name}_z{of}": one.z for of, one in figures}
        if beyond := [each for each in figures if not abs(each[1].z) <= each[1].bound]:
            of, one = max(beyond, key=lambda each: abs(each[1].z) / each[1].bound)
            self.broken = told_of(one, SPANS[of])
        if "told" in step:
            metrics["told_gap"] = step["gap"] / step["told"]
        return metrics | self._repeats(completions)

    def _repeats(self, completions: Sequence[Drawn]) -> dict[str, float]:
        """Every step may be the first of a fault: the bet that begins at step k has
        1 / (k (k + 1)) to begin with."""
        run, steps = self.run, self.run["steps"]
        for share in REPEATS:
            bet = run.get(f"bet {share}", 0.0) + 1 / (steps * (steps + 1))
            run[f"bet {share}"] = bet * math.exp(log_odds(completions, share))
        wealth = sum(run[f"bet {share}"] for share in REPEATS) / len(REPEATS) + 1 / (steps + 1)
        evidence, bound = math.log(wealth), math.log(LOOKS / ALPHA)
        if evidence > bound and not self.broken:
            self.broken = (
                f"{NOT_ASKED}: completions of one prompt are equal more often than their "
                f"log-probs allow: log evidence {evidence:.1f}, at most {bound:.1f}; their seeds "
                "are not used, or are the same"
            )
        return {"repeat_evidence": evidence} if completions else {}


NOT_ASKED = "the sampler does not draw as it is asked to"
SPANS = {"": "the step", "_last": "the last steps", "_run": "the run"}


def told_of(one: Statistic, span: str) -> str:
    """A failure in words."""
    return (
        f"{NOT_ASKED}: {WORDS[one.name]}, over {span}, z = {one.z:.1f}, at most {one.bound:.1f}; "
        f"{HINTS[one.name][one.z < 0]}"
    )


def statistics(sums: Mapping[str, float], spend: float) -> Iterator[Statistic]:
    """The figures of a step or a run, where it has any; the chance that an honest one is beyond
    its bound is 2 exp(-spend) at most."""
    normal = math.sqrt(2 * spend)
    variance = sums.get("variance", 0.0)
    if variance > 0:
        error = math.sqrt(variance)
        scale = SCALES[sums["excess"] < 0]
        bound = normal + scale * spend / error + WARMTH * error
        yield Statistic("drawn", sums["excess"] / error, bound)
    if sums.get("told", 0.0):
        count = sums["told"]
        spread = sums["left"] / count
        error = math.sqrt(TOGETHER * spread / count)
        # Where told ones are off by s, those of drawn tokens are too high by s^2 / 2 or so.
        bias = SPREAD + BIAS * sums["usual"] / count
        yield Statistic("told", sums["gap"] / count / error, normal + bias / error)
    if squares := sums.get("squares", 0.0):
        error = math.sqrt(TOGETHER * sums["cross_left"]) / squares
        yield Statistic("told_slope", sums["cross"] / squares / error, normal + WARMTH / error)


def log_odds(completions: Iterable[Drawn], share: float) -> float:
    """Log of what a bet becomes that so many completions repeat an earlier one of their prompt, at
    the odds that log-probs give."""
    seen: dict[Context, dict[tuple[int, ...], float]] = {}
    total = 0.0
    for context, tokens, logp in completions:
        earlier = seen.setdefault(context, {})
        if earlier:
            chance = min(1.0, SLACK * sum(map(math.exp, earlier.values())))
            chance = max(chance, math.exp(-LONGEST))
            total += math.log(1 - share + share / chance * (tokens in earlier))
        earlier[tokens] = logp
    return min(total, LONGEST)


def wrong_end(turns: Iterable[Turn], end_tokens: frozenset[int], stop: Stop | None) -> str:
    """The first completion that an end token did not end, or that nothing ended that was asked for;
    "" where there is none."""
    for turn in turns:
        count = len(turn.actions)
        if not end_tokens.isdisjoint(turn.actions[:-1]):
            place = next(n for n, token in enumerate(turn.actions, 1) if token in end_tokens)
            return (
                f"{NOT_ASKED}: a completion of {count} tokens goes on behind an end token, number "
                f"{place}; end tokens are not honoured"
            )
        if turn.ended != "stop" or turn.actions[-1] in end_tokens:
            continue
        if stop is None or (stop.decode is not None and not stop.ends(turn.actions)):
            return (
                f"{NOT_ASKED}: a completion of {count} tokens is told to have met its end, but its "
                f"last token, {turn.actions[-1]}, is none; it was cut"
            )
    return ""
