"""Values that tests and the code under test share over a pipe; the code may be hostile.

Plain values travel whole, with their types. Mutable ones are numbered within a call, so that what
is shared stays shared, and come back with what they hold after it. Functions and objects of the
code stay where they are and are asked from afar: a `Remote` equals no plain value, and no
comparison with one is made there. What the tests make themselves is not handed over.

Messages are lines of JSON. A request is {"do": operation, "args": ..., "kwargs": ...}; its reply
{"value": ...}, {"raised": ...}, {"end": true} for an iterator's end, or {"none": why}, with what
the arguments hold, {"held": ...}.
"""

import builtins
import faulthandler
import json
import operator
import os
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial, partialmethod
from itertools import islice
from typing import Any

LONGEST_MESSAGE = 1 << 24
"""Bytes of one message."""
LONGEST_ITERATOR = 100_000
"""Items of an iterator that a test hands over."""
WHY = 300
"""Characters of a reason."""

PLAIN: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    # A decimal text of more than 4300 digits is refused by Python.
    int: (hex, partial(int, base=16)),
    float: (float.__repr__, float),
    complex: (complex.__repr__, complex),
    bytes: (bytes.hex, bytes.fromhex),
    range: (repr, lambda text: range(*map(int, text[6:-1].split(",")))),
    Decimal: (str, Decimal),
    Fraction: (str, Fraction),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (lambda v: v // timedelta.resolution, lambda n: n * timedelta.resolution),
}
"""Types whose values JSON holds in another form: how it is written and read."""
FROZEN: dict[type, Callable[[list[Any]], Any]] = {
    tuple: tuple,
    frozenset: frozenset,
    type({}.keys()): lambda items: dict.fromkeys(items).keys(),
    type({}.values()): lambda items: dict(enumerate(items)).values(),
    type({}.items()): lambda items: dict(items).items(),
}
"""Types of several values that cannot be changed: how one is made of a list."""
MUTABLE = (list, bytearray, set, dict, deque, OrderedDict, defaultdict, Counter)
"""Types that can be changed; a deque's bound and a dictionary's default stay where they are."""
NAMES: dict[str, type] = {kind.__name__: kind for kind in (*PLAIN, *FROZEN, *MUTABLE)}
BASES: tuple[Any, ...] = (str, int, float, complex, bytes, tuple, list, set, frozenset, dict)
"""A value of a class that derives from one of these travels as one of it."""
ENDS = (StopIteration, StopAsyncIteration)
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("eq", "getitem", "setitem", "contains")},
    **{kind.__name__: kind for kind in (str, repr, len, bool, hash, iter, next)},
    "getattr": getattr,
    "setattr": setattr,
    "isinstance": lambda kind, value: isinstance(value, kind),
    "call": lambda called, *args, **kwargs: called(*args, **kwargs),
}
"""What can be asked of an object from afar."""


def refill(value: Any, items: list[Any]) -> None:
    """Give a mutable value other contents."""
    value.clear()
    fill = value.extend if hasattr(value, "extend") else value.update
    fill(dict(items) if isinstance(value, dict) else items)


class NoAnswer(BaseException):
    """The code neither returned a value nor raised an exception: its process ended, it does not
    run, it raised SystemExit. No `except Exception` of a test catches it."""


