"""Findings of tables by their codes: the English of each, and how a finding is made of its code.

Other languages translate these templates in the catalogue of the pages.
"""

from collections.abc import Mapping

from assay.judge.findings import Finding, Severity, filled
from assay.judge.health_rules import ADVICE, EVIDENCE, WHAT

TWINS = (
    "{one} and {other}: the same {answers} answers to {items} items, {distinct} distinct; "
    "{weights}; {decoding} decoding"
)
FINDINGS: Mapping[str, tuple[str, str, str]] = {
    "same_weights": (
        "two checkpoints are the same weights",
        TWINS,
        "a model is compared with itself: training changed nothing, or one was saved or loaded as "
        "the other",
    ),
    "no_choice": (
        "two checkpoints answer the same: there is next to no choice",
        TWINS,
        "look at what the answers are chosen from: a pool so small leaves nothing to differ",
    ),
    "same_although_sampled": (
        "two checkpoints answer the same although sampled",
        TWINS,
        "sampled answers of other weights do not agree by chance: was one model loaded twice?",
    ),
    "same_and_weights_gone": (
        "two checkpoints answer the same",
        TWINS,
        "the weights are gone: whether they differed cannot be told from the answers",
    ),
    "same_greedy": (
        "two checkpoints answer the same",
        TWINS,
        "greedy decoding hides small changes: evaluate at a temperature, or compare log-probs",
    ),
    "error_at_full_score": (
        "answers have a full score and an error type",
        "{name}: {count} of {total} answers",
        "score and error type come from different checks: read one of these answers",
    ),
    "loss_parts": (
        WHAT["loss_parts"],
        EVIDENCE["loss_parts"],
        ADVICE["loss_parts"],
    ),
    "fallback_in_steps": (
        WHAT["fallback_contradiction"],
        EVIDENCE["fallback_in_steps"],
        ADVICE["fallback_contradiction"],
    ),
    "fallback_in_answers": (
        WHAT["fallback_contradiction"],
        "{name}: {count} of {total} answers",
        ADVICE["fallback_contradiction"],
    ),
    "impossible_share": (
        WHAT["impossible_share"],
        EVIDENCE["impossible_share"],
        ADVICE["impossible_share"],
    ),
    "signal_without_spread": (
        WHAT["signal_without_spread"],
        EVIDENCE["signal_without_spread"],
        ADVICE["signal_without_spread"],
    ),
    "training_on_tests_unknown": (
        "whether test items were trained on is not recorded",
        "{names}",
        "see 'assay check' of its experiment file",
    ),
    "other_rendering": (
        "measured in another rendering than it was trained in (other_rendering_than)",
        "{names}",
        "read the score as that of the model on prompts it was not trained on",
    ),
    "settings_unknown": (
        "settings unknown: fairness could not be checked",
        "{names}",
        "make sure that only what is under test differs",
    ),
    "checker_unknown": (
        "checker unknown: scores may come from different checkers",
        "{names}",
        "make sure that one checker gave all scores",
    ),
    "no_scores_in_file": ("left out, because the file has no scores of it", "{names}", ""),
    "factor_the_same": (
        "the declared factor is the same in both runs",
        "{path}: {one} and {other}",
        "was the setting applied, and are these the runs that were meant?",
    ),
    "paired_by_text": (
        "its items are paired by what they ask, because the same questions have other ids",
        "{names}",
        "",
    ),
    "left_out": ("{run} is left out", "{why}", "{fix}"),
    "control_left_out": (
        "{run} is left out; it was to be the control, and the next run is in its place",
        "{why}",
        "{fix}",
    ),
    "first_shared": (
        "compared on {on}, the first evaluation that all have",
        "they share {others} as well",
        "see --on",
    ),
    "despite": (
        "a run was made although its checks ended with errors (--despite)",
        "{run}: {reason}",
        "read what was overridden on the page of the run",
    ),
    "saw_answers": (
        "an arm has seen the right answers of the items: it is a bound, no result",
        "{names}",
        "read its score as what no selector of this pool can exceed",
    ),
    "one_seed": (
        "one seed of each arm is compared: checkpoints, not methods",
        "more seeds are there of {names}",
        "train the others with several seeds as well",
    ),
    "sequential_look": (
        "look {count} of a sequential comparison, whose level holds for all looks together",
        "items at each look: {listed}",
        "stop when the verdict falls; until then add items, keep the answers, and compare again",
    ),
    "unscored": (
        "more than 2% of the answers have no score",
        "{name}: {share} ({count} / {total})",
        "find out why; no verdict is given that they could undo",
    ),
    "fallbacks": (
        "a fallback metric scored more than 10% of the answers",
        "{name}: {share} ({count} / {total})",
        "give every question what its metric needs; the facts of its answers say what lacks",
    ),
}
"""Code -> what was found, its evidence, what to do."""


def finding(code: str, severity: Severity, **values: object) -> Finding:
    """A finding in English, with what another language needs to word it."""
    told = {name: clause(value, {}) for name, value in values.items()}
    what, evidence, fix = (filled(text, told) for text in FINDINGS[code])
    return Finding(severity, what, evidence, fix, code, values)


def clause(value: object, translations: Mapping[str, str]) -> object:
    """A value in a language: a clause or a word that it has a translation of, else as it is."""
    if isinstance(value, tuple):
        template, own = value
        return filled(translations.get(template, template), own)
    return translations.get(value, value) if isinstance(value, str) else value
