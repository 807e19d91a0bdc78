"""The base model of every table of an experiment file: frozen, strict, no unknown keys.

Attribute docstrings are the descriptions from which docs/experiment.md is generated.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from assay.data.files import with_scheme
from assay.errors import InputError

T = TypeVar("T")

Many = Annotated[tuple[T, ...], Strict(False)]
"""A TOML array, kept as a tuple; its elements stay strictly typed."""
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Few = Annotated[int, Field(ge=1, le=10_000)]
"""Of what is there all at once."""
Tokens = Annotated[int, Field(ge=1, le=10**6)]
Temperature = Annotated[float, Field(ge=1e-3, le=100)]
"""Below, float32 scores divided by it are those of greedy decoding; above, all words are alike."""
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=100)]
"""Of a table; folders and files are named after it."""


Refusals = Iterator[PydanticCustomError]


class SpecTable(BaseModel):
    """A table of the experiment file."""

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    def _conflicts(self) -> Refusals:
        """What of its values does not go together."""
        yield from ()

    def _one_of(self, one: str, other: str) -> Refusals:
        """Exactly one of two keys has to be there."""
        there = [getattr(self, key) is not None for key in (one, other)]
        if there[0] == there[1]:
            which = "both" if there[0] else "neither"
            yield refused(one, f"{which} of {one!r} and {other!r} given", "write one of them")

    def _unread(self, keys: Iterable[str], problem: str, fix: str = "remove it") -> Refusals:
        """Keys that are written, not as their default, where nothing reads them."""
        for key in keys:
            if getattr(self, key) != type(self).model_fields[key].default:
                yield refused(key, problem, fix)

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        raise_all(self._conflicts())
        return self


def refused(field: str, problem: str, fix: str = "") -> PydanticCustomError:
    """The error to raise from a validator about `field`, dotted and relative to its table."""
    # The texts travel in the context: as a template, their braces would be filled in.
    context = {"field": field, "problem": problem, "fix": fix}
    return PydanticCustomError("refused", "{problem}", context)


def raise_all(problems: Iterable[PydanticCustomError]) -> None:
    """Raise what a validator refuses as one error that holds them all; nothing where there is none.

    A validator can raise once only.
    """
    errors = list(problems)
    if errors:
        contexts = [error.context for error in errors]
        raise PydanticCustomError("refused", "{problem}", {**(contexts[0] or {}), "all": contexts})


def _with_scheme(text: str) -> str:
    try:
        return with_scheme(text)
    except InputError as error:
        raise refused("", error.problem, error.fix or "") from error


Source = Annotated[str, AfterValidator(_with_scheme)]
"""`KIND:NAME`; a bare `OWNER/NAME` is one of the Hugging Face hub."""


def none_for(default: Any) -> AfterValidator:
    """Reads a default that is written out as if it were left out, so that both are alike."""
    return AfterValidator(lambda value: None if value == default else value)


class RenderingSettings(SpecTable):
    """How conversations become text. Rows may carry template options of their own."""

    rendering: str = "auto"
    """`auto`, `template`, `template_bare`, `hermes`, `qwen3`, `qwen3_fc`, `completion`
    (docs/renderings.md)."""
    template_options: dict[str, Any] | None = None
    """Variables of the chat template: `{ enable_thinking = false }`."""
    keep_special: Many[str] | None = Field(default=None, min_length=1)
    """Special tokens that assistant messages may hold: `["<think>", "</think>"]`."""


def rendering_key(settings: RenderingSettings) -> str:
    """The same for tables that write conversations alike."""
    return repr([getattr(settings, name) for name in RenderingSettings.model_fields])
