"""Values that tests and the code under test share over a pipe; the code may be hostile.

Plain values travel whole, with their types. Mutable ones are numbered within a call, so that what
is shared stays shared and what the call changed in its arguments is changed here too. Functions and
objects of the code stay where they are and are asked from afar: a `Remote` equals no plain value,
and no comparison with one is made there. What the tests make themselves is not handed over.

Messages are lines of JSON. A request is {"do": operation, "args": ..., "kwargs": ...}; its reply
{"value": ..., "changed": ...}, {"raised": ..., "changed": ...}, {"end": true} for an iterator's
end, or {"none": why}.
"""

import builtins
import collections
import datetime
import json
import operator
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
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
    Decimal: (str, Decimal),
    Fraction: (
        lambda v: [hex(v.numerator), hex(v.denominator)],
        lambda v: Fraction(*(int(part, 16) for part in v)),
    ),
    datetime.datetime: (datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.date: (datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.time: (datetime.time.isoformat, datetime.time.fromisoformat),
    datetime.timedelta: (
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda v: datetime.timedelta(*v),
    ),
    datetime.timezone: (
        lambda v: v.utcoffset(None).total_seconds(),
        lambda v: datetime.timezone(datetime.timedelta(seconds=v)),
    ),
    range: (
        lambda v: [hex(n) for n in (v.start, v.stop, v.step)],
        lambda v: range(*(int(bound, 16) for bound in v)),
    ),
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
MUTABLE: dict[type, Callable[[Any, list[Any]], None]] = {
    list: lambda value, items: operator.setitem(value, slice(None), items),
    bytearray: lambda value, items: operator.setitem(value, slice(None), bytes(items)),
    collections.deque: lambda value, items: _refill(value, value.extend, items),
    **{
        kind: lambda value, items: _refill(value, value.update, items)
        for kind in (set, dict, collections.OrderedDict, collections.defaultdict)
    },
    collections.Counter: lambda value, items: _refill(value, value.update, dict(items)),
}
"""Types that can be changed: how a value is given other contents."""
NAMES: dict[str, type] = {kind.__name__: kind for kind in (*PLAIN, *FROZEN, *MUTABLE)}
BASES: tuple[Any, ...] = (str, int, float, complex, bytes, tuple, list, set, frozenset, dict)
"""A value of a class that derives from one of these travels as one of it."""
ENDS = (StopIteration, StopAsyncIteration)
FACTORIES: dict[Any, str] = {kind: kind.__name__ for kind in (int, float, str, list, set, dict)}
"""Of default dictionaries, by the name under which they travel."""
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("eq", "getitem", "setitem", "contains")},
    **{kind.__name__: kind for kind in (str, repr, len, bool, hash, iter, next)},
    "getattr": getattr,
    "setattr": setattr,
    "isinstance": lambda kind, value: isinstance(value, kind),
    "call": lambda called, *args, **kwargs: called(*args, **kwargs),
}
"""What can be asked of an object from afar."""


def _refill(value: Any, fill: Callable[[Any], None], items: Any) -> None:
    value.clear()
    fill(items)


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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tested.ask("call", self, *args, **kwargs)

    def __instancecheck__(self, value: Any) -> bool:
        return self._tested.ask("isinstance", self, value) is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self._tested.ask("eq", self, other) is True

    def __hash__(self) -> int:
        return int(self._tested.ask("hash", self))


def _asking(name: str, kind: type | None) -> Callable[..., Any]:
    """A special method that asks the code; `kind` is of what Python wants from it."""

    def method(self: Remote, *args: Any) -> Any:
        value = self._tested.ask(name, self, *args)
        if kind is not None and type(value) is not kind:
            raise TypeError(f"{name} returned no {kind.__name__}")
        return value

    return method


for _name, _kind in {"str": str, "repr": str, "len": int, "bool": bool, "contains": bool}.items():
    setattr(Remote, f"__{_name}__", _asking(_name, _kind))
for _name in ("getitem", "setitem", "iter", "next"):
    setattr(Remote, f"__{_name}__", _asking(_name, None))


