"""The lines of a file of JSON objects as they lie there."""

import json
from pathlib import Path
from typing import Any


def json_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
