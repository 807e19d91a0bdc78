"""Which kinds of rotary positions can be computed for several sequences laid end to end.

Packed rows and the sampler work the angles out once for all sequences of a forward pass. That is
right for kinds whose frequencies are fixed; kinds whose frequencies follow from the longest
sequence of the pass would give a short one the angles of a long one. Those are refused.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.errors import InputError

FIELD = "rope_parameters.rope_type"


class RotaryUnsupported(InputError):
    """The model's rotary positions depend on the length of the sequence."""


def refuse_length_dependent(config: Any, file: Path | None = None) -> None:
    """Raise RotaryUnsupported for `dynamic` and `longrope`, which change with the length.

    `config` is a text model's; its kinds are told apart as by Transformers' `dynamic_rope_update`.
    """
    for kind in rotary_kinds(getattr(config, "rope_parameters", None)):
        if "dynamic" in kind or kind == "longrope":
            raise RotaryUnsupported(
                f"rotary positions of type {kind!r} depend on the length of the sequence, which "
                "packed rows and the sampler do not allow for",
                file=file,
                field=FIELD,
                fix="use a model of type default, linear, yarn or llama3",
            )


def rotary_kinds(parameters: Any) -> Iterator[str]:
    """The kinds named in a config's `rope_parameters`, which may be a table for each layer type."""
    if not isinstance(parameters, Mapping):
        return
    if isinstance(kind := parameters.get("rope_type"), str):
        yield kind
    for nested in parameters.values():
        yield from rotary_kinds(nested)