class Values:
    """The values of one request and its reply, on either side."""

    def __init__(self, keep: Callable[[Any], int] | None, known: Callable[[int], Any]):
        """`keep` numbers an object that stays on this side, None where none may be asked for;
        `known` gives what a number stands for."""
        self.keep, self.known = keep, known
        self.objects: list[Any] = []
        """The mutable ones, in the order in which both sides meet them."""
        self.numbers: dict[int, int] = {}
        self.before: list[list[Any]] = []

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
            extra = {}
            if isinstance(value, collections.defaultdict):
                extra = {"factory": FACTORIES.get(value.default_factory)}
            if isinstance(value, collections.deque):
                extra = {"longest": value.maxlen}
            return {kind.__name__: [self.write(each) for each in contents(value)], **extra}
        if kind.__module__ == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject:
            return {"numpy": [value.dtype.str, list(value.shape), value.tobytes().hex()]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = [str(name) for name in kind._fields]
            return {"namedtuple": [kind.__name__, fields, [self.write(each) for each in value]]}
        for base in BASES:
            if isinstance(value, base):
                return self.write(value[:] if base is str else base(value))
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
            made = kind(maxlen=value["longest"]) if kind is collections.deque else kind()
            self._number(made)
            if isinstance(made, collections.defaultdict):
                factory = {known: each for each, known in FACTORIES.items()}
                made.default_factory = factory.get(value["factory"])
            MUTABLE[kind](made, [self.read(each) for each in inner])
            return made
        if name == "same":
            return self.objects[inner]
        if name == "exception":
            return nearest(getattr(builtins, inner))
        if name == "iterator":
            return iter([self.read(each) for each in inner])
        if name == "numpy":
            import numpy

            dtype, shape, data = inner
            array = numpy.frombuffer(bytes.fromhex(data), numpy.dtype(dtype)).reshape(shape)
            return array.copy() if shape else array[()]
        if name == "namedtuple":
            title, fields, items = inner
            return collections.namedtuple(title, fields)(*map(self.read, items))
        return self.known(value["object"])

    def _number(self, value: Any) -> None:
        self.numbers[id(value)] = len(self.objects)
        self.objects.append(value)

    def raised(self, error: Exception) -> dict[str, Any]:
        """The reply for an exception: its class's nearest built-in one, its arguments, its text."""
        try:
            args = self.write(error.args)
        except NoAnswer:
            args = self.write((str(error),))
        told = {"kind": nearest(type(error)).__name__, "args": args, "text": described(error)}
        return {"raised": told, "changed": self.changed()}

    def exception(self, kind: str, args: Any, text: str) -> Exception:
        """An exception as it was raised there."""
        try:
            return nearest(getattr(builtins, kind))(*self.read(args))
        except Exception:
            return Exception(str(text)[:WHY])

    def remember(self) -> None:
        """Keep what the arguments hold, so that a change of it is seen."""
        self.before = [contents(each) for each in self.objects]

    def changed(self) -> list[Any]:
        """[number, contents] of each argument that holds something else than it did."""
        changes = []
        for number, before in enumerate(self.before):
            now = contents(self.objects[number])
            if len(now) != len(before) or any(map(_other, now, before)):
                changes.append([number, [self.write(each) for each in now]])
        return changes

    def take_changes(self, changes: list[Any]) -> None:
        """Change the arguments here as `changed` found them there."""
        for number, items in changes:
            value = self.objects[number]
            MUTABLE[type(value)](value, [self.read(each) for each in items])


def nearest(kind: type[Exception]) -> type[Exception]:
    """The first built-in exception among a class and its bases. Not StopIteration, which would end
    a test's loop inside `all(map(...))` as if all had held."""
    for each in kind.__mro__:
        known = getattr(builtins, each.__name__, None) is each and issubclass(each, Exception)
        if known and not issubclass(each, ENDS):
            return each
    raise TypeError(f"{kind} is no exception")


def contents(value: Any) -> list[Any]:
    """What a mutable value holds: its items, or its pairs of key and value."""
    return list(value.items()) if isinstance(value, dict) else list(value)


def _other(one: Any, two: Any) -> bool:
    """Whether an item is another one; pairs are made anew each time."""
    if type(one) is tuple and type(two) is tuple and len(one) == len(two):
        return any(map(operator.is_not, one, two))
    return one is not two


def described(error: BaseException) -> str:
    """Its class and its text; what NoAnswer says is its text alone."""
    return str(error) if isinstance(error, NoAnswer) else f"{type(error).__name__}: {error}"


def serve_code() -> None:
    """Run the code that the first line of standard input holds, then do what is asked of it."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    names: dict[str, Any] = {"__name__": "answer"}
    problem = ""
    try:
        exec(compile(json.loads(reader.readline())["answer"], "answer.py", "exec"), names)
    except BaseException as error:
        names, problem = {}, described(error)
    kept: list[Any] = []
    numbers: dict[int, int] = {}

    def keep(value: Any) -> int:
        if id(value) not in numbers:
            numbers[id(value)] = len(kept)
            kept.append(value)
        return numbers[id(value)]

    for line in reader:
        request = json.loads(line)
        values, operation = Values(keep, kept.__getitem__), request["do"]
        try:
            args = [values.read(each) for each in request["args"]]
            kwargs = {name: values.read(each) for name, each in request["kwargs"].items()}
            values.remember()
            if operation == "name" and args[0] not in names:
                raise NoAnswer(problem or f"the code has no {args[0]}")
            value = (
                names[args[0]] if operation == "name" else OPERATIONS[operation](*args, **kwargs)
            )
            reply = {"value": values.write(value), "changed": values.changed()}
        except StopIteration as error:
            reply = {"end": True} if operation == "next" else values.raised(error)
        except Exception as error:
            reply = values.raised(error)
        except BaseException as error:
            reply = {"none": described(error)}
        writer.write(json.dumps(reply).encode() + b"\n")
        writer.flush()
