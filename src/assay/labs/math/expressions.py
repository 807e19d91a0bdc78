r"""Reads one mathematical expression as sympy has it, strictly, and tells whether two are equal.

latex2sympy lets pass what it does not know: `2\foo` is 2, `2(3)` is 5, `4 2` is 6, `x'` is x. Here
every sign of the text has a meaning or the text is no expression (None). Integrals and limits alone
are math-verify's to read. Nothing is evaluated that the text is not: names become symbols, never
functions of Python.

`own_verdict` is math-verify's own verdict, which stands beside that of `judging`. Its timeouts rest
on SIGALRM, which fails off the main thread, so they are off here; the worker's deadline takes their
place. Never called in the lab's own process.
"""

import operator
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy import Rational

# Priority 0: a boxed expression is taken before any other.
EXTRACTORS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())


def own_verdict(gold: str, answer: str) -> bool | None:
    """math-verify's verdict; None where the gold cannot be read, or no reading is equal and some
    comparison broke off, for then it is not known that they differ."""
    golds, broken = _read(gold), False
    for one, other in product(golds, _read(answer)):
        try:
            if verify(one, other, timeout_seconds=None, raise_on_error=True):
                return True
        except Exception:
            broken = True
    return None if broken or not golds else False


def _read(text: str) -> list[Any]:
    return parse(text, EXTRACTORS, parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]


def is_read(text: str) -> bool:
    """Whether math-verify reads anything in a text, be it as a text."""
    return bool(_read(text))


# Compiles math-verify's patterns and builds its grammar once in the worker, not in every call.
own_verdict(r"$\frac{1}{2}$", r"\boxed{0.5}")


LONGEST = 2_000
EXACT = Rational(1, 10**20)
"""Relative to the larger one: what two values that are equal may differ by, of 30 digits."""

_TOKEN = re.compile(
    r"\s*(\d+\.\d*\\(?:overline|dot)\s*\{\d+\}|\d+(?:\.\d+)?|\.\d+|\\[a-zA-Z]+\*?|[a-zA-Z]|\\[{}|%]"
    r"|\*\*|[-+*/^_!|(){}\[\],'%°=]|[\u0370-\u03ff])"
)
_REPEATING = re.compile(r"(\d+)\.(\d*)\\\w+\s*\{(\d+)\}")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\(?:circ|degree)(?![a-zA-Z]))")
_SIMPLE_QUOTIENT = re.compile(r"(?<![\d./^}])(\d+)/(\d+)(?=\s*(?:\\pi|\\sqrt|[a-zA-Zπ]|\())")
GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta"
    " iota kappa lambda mu nu xi rho sigma tau upsilon "
    "phi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar"
)
NAMES = {rf"\{name}": name for name in GREEK.split()} | {
    rf"\var{name}": name for name in ("epsilon", "theta", "phi", "rho", "sigma")
}
CONSTANTS: dict[str, Any] = {
    r"\pi": sympy.pi,
    "π": sympy.pi,
    r"\infty": sympy.oo,
    "e": sympy.E,
    "i": sympy.I,
}
FUNCTIONS: dict[str, Any] = {
    rf"\{name}": getattr(sympy, name)
    for name in ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "exp"]
} | {
    r"\ln": sympy.log,
    r"\log": lambda x: sympy.log(x, 10),
    r"\lg": lambda x: sympy.log(x, 10),
    r"\arcsin": sympy.asin,
    r"\arccos": sympy.acos,
    r"\arctan": sympy.atan,
}
CLOSING = {
    "(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil",
    r"\lvert": r"\rvert", "|": "|",
}  # fmt: skip

TIMES, OVER = ("*", r"\cdot", r"\times", r"\ast"), ("/", r"\div")
OF_TWO: dict[str, Any] = {r"\frac": operator.truediv, r"\binom": sympy.binomial}
STARTS = {*CLOSING, *CONSTANTS, *NAMES, *FUNCTIONS, *OF_TWO, r"\sqrt"}
WRAPPED: dict[str, Any] = {r"\lfloor": sympy.floor, r"\lceil": sympy.ceiling}
WRAPPED |= {r"\lvert": sympy.Abs, "|": sympy.Abs}


@lru_cache(maxsize=512)
def expression(text: str) -> Any:
    """The expression that all of the text is, decimals as fractions; None where it is none."""
    if not text.strip() or len(text) > LONGEST:
        return None
    text = _DEGREES.sub("°", _SIMPLE_QUOTIENT.sub(r"\\frac{\1}{\2}", text))
    try:
        reader = _Reader(text)
        value = reader.sum()
        return value if reader.token is None else None
    except (SyntaxError, RecursionError):
        return None


