"""Counts the house by room: `python -m tests.size`. `tests/test_size.py` holds the totals.

A code line holds a token that is neither a comment nor part of a docstring, so nothing is won by
packing lines or by dropping empty ones. Docs are counted as `wc -w` counts them.
"""

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLASS = re.compile(r"^ *class (\w+)(?:\[[^]]*\])?\(([^)]*)\)", re.MULTILINE)


def code_lines(source: str) -> int:
    """Lines of one Python file that hold code."""
    texts, documents = set[int](), set[int]()
    nodes: list[ast.AST] = [ast.parse(source)]
    for node in nodes:
        nodes += ast.iter_child_nodes(node)
        if not isinstance(node, ast.Expr | ast.Constant | ast.JoinedStr):
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if not isinstance(node, ast.Expr):
            texts.update(lines)
        elif isinstance(getattr(node.value, "value", None), str):
            documents.update(lines)
    return sum(
        number in texts or not line.lstrip().startswith("#")
        for number, line in enumerate(source.split("\n"), 1)
        if number not in documents and (number in texts or line.strip())
    )


def count(files: Iterable[Path]) -> int:
    """Code lines of the files together."""
    return sum(code_lines(file.read_text(encoding="utf-8")) for file in files)


def exception_classes(source: Iterable[Path]) -> list[str]:
    """Names of the classes that derive, near or far, from an exception."""
    bases = {
        name: set(re.findall(r"\w+", own))
        for file in source
        for name, own in CLASS.findall(file.read_text(encoding="utf-8"))
    }
    ends = ("Exception", "Error", "Interrupt", "Exit")
    raised = {name for name, own in bases.items() if any(base.endswith(ends) for base in own)}
    while more := {name for name, own in bases.items() if own & raised} - raised:
        raised |= more
    return sorted(raised)


def words(pages: Iterable[Path]) -> int:
    """Words as `wc -w` counts them."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def catalogue_entries() -> int:
    """Entries of the English catalogue of words."""
    file = ROOT / "src" / "assay" / "pages" / "wording" / "en.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return sum(len(part) if isinstance(part, dict) else 1 for part in table.values())


def totals() -> dict[str, int]:
    """What `test_size.LIMITS` limits."""
    source = sorted((ROOT / "src").rglob("*.py"))
    docs = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/results").glob("*.md"),
    ]
    return {
        "code lines of src": count(source),
        "files of src": len(source),
        "code lines of tests": count((ROOT / "tests").rglob("*.py")),
        "words of docs": words(docs),
        "entries of the English catalogue": catalogue_entries(),
        "exception classes": len(exception_classes(source)),
    }


def rooms(top: Path) -> dict[str, list[Path]]:
    """Files of each package under `top`; of `lab/`, `tasks/` and `labs/`, of each folder."""
    files: dict[str, list[Path]] = {}
    for file in sorted(top.rglob("*.py")):
        parts = file.relative_to(top).parts
        depth = 2 if parts[0] in ("lab", "tasks", "labs") and len(parts) > 2 else 1
        files.setdefault("/".join(parts[:depth]).removesuffix(".py"), []).append(file)
    return files


def main() -> None:
    """Prints a table of rooms, then the totals."""
    source, tests = rooms(ROOT / "src" / "assay"), rooms(ROOT / "tests")
    for room in sorted({*source, *tests}):
        own = source.get(room, [])
        tested = count(tests.get(room, []))
        print(f"{room:20}{count(own):8,} code lines {len(own):4} files {tested:8,} in tests")
    for name, total in totals().items():
        print(f"{name}: {total:,}")


if __name__ == "__main__":
    main()