class Remote:
    """An object of the code, as it stands among the tests."""

    def __init__(self, tested: Any, number: int):
        object.__setattr__(self, "_tested", tested)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._tested.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._tested.ask("setattr", self, name, value)

    def __ask__(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """What a special method gives; Python refuses a value of a wrong type."""
        return self._tested.ask(operation, self, *args, **kwargs)

    __hash__ = partialmethod(__ask__, "hash")  # type: ignore[assignment]

    def __instancecheck__(self, value: Any) -> bool:
        return self._tested.ask("isinstance", self, value) is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self._tested.ask("eq", self, other) is True


for _name in OPERATIONS.keys() - {"eq", "hash", "getattr", "setattr", "isinstance"}:
    setattr(Remote, f"__{_name}__", partialmethod(Remote.__ask__, _name))


class Values:
    """The values of one request and its reply, on either side."""

    def __init__(self, keep: Callable[[Any], int] | None, known: Callable[[int], Any]):
        """`keep` numbers an object that stays on this side, None where none may be asked for;
        `known` gives what a number stands for."""
        self.keep, self.known = keep, known
        self.objects: list[Any] = []
        """The mutable ones, in the order in which both sides meet them."""
        self.numbers: dict[int, int] = {}

    def write(self, value: Any) -> Any:
        """A value as JSON. Raises NoAnswer for what must not leave this process."""
        if value is None or value is True or value is False or type(value) is str:
            return value
        kind: Any = type(value)
        if id(value) in self.numbers:
            return {"same": self.numbers[id(value)]}
        if kind is Remote:
            return {"object": value._number}
        if kind in PLAIN:
            return {kind.__name__: PLAIN[kind][0](value)}
        if kind in FROZEN:
            return {kind.__name__: [self.write(each) for each in value]}
        if kind in MUTABLE:
            self._number(value)
            return {kind.__name__: self.contents(value)}
        for base in BASES:
            if isinstance(value, base):
                return self.write(value[:] if base is str else base(value))
        if kind.__module__ == "numpy" and hasattr(kind, "tolist"):
            return self.write(value.tolist())
        if self.keep is not None:
            if isinstance(value, type) and issubclass(value, Exception):
                return {"exception": nearest(value).__name__}
            return {"object": self.keep(value)}
        if isinstance(value, Iterator):
            return {"iterator": [self.write(each) for each in islice(value, LONGEST_ITERATOR)]}
        raise NoAnswer(f"tests hand over plain values, and this is a {kind.__name__}")

    def read(self, value: Any) -> Any:
        """The value of what `write` wrote. Raises any Exception for what it did not write."""
        if not isinstance(value, dict):
            return value
        (name, inner), *_ = value.items()
        kind = NAMES.get(name)
        if kind in PLAIN:
            return PLAIN[kind][1](inner)
        if kind in FROZEN:
            return FROZEN[kind]([self.read(each) for each in inner])
        if kind in MUTABLE:
            made = kind()
            self._number(made)
            refill(made, [self.read(each) for each in inner])
            return made
        if name == "same":
            return self.objects[inner]
        if name == "exception":
            return nearest(getattr(builtins, inner))
        if name == "iterator":
            return iter([self.read(each) for each in inner])
        return self.known(value["object"])

    def _number(self, value: Any) -> None:
        self.numbers[id(value)] = len(self.objects)
        self.objects.append(value)

    def raised(self, error: Exception) -> dict[str, Any]:
        """The reply for an exception: its class's nearest built-in one, its arguments, its text."""
        args, kind = self.write(error.args), nearest(type(error)).__name__
        return {"raised": {"kind": kind, "args": args, "text": described(error)}}

    def exception(self, kind: str, args: Any, text: str) -> Exception:
        """An exception as it was raised there."""
        try:
            return nearest(getattr(builtins, kind))(*self.read(args))
        except Exception:
            return Exception(str(text)[:WHY])

    def contents(self, value: Any) -> list[Any]:
        """What a mutable value holds: its items, or its pairs of key and value."""
        return [self.write(each) for each in (value.items() if isinstance(value, dict) else value)]

    def take_contents(self, held: list[Any]) -> None:
        """Give the arguments here what they hold there after the call."""
        for value, items in zip(self.objects, held, strict=False):
            refill(value, [self.read(each) for each in items])


def nearest(kind: type[Exception]) -> type[Exception]:
    """The first built-in exception among a class and its bases. Not StopIteration, which would end
    a test's loop inside `all(map(...))` as if all had held."""
    for each in kind.__mro__:
        known = getattr(builtins, each.__name__, None) is each and issubclass(each, Exception)
        if known and not issubclass(each, ENDS):
            return each
    raise TypeError(f"{kind} is no exception")


def described(error: BaseException) -> str:
    """Its class and its text; what NoAnswer says is its text alone."""
    return str(error) if isinstance(error, NoAnswer) else f"{type(error).__name__}: {error}"


def serve_code() -> None:
    """Run the code that the first line of standard input holds, then do what is asked of it."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    first = json.loads(reader.readline())
    names: dict[str, Any] = {"__name__": "answer"}
    problem = ""
    faulthandler.dump_traceback_later(first["seconds"], file=2, exit=True)
    try:
        exec(compile(first["answer"], "answer.py", "exec"), names)
    except BaseException as error:
        names, problem = {}, described(error)
    kept: dict[int, Any] = {}

    def keep(value: Any) -> int:
        kept[id(value)] = value
        return id(value)

    def named(name: str) -> Any:
        if name not in names:
            raise NoAnswer(problem or f"the code has no {name}")
        return names[name]

    operations = {**OPERATIONS, "name": named}
    for line in reader:
        faulthandler.dump_traceback_later(first["seconds"], file=2, exit=True)
        request = json.loads(line)
        values, operation = Values(keep, kept.__getitem__), request["do"]
        args = [values.read(each) for each in request["args"]]
        kwargs = {name: values.read(each) for name, each in request["kwargs"].items()}
        shared = [*values.objects]
        try:
            reply: dict[str, Any] = {"value": values.write(operations[operation](*args, **kwargs))}
        except StopIteration as error:
            reply = {"end": True} if operation == "next" else values.raised(error)
        except Exception as error:
            reply = values.raised(error)
        except BaseException as error:
            reply = {"none": described(error)}
        reply["held"] = [values.contents(each) for each in shared]
        writer.write(json.dumps(reply).encode() + b"\n")
        writer.flush()
        faulthandler.cancel_dump_traceback_later()