class _Reader:
    """Reads by recursive descent: sums of products of powers."""

    def __init__(self, text: str):
        self.tokens = _TOKEN.findall(text)
        if "".join(text.split()) != "".join("".join(self.tokens).split()):
            raise SyntaxError  # a sign that is none
        self.at = 0
        self.bars = False
        """Whether a bar closes an absolute value."""

    @property
    def token(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, *wanted: str) -> str:
        token = self.token
        if token is None or (wanted and token not in wanted):
            raise SyntaxError
        self.at += 1
        return token

    def sum(self) -> Any:
        value = self._sign() * self.product()
        while self.token in ("+", "-"):
            value = value + self._sign() * self.product()
        return value

    def _sign(self) -> int:
        sign = 1
        while self.token in ("+", "-"):
            sign *= -1 if self.take() == "-" else 1
        return sign

    def product(self) -> Any:
        value = self.power()
        while self.token in TIMES or self.token in OVER or self.starts():
            divides = self.token in OVER
            if divides or self.token in TIMES:
                self.take()
            factor = self._sign() * self.power()
            value = value / factor if divides else value * factor
        return value

    def starts(self) -> bool:
        """Whether a factor begins here that is multiplied without a sign."""
        token = self.token
        if token is None or token[0] == ".":
            return False
        if token[0].isdigit():  # 4!2! is a product, 4 2 none
            return self.tokens[self.at - 1] == "!"
        if token == "|":
            return not self.bars
        return token.isalpha() or token in STARTS

    def power(self) -> Any:
        value = self.base()
        while self.token in ("^", "**", "!", "°"):
            mark = self.take()
            if mark == "!":
                if self.token == "!":
                    raise SyntaxError
                value = sympy.factorial(value)
            elif mark == "°":
                value = value * sympy.pi / 180
            else:
                value = value ** self.argument()
                if self.token in ("^", "**"):
                    raise SyntaxError
        return value

    def argument(self) -> Any:
        r"""What follows `\frac`, `^` and the like: a group in braces, a digit or one sign."""
        if self.token == "{":
            return self.inside("{")
        if self.token in ("-", "+"):
            return self._sign() * self.base()
        token = self.token
        if token and token[0].isdigit() and len(token) > 1 and token.isdigit():
            self.tokens[self.at : self.at + 1] = [token[0], token[1:]]
        return self.base()

    def inside(self, opened: str) -> Any:
        self.take(opened)
        bars, self.bars = self.bars, opened == "|"
        value = self.sum()
        self.take(CLOSING[opened])
        self.bars = bars
        return value

    def base(self) -> Any:
        token = self.token
        if token is None:
            raise SyntaxError
        if token[0].isdigit() or token[0] == ".":
            return self.number()
        if token in CLOSING:
            value = self.inside(token)
            return WRAPPED[token](value) if token in WRAPPED else value
        self.take()
        if token in OF_TWO:
            return OF_TWO[token](self.argument(), self.argument())
        if token == r"\sqrt":
            degree = self.inside("[") if self.token == "[" else sympy.Integer(2)
            return sympy.Pow(self.argument(), 1 / degree)
        if token in FUNCTIONS:
            return self.function(token)
        return self.name(token)

    def number(self) -> Any:
        token = self.take()
        repeating = _REPEATING.fullmatch(token)
        if repeating:
            whole, fixed, again = repeating.groups()
            top = int(whole + fixed + again) - int(whole + fixed)
            return Rational(top, 10 ** len(fixed) * (10 ** len(again) - 1))
        value = Rational(token)
        if self.token != r"\frac" or not token.isdigit():
            return value
        # A mixed number.
        self.take()
        top, bottom = self.argument(), self.argument()
        if not (top.is_Integer and bottom.is_Integer and 0 < top < bottom):
            raise SyntaxError
        return value + top / bottom

    def function(self, token: str) -> Any:
        function, power = FUNCTIONS[token], None
        while self.token in ("_", "^"):
            if self.take() == "^":
                power = self.argument()
            elif token == r"\log":
                base = self.argument()
                function = lambda x, base=base: sympy.log(x, base)  # noqa: E731
            else:
                raise SyntaxError
        value = function(self.operand())
        return value if power is None else value**power

    def operand(self) -> Any:
        """What a function is applied to: a bracket, or the product up to the next function."""
        if self.token in ("(", "[", "{", "|"):
            return self.power() if self.token != "(" else self.inside("(")
        value = self._sign() * self.power()
        while self.starts() and self.token not in FUNCTIONS and self.token != "(":
            value = value * self.power()
        return value

    def name(self, token: str) -> Any:
        if not (token.isalpha() or token in NAMES or token in CONSTANTS):
            raise SyntaxError
        sub = ""
        if self.token == "_":
            self.take()
            tokens = [self.take()]
            while tokens.count("{") > tokens.count("}"):
                tokens.append(self.take())
            sub = "".join(tokens[1:-1] if tokens[0] == "{" else tokens)
        if token in CONSTANTS and not sub:
            return CONSTANTS[token]
        return sympy.Symbol(NAMES.get(token, token) + (f"_{sub}" if sub else ""))


