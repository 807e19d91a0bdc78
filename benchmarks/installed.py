"""Measure what `pip install assay-lab` alone brings: packages, and megabytes on this disk.

python -m benchmarks.installed
"""

import json
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks.results import RESULTS


def required(name: str, extras: tuple[str, ...] = ()) -> set[str]:
    """A package and all that it needs here, without the extras that nobody asks for."""
    names = {name.lower().replace("_", "-")}
    for text in distribution(name).requires or ():
        need = Requirement(text)
        marker = need.marker
        if marker is None or any(marker.evaluate({"extra": each}) for each in extras or ("",)):
            names |= required(need.name, tuple(need.extras))
    return names


def megabytes(name: str) -> float:
    """The size of a package's files, without what Python compiled of them."""
    paths = (Path(str(file.locate())) for file in distribution(name).files or ())
    return (
        sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.exists()) / 1e6
    )


if __name__ == "__main__":
    sizes = {each: megabytes(each) for each in sorted(required("assay-lab"))}
    biggest = sorted(sizes, key=sizes.__getitem__)[-3:]
    result = {"packages": len(sizes), "megabytes": round(sum(sizes.values()))}
    result |= {"biggest": {each: round(sizes[each]) for each in biggest}}
    (RESULTS / "installed.json").write_text(json.dumps(result, indent=1) + "\n")
