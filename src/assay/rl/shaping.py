"""Shaping of rewards by length. Masking truncated completions instead is the trainer's choice."""


def overlong_punishment(length: int, max_length: int, buffer: int, factor: float = 1.0) -> float:
    """DAPO's soft overlong punishment, to be added to the reward; between -factor and 0.

    0 up to `max_length - buffer` tokens, then falling linearly to -factor at `max_length`
    (arXiv 2503.14476, eq. 13; verl's `overlong_buffer`, TRL's `get_soft_overlong_punishment`).
    """
    excess = length - (max_length - buffer)
    return -factor * min(max(excess / buffer, 0.0), 1.0)
