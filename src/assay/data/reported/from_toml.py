"""Reads a TOML record of reported results; docs/audit.md describes the format."""

from decimal import Decimal
from pathlib import Path
from typing import Any

from assay.data.reported.reported_errors import ReportedError, validated
from assay.data.reported.reported_record import Reported
from assay.data.toml_lines import key_lines, line_of
from assay.data.toml_text import TomlInvalid, load_toml, long_integers


def read_toml(text: str, file: Path) -> Reported:
    """The record of a TOML text. Raises ReportedError for the first problem, with its line."""
    return validated(toml_values(text, file), text, file)


def toml_values(text: str, file: Path) -> dict[str, Any]:
    """The values of a TOML text, decimals with their digits. Raises ReportedError."""
    try:
        # Decimal keeps the digits as printed: 15.00 is not 15.0.
        values = load_toml(text, parse_float=Decimal)
    except TomlInvalid as invalid:
        problem = f"not valid TOML: {invalid.problem}"
        raise ReportedError(problem, file=file, line=invalid.line) from None
    for path, problem, fix in long_integers(values):
        field = ".".join(map(str, path))
        line = line_of(path, key_lines(text))
        raise ReportedError(problem, file=file, line=line, field=field, fix=fix)
    return values