_PLACES = (
    [Rational(n, 7) for n in (5, 9, 16, 23, 31, 38)],
    [Rational(n, 11) for n in (25, 13, 7, 40, 29, 3)],
    [-Rational(n, 13) for n in (9, 17, 5, 31, 22, 40)],
    [Rational(n, 5) * (-1) ** n for n in (3, 4, 8, 11, 17, 22)],
)
_WHOLE = ([1, 4, 2, 5, 3, 6], [2, 3, 6, 1, 7, 5], [7, 3, 4, 8, 2, 9], [6, 2, 9, 3, 5, 4])
_STEPS = [[n + 5 * k for k in range(6)] for n in range(1, 26)]
"""Functions with steps, such as floors, may differ at whole numbers alone."""
_COUNTS = re.compile(r"[kmnpqKMN](?:_.*)?")


STEPPED = (sympy.floor, sympy.ceiling, sympy.Mod)


def identical(one: Any, other: Any) -> bool:
    """Whether two expressions are equal for all values of their symbols: at points off the whole
    numbers, or, where the names are those of counts, at whole ones. Points at which one has no real
    value say nothing, for roots and logarithms are meant where they have one."""
    if one == other:
        return True
    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    constant, small = sympy.Symbol("C"), sympy.Symbol("c")
    if constant in symbols and small in symbols:  # each calls it otherwise
        one, other = one.subs(small, constant), other.subs(small, constant)
    if one.coeff(constant) == other.coeff(constant) == 1:  # antiderivatives
        gap = one - other
        moved = gap.subs({name: name + Rational(1, 3) for name in gap.free_symbols})
        return identical(gap, moved)
    if len(symbols) > len(_PLACES[0]) or one.has(sympy.oo) or other.has(sympy.oo):
        return False
    if (one.has(*STEPPED) or other.has(*STEPPED)) and not _agree(one, other, symbols, _STEPS):
        return False
    if _agree(one, other, symbols, _PLACES):
        return True
    counts = all(_COUNTS.fullmatch(str(symbol)) for symbol in symbols)
    return counts and _agree(one, other, symbols, _WHOLE)


def _agree(one: Any, other: Any, symbols: list[Any], places: Any) -> bool:
    seen = 0
    for place in places:
        at = dict(zip(symbols, place, strict=False))
        left, right = one.subs(at).doit(), other.subs(at).doit()
        values = left.evalf(30), right.evalf(30)
        if not all(value.is_number and value.is_finite for value in values):
            continue
        real = [bool(value.is_real) for value in values]
        if not all(real) and not one.has(sympy.I):
            if any(real) and one.has(sympy.Abs) != other.has(sympy.Abs):
                return False
            continue
        if constant_gap(left, right)[0] != 0:
            return False
        seen += 1
    return seen >= 2


def constant_gap(one: Any, other: Any) -> tuple[Any, Any]:
    """The distance of two numbers, 0 where it is within rounding, and the size of the larger."""
    if one.is_Rational and other.is_Rational:
        return abs(one - other), max(abs(one), abs(other))
    values = one.evalf(40), other.evalf(40)
    if not all(value.is_number and value.is_finite for value in values):
        return sympy.oo, sympy.oo
    gap, most = abs(values[0] - values[1]).evalf(), max(abs(value).evalf() for value in values)
    return (sympy.S.Zero if gap <= EXACT * most else gap), most


def difference(sides: Sequence[str]) -> Any:
    """Left minus right of an equation; None where it is none."""
    left, right = map(expression, sides) if len(sides) == 2 else (None, None)
    return None if left is None or right is None else left - right


def proportional(known: Sequence[str], sides: Sequence[str]) -> bool:
    """Whether one equation is a constant, not 0, times the other."""
    one, other = difference(known), difference(sides)
    if one is None or other is None:
        return False
    symbols = sorted(one.free_symbols, key=str)
    if not symbols or one.free_symbols != other.free_symbols:
        return False
    at = dict(zip(symbols, _PLACES[0], strict=False))
    base, ratio = one.subs(at), other.subs(at)
    return base.evalf(15) != 0 and identical(one * ratio, other * base)
