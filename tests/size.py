"""Counts the lines of the house by room: `python -m tests.size`; CI prints it.

Lines are those of Python files, empty ones and comments too. Templates, catalogues of words and
style sheets are counted beside them; docs are counted in words.
"""

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = {
    "lines of src": 70_000,
    "files of src": 380,
    "lines of tests": 62_000,
    "words of docs": 36_000,
}
"""Most that three people can carry; design.md gives each package its share."""
WORD = re.compile(r"\S*\w\S*")
"""Text between spaces that is more than a stroke of a table."""


def lines(files: Iterable[Path]) -> int:
    """Lines of the files together."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def rooms(top: Path) -> dict[str, tuple[int, int]]:
    """Lines and files of each package under `top`; of `lab/` and `tasks/`, of each folder."""
    files: dict[str, list[Path]] = {}
    for file in sorted(top.rglob("*.py")):
        parts = file.relative_to(top).parts
        depth = 2 if parts[0] in ("lab", "tasks") and len(parts) > 2 else 1
        files.setdefault("/".join(parts[:depth]).removesuffix(".py"), []).append(file)
    return {room: (lines(own), len(own)) for room, own in files.items()}


def totals() -> dict[str, int]:
    """What `LIMITS` limits."""
    source, tests = rooms(ROOT / "src" / "assay"), rooms(ROOT / "tests")
    docs = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return {
        "lines of src": sum(count for count, _ in source.values()),
        "files of src": sum(files for _, files in source.values()),
        "lines of tests": sum(count for count, _ in tests.values()),
        "words of docs": sum(len(WORD.findall(page.read_text(encoding="utf-8"))) for page in docs),
    }


def main() -> None:
    """Prints a table of rooms, and the totals against their limits."""
    source, tests = rooms(ROOT / "src" / "assay"), rooms(ROOT / "tests")
    for room in sorted({*source, *tests}):
        (count, files), (tested, _) = source.get(room, (0, 0)), tests.get(room, (0, 0))
        print(f"{room:20}{count:8,} lines {files:4} files {tested:8,} lines of tests")
    dress = [f for f in (ROOT / "src").rglob("*") if f.suffix in (".jinja", ".toml", ".css")]
    print(f"{'words and styles':20}{lines(dress):8,} lines {len(dress):4} files")
    for name, total in totals().items():
        print(f"{name}: {total:,} (aim {LIMITS[name]:,})")


if __name__ == "__main__":
    main()
