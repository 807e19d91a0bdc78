"""Learning-rate schedules as factors of the base rate; pure functions of the step."""

import math


def rate_factor(schedule: str, step: int, steps: int, warmup: float) -> float:
    """Factor for update `step` (from 0) of `steps`.

    Rises linearly over the first `warmup` share of the updates, reaching 1 at its end; then stays
    ("constant") or falls to 0 along half a cosine ("cosine"). The first update is never at 0.
    """
    rising = round(steps * warmup)
    if step < rising:
        return (step + 1) / rising
    if schedule == "cosine":
        share = (step - rising) / max(steps - rising, 1)
        return 0.5 * (1 + math.cos(math.pi * share))
    return 1.0
