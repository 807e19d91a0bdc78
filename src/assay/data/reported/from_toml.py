"""Reads a TOML record of reported results; docs/audit.md describes the format."""

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

from assay.data.reported.problems import ReportedError, validated
from assay.data.reported.record import Reported


def read_toml(text: str, file: Path) -> Reported:
    """The record of a TOML text. Raises ReportedError for the first problem, with its line."""
    return validated(toml_values(text, file), text, file)


def toml_values(text: str, file: Path) -> dict[str, Any]:
    """The values of a TOML text, decimals with their digits. Raises ReportedError."""
    try:
        # Decimal keeps the digits as printed: 15.00 is not 15.0.
        return tomllib.loads(text, parse_float=Decimal)
    except RecursionError:
        raise ReportedError("not valid TOML: nested too deeply", file=file) from None
    except tomllib.TOMLDecodeError as invalid:
        message, _, place = str(invalid).partition(" (at ")
        numbers = re.findall(r"\d+", place)
        line = int(numbers[0]) if numbers else text.count("\n") + 1
        raise ReportedError(f"not valid TOML: {message}", file=file, line=line) from None
