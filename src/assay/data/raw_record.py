"""One raw object of a data file with the place it came from, so that every error can name it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.errors import InputError

JSON_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "an array",
    type(None): "null",
}


class DataError(InputError):
    """A data file that cannot be read as what it is said to be."""


@dataclass(frozen=True, slots=True)
class Record:
    """An object of a data file. Lines and parquet rows count from 1."""

    file: str
    line: int
    value: Mapping[str, Any]

    @property
    def origin(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def error(self, field: str, problem: str, fix: str | None = None) -> DataError:
        """The error to raise about one field of this record."""
        return DataError(problem, file=self.file, line=self.line, field=field, fix=fix)

    def need(self, field: str, *kinds: type) -> Any:
        """The value of a top-level field that must be there. Raises DataError."""
        if self.value.get(field) is None:
            known = ", ".join(self.value) or "none"
            raise self.error(field, "missing", f"the fields here are: {known}")
        return self.typed(field, self.value[field], *kinds)

    def maybe(self, field: str, *kinds: type) -> Any:
        """The value of a top-level field, or None where it is absent or null."""
        value = self.value.get(field)
        return None if value is None else self.typed(field, value, *kinds)

    def typed(self, path: str, value: Any, *kinds: type) -> Any:
        """`value` itself if its type is one of `kinds`. Raises DataError that names `path`."""
        if type(value) in kinds:
            return value
        wanted = " or ".join(JSON_NAMES[kind] for kind in kinds)
        found = JSON_NAMES.get(type(value), type(value).__name__)
        raise self.error(path, f"is {found}, not {wanted}")

    def others(self, *fields: str) -> dict[str, Any]:
        """The fields that are not among `fields`."""
        return {key: value for key, value in self.value.items() if key not in fields}
