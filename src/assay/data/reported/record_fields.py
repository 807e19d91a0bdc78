"""What the tables of a reported record are made of: printed numbers, short forms, refusals."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

T = TypeVar("T")

MOST_DIGITS = 40
"""A number is read with this many digits before or after its point; no report prints more."""


def printed(value: Any) -> Decimal:
    """A number with the digits it was printed with; anything else is refused."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise PydanticCustomError("number", "expected a number")
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and max(abs(exponent), abs(number.adjusted())) > MOST_DIGITS:
        raise PydanticCustomError("digits", "a number of this size is no result")
    return number


def several(value: Any) -> Any:
    """One value stands for an array of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def written(value: Any) -> Any:
    """A switch as the word that stands for it; everything else as it is."""
    return str(value).lower() if isinstance(value, bool) else value


def by_cell(value: Any) -> Any:
    """Scores without cells belong to the one cell without a name."""
    return value if isinstance(value, Mapping) else {"": value}


def refused(field: str, problem: str, fix: str = "") -> PydanticCustomError:
    """The error to raise from a validator about `field` of its table."""
    # The texts travel in the context: as a template, their braces would be filled in.
    context = {"field": field, "problem": problem, "fix": fix}
    return PydanticCustomError("refused", "{problem}", context)


Number = Annotated[Decimal, BeforeValidator(printed), Field(allow_inf_nan=False)]
Setting = Annotated[str | Number, BeforeValidator(written)]
Many = Annotated[tuple[T, ...], BeforeValidator(several)]
Count = Annotated[int, Field(ge=0, strict=True)]
Items = Annotated[int, Field(ge=1, strict=True)]
Cells = Annotated[dict[str, Many[Number]], BeforeValidator(by_cell)]
Counts = Annotated[dict[str, Many[Count]], BeforeValidator(by_cell)]
CellCount = Annotated[dict[str, Count], BeforeValidator(by_cell)]


class Part(BaseModel):
    """A table of the record."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    line: int | None = None
    """Line of the report, where a reader knows it."""
    source: str = ""
    """Where the facts come from, when not from the report itself."""
