"""Rows about GRPO's estimators that all tables share, and the conditions under which parts differ.

Nothing here knows a tool's keys.
"""

from collections.abc import Callable

from assay.rl.advantages import ADVANTAGES
from assay.rl.signal import may_drop
from assay.trainers.settings import Settings
from assay.trainers.translation import Row, Unlike

OPTIONS = {
    "ddof": "takes the unbiased deviation",
    "least_std": "has no least deviation",
    "limit": "has no bound of advantages",
    "lone": "has no such advantage of a completion alone in its group",
    "scale_by_std": "has no such estimator",
    "gamma": "has no such discount",
    "f_norm": "has no such estimator",
    "egpo_lambda": "has no such estimator",
    "egpo_alpha": "has no such estimator",
}
NEUTRAL = {"ddof": 1, "lone": "zero", "scale_by_std": True, "gamma": 1.0, "f_norm": 1.0}
"""Values that change nothing where a tool has no such option."""


def option_row(option: str, what: str) -> Row:
    """The row of a number of the estimator that tools do not take."""

    def acts(settings: Settings) -> bool:
        table = settings.grpo.advantage_options
        given = None if table is None else getattr(table, option)
        if settings.algorithm.advantage not in ADVANTAGES or given is None:
            return False
        return given != NEUTRAL.get(option)

    return Row(f"advantage_options.{option}", unlike=(Unlike(what, acts, refused=True),))


ADVANTAGE_ROWS: tuple[Row, ...] = tuple(option_row(*each) for each in OPTIONS.items())


def other_estimator(*known: str) -> Callable[[Settings], bool]:
    """Whether the stage's estimator is none of the known ones, or has numbers of its own."""

    def is_other(settings: Settings) -> bool:
        own = settings.algorithm
        preset = own.options
        plain = settings.grpo.advantage_options is not None or (
            preset.least_std == 0 and preset.limit == float("inf")
        )
        return own.advantage not in known or not plain

    return is_other


def other_kl(*known: str) -> Callable[[Settings], bool]:
    """Whether there is KL, estimated otherwise."""
    return lambda settings: bool(settings.grpo.kl.coef) and settings.grpo.kl.estimator not in known


def drops(settings: Settings) -> bool:
    """Whether the stage leaves groups without signal out."""
    stage = settings.grpo
    if stage.drop_without_signal != "auto":
        return stage.drop_without_signal
    kl = stage.kl.coef
    return may_drop(
        advantage=settings.algorithm.advantage,
        kl_coef=kl if isinstance(kl, float | int) else max(kl.start, kl.end or 0.0),
        entropy_coef=stage.entropy_coef,
        lone=settings.algorithm.options.lone,
    )


def dropped_uncounted(settings: Settings) -> bool:
    """Whether groups without signal are left out of the averages as well."""
    return drops(settings) and not settings.algorithm.counts_dropped


def importance_mode(settings: Settings) -> str:
    """The correction as `token_truncate`, `sequence_mask` and the like."""
    own = settings.importance
    return f"{own.mode}_{'mask' if own.how == 'mask' else 'truncate'}"


DROPPED_ROW = Row(
    "drop_without_signal",
    "",
    "nothing is left out, which changes no gradient where the averages count it",
    unlike=(
        Unlike("counts groups without signal in its averages", dropped_uncounted),
        Unlike(
            "steps with a gradient of 0 where no group has signal, so that moments move the "
            "weights; Assay takes no step",
            drops,
        ),
    ),
)
