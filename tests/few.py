"""Cases of which `make test` takes the first few, and `make test-all` every one."""

from collections.abc import Iterable
from typing import Any

import pytest


def few(names: str, cases: Iterable[Any], fast: int = 2) -> pytest.MarkDecorator:
    """Parametrizes a test as pytest does; all cases behind the first `fast` ones are slow."""
    made = []
    for number, case in enumerate(cases):
        values = case if "," in names else (case,)
        made.append(pytest.param(*values, marks=[pytest.mark.slow] if number >= fast else []))
    return pytest.mark.parametrize(names, made)
