"""Whether a higher score of a metric is better: by the user, the tool's file, or a known name.

A metric of which nobody says it gets no verdict. Scores of the lab's own runs are rewards.
"""

import re
from collections.abc import Iterable

from assay.compare.arm import Arm
from assay.data.results.foreign_result import Result
from assay.errors import InputError

LOWER = "wer cer mer ter loss nll perplexity ppl bpb mae mse rmse brier ece latency"
LOWER_ALONE = "error errors err time duration seconds cost fail failed failure failures distance"
LOWER_ALONE += " timeout incorrect wrong toxicity bits violation violations"
HIGHER = (
    "acc accuracy reward rewards em f1 bleu sacrebleu chrf rouge rouge1 rouge2 rougel rougelsum"
)
HIGHER += " meteor bertscore precision recall mcc auc auroc ndcg mrr"
HIGHER_ALONE = "score scores match pass passed correct valid success solved resolved win wins"
HIGHER_ALONE += " includes choice likelihood exact"
NEUTRAL = "rate mean avg average median mode max total sum norm char word byte token per at k n"
NEUTRAL += " strict flexible extract extracted extractive quasi prefix suffix level prompt inst"
NEUTRAL += " loose none macro micro weighted test eval val validation dev ms s sec data metric"
NEUTRAL += " info metrics traces value values result results number length normalized edit"
TURNING = "neg negative minus inverse not no non without one log reduction improvement gain drop"
TURNING += " change delta diff difference ratio relative excess"
"""Words after which a known one may mean its opposite."""
WORDS: dict[str, tuple[str, bool]] = dict.fromkeys(LOWER.split(), ("lower", True))
WORDS |= dict.fromkeys(LOWER_ALONE.split(), ("lower", False))
WORDS |= dict.fromkeys(HIGHER.split(), ("higher", True))
WORDS |= dict.fromkeys(HIGHER_ALONE.split(), ("higher", False))
"""The direction that a word of a metric's name gives, and whether beside words that are not known
as well: `format_reward` is a reward, `toxicity_score` and `error_detected` may be anything."""


def known_direction(metric: str) -> bool | None:
    """Whether higher is better by the words of a metric's name; None where they leave it open."""
    condition = metric.rpartition("=")
    words = [_known(word) for word in _words(condition[2] if condition[1] else metric)]
    said = {WORDS[word][0] for word in words if word in WORDS}
    strong = any(WORDS[word][1] for word in words if word in WORDS)
    others = [word for word in words if word not in WORDS and not word.isdigit()]
    if len(said) != 1 or any(word in TURNING.split() for word in others):
        return None
    if not strong and any(word not in NEUTRAL.split() for word in others):
        return None
    return said == {"higher"}


def _words(name: str) -> list[str]:
    """`WordErrorRate`, `word_error_rate` and `word error-rate` alike."""
    parts = [part for part in re.split(r"[\W_]+", name) if part]
    capitals = re.compile(r"(?<=[a-z])(?=[A-Z])")
    words = ([part] if part.lower() in WORDS else capitals.split(part) for part in parts)
    return [word.lower() for found in words for word in found]


def _known(word: str) -> str:
    """`pass1` as `pass`, but `f1` as it is."""
    return word if word in WORDS else word.rstrip("0123456789") or word


def direction_of(result: Result) -> bool | None:
    """Whether higher is better by the file, else by the metric's name."""
    said = result.higher_is_better
    return known_direction(result.metric) if said is None else said


def lower_is_better(arms: Iterable[Arm]) -> bool:
    """Whether a lower score is better in all arms.

    What one file says holds for the others of the metric. Raises InputError where none says
    it, or two say different things.
    """
    arms = list(arms)
    foreign = [arm.result for arm in arms if arm.result is not None]
    said = {result.higher_is_better for result in foreign} - {None}
    if len(foreign) < len(arms):
        said.add(True)
    said = said or {direction_of(result) for result in foreign} - {None}
    fix = "say it with --higher-is-better or --lower-is-better"
    if len(said) == 1:
        return said == {False}
    problem = "is better high by one file, low by another" if said else "may be better high or low"
    metric = repr(foreign[0].metric)
    raise InputError(f"{metric} {problem}, so there is no verdict", field="metric", fix=fix)
