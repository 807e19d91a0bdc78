"""The files of an exported folder that are text: configuration in YAML, launch scripts, README.

Scripts are for bash; in each, in `launch`, what stands as `{NAME}` is filled in.
"""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any


def yaml_lines(values: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Nested settings as YAML that PyYAML and OmegaConf read alike."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:"
            yield from yaml_lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {scalar(value)}"


def scalar(value: Any) -> str:
    """A value that is no table. PyYAML takes 1e-06 for text and 1.0e-06 for a number."""
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(scalar, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as tables inside tables."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        table = made
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return made


README = """\
# {NAME}, stage {STAGE}, for {PACKAGE}

1. Install {PACKAGE} and `assay-lab[train]`, there or in the Python ASSAY_PYTHON; `bash run.sh`.
2. `sbatch slurm.sh` trains on the nodes of a Slurm job{RAY}.
3. `translation.json` has every setting as it was translated, and {COUNT}; {PROOF}.
"""
"""Three lines."""


def script(name: str, **values: Any) -> str:
    """A launch script, of `launch/NAME.sh`, with its names in braces filled in."""
    text = files("assay.trainers").joinpath(f"launch/{name}.sh").read_text(encoding="utf-8")
    return filled(text, **values)


def filled(template: str, **values: Any) -> str:
    """A template with its names in braces filled in; the braces of bash stay."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", str(value))
    return template
