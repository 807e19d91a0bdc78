"""Takes the Python out of what the executor answered; nothing of it is run.

By the rules of AFlow 364399e (`CodeFormatter`, `sanitize`): all ```python blocks, else all blocks,
else the text; of that the longest run of lines that is Python; of that the imports, and what the
function that is asked for needs. So a main guard, examples and prints beside it are left out. What
AFlow leaves out although the function needs it, such as `x: int = 3` or a loop that fills a list,
stays here.
"""

import ast
import symtable
import warnings
from collections.abc import Sequence

FENCE = "```"
MOST_PARSED = 1_000_000
"""Characters that are parsed in search of the longest run; what was found until then is taken."""
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What a text may do to Python's parser."""


def code_in_answer(text: str, function: str = "") -> str:
    """The code that defines `function`, or all that an answer defines without one; "" where it
    defines nothing. What is no Python at all is handed on, for whoever runs it to fail."""
    code = longest_python(
        "\n\n".join(blocks(text, f"{FENCE}python") or blocks(text, FENCE)) or text
    )
    try:
        return needed(parsed(code).body, function)
    except UNREADABLE:
        return code


def blocks(text: str, opening: str) -> list[str]:
    """The closed blocks of a text that begin with `opening`, each stripped."""
    found, at = [], 0
    while (start := text.find(opening, at)) >= 0:
        start += len(opening)
        end = text.find(FENCE, start)
        if end < 0:
            break
        found.append(text[start:end].strip())
        at = end + len(FENCE)
    return found


def longest_python(text: str) -> str:
    """The first of the runs of two lines or more that are Python and have most lines with text;
    the first line where there is none."""
    lines = text.split("\n")
    best, most, left = lines[0], 0, MOST_PARSED
    for first, line in enumerate(lines):
        last = len(lines) if line[:1].strip() else first
        while last - first > 1 and left > 0:
            run = lines[first:last]
            written = sum(map(bool, map(str.strip, run)))
            if written <= most:
                break
            left -= sum(map(len, run))
            try:
                parsed("\n".join(run))
            except UNREADABLE as error:
                # No longer run from here passes the line that the parser stops at.
                wrong = error.lineno if isinstance(error, SyntaxError) else None
                last = min(last - 1, first + (wrong or len(run)) - 1)
            else:
                best, most = "\n".join(run), written
    return best


def parsed(code: str) -> ast.Module:
    """The syntax tree. Raises one of UNREADABLE."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def needed(body: Sequence[ast.stmt], function: str) -> str:
    """The imports of a module's statements, then those that set what `function` reads, directly or
    through others; all that set a name where `function` is "". Raises one of UNREADABLE."""
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in body if node not in imports]
    bound = [binds(node) for node in others]
    wanted = {name for names in bound for name in names if function in ("", name)}
    touched = [names | changed(node) for node, names in zip(others, bound, strict=True)]
    read = [reads(node) for node in others]
    before = -1
    while before != len(wanted):
        before = len(wanted)
        for names, more in zip(touched, read, strict=True):
            wanted |= more if names & wanted else set()
    kept = [node for node, names in zip(others, touched, strict=True) if names & wanted]
    return "\n".join(ast.unparse(node) for node in (*imports, *kept))


def binds(node: ast.stmt) -> set[str]:
    """The module's names that a statement binds."""
    table = symtable.symtable(ast.unparse(node), "answer.py", "exec")
    return {
        each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()
    }


def changed(node: ast.stmt) -> set[str]:
    """The names whose values a statement changes where it stands, as `seen.add(1)` does."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    return {name for each in ast.walk(node) for name in changes(each)}


def changes(node: ast.AST) -> set[str]:
    """The name whose value a node changes: by an item, an attribute, or a method called alone."""
    match node:
        case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store()):
            target: ast.expr = node
        case ast.Expr(value=ast.Call(func=ast.Attribute() as target)):
            pass
        case _:
            return set()
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return {target.id} if isinstance(target, ast.Name) else set()


def reads(node: ast.stmt) -> set[str]:
    """The module's names that a statement reads or binds, those of its functions too."""
    tables = [symtable.symtable(ast.unparse(node), "answer.py", "exec")]
    found = set(tables[0].get_identifiers())
    for table in tables:
        tables += table.get_children()
        found |= {each.get_name() for each in table.get_symbols() if each.is_global()}
    return found
