"""Freezes weights by patterns over their names, as `fnmatch` reads them."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from assay.errors import InputError, nearest


class FreezePatternError(InputError):
    """A pattern matches no weight."""


def freeze_matching(model: nn.Module, patterns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Freeze what matches, train the rest; returns the names that each pattern matched.

    A tied weight is frozen when any of its names matches. Raises FreezePatternError, before
    anything changes, with the nearest names when a pattern matches nothing.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    matched = {p: tuple(name for name in named if fnmatchcase(name, p)) for p in patterns}
    for pattern, names in matched.items():
        if not names:
            raise FreezePatternError(
                f"pattern {pattern!r} matches no weight",
                field="adapt.patterns",
                fix=nearest(pattern, named),
            )
    model.requires_grad_(True)
    for names in matched.values():
        for name in names:
            named[name].requires_grad_(False)
    return matched
