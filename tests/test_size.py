"""The house stays small enough to be carried: its totals stay within their limits."""

import ast
import io
import textwrap
import tokenize

from tests import size

BUDGET = {
    "code lines of src": 65_000,
    "files of src": 420,
    "code lines of tests": 55_000,
    "words of docs": 32_000,
    "entries of the English catalogue": 1_150,
    "exception classes": 20,
}
"""What the house may weigh, agents, worlds and known faults included."""


def test_the_house_stays_within_its_budget():
    totals = size.totals()
    assert totals.keys() == BUDGET.keys()
    over = {name: count for name, count in totals.items() if count > BUDGET[name]}
    assert not over


def test_only_lines_with_code_count():
    source = '''
    """What documents
    does not count."""

    # nor does a comment

    def sum(  # but this line does
        left, right
    ):
        "A docstring."
        text = """a text
    in two lines"""
        return left + right; left
    '''
    assert size.code_lines(textwrap.dedent(source)) == 6


def test_as_many_lines_count_as_hold_a_token():
    empty = {getattr(tokenize, name) for name in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT")}
    for file in sorted((size.ROOT / "src").rglob("*.py"))[::40]:
        source = file.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        lines = {n for t in tokens if t.type not in empty for n in range(t.start[0], t.end[0] + 1)}
        documents = {
            n
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
            for n in range(node.lineno, (node.end_lineno or 0) + 1)
        }
        assert size.code_lines(source) == len(lines - documents - {source.count("\n") + 1}), file


def test_exceptions_of_exceptions_count(tmp_path):
    (tmp_path / "far.py").write_text(
        "class Far(Near): pass\nclass Near(ValueError): pass\nclass No: pass\n"
    )
    assert size.exception_classes([tmp_path / "far.py"]) == ["Far", "Near"]
