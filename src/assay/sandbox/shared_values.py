"""Values that two Python processes share over a pipe, one of which may be hostile.

Plain values travel whole, with their types. Mutable ones are numbered within a call, so that what
is shared stays shared and what the call changed in its arguments is changed here too. Functions,
iterators and objects stay where they are and are asked from afar: a function becomes a function, an
iterator a generator, any other object a `Remote`. No comparison of a plain value with what came
from afar is made there: a `Remote` equals none.

Messages are lines of JSON. A request is {"do": operation, "args": ..., "kwargs": ...}; its reply
{"value": ..., "changed": ...}, {"raised": ...}, {"end": value} for an iterator's end, or {"none":
why}. While one side waits for a reply it serves the other's requests.
"""

import builtins
import collections
import datetime
import json
import operator
import os
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import IO, Any

from assay.sandbox.remote_objects import ITERATION, OPERATIONS, Remote, function_of, iterator_of

LONGEST_MESSAGE = 1 << 24
"""Bytes of one message."""
WHY = 300
"""Characters of a reason."""

TEXT = "\0text"
"""Under this name an exception's own `str` lies among its attributes."""
ENDS = (StopIteration, StopAsyncIteration)
"""Raised inside `all(map(...))` it would end a test's loop as if all had held."""
TYPES = {kind.__name__: kind for kind in vars(builtins).values() if isinstance(kind, type)}

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
TYPES |= NAMES
BASES: tuple[Any, ...] = (str, int, float, complex, bytes, tuple, list, set, frozenset, dict)
"""A value of a class that derives from one of these travels as one of it."""
FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, partial)
INWARD = (*(ModuleType, FrameType, TracebackType, CodeType, CoroutineType, AsyncGeneratorType),)
"""Their attributes lead into the process that holds them: they never leave it."""


def _refill(value: Any, fill: Callable[[Any], None], items: Any) -> None:
    value.clear()
    fill(items)


class RaisedThere(Exception):
    """The other side raised what cannot be made here."""


class NoAnswer(BaseException):
    """The other side neither returned a value nor raised an exception: its process ended, it does
    not run, it raised SystemExit. No `except Exception` of a test catches it."""


class Peer:
    """One side of the pipe. `guarded` says that the other side may be hostile: its requests reach
    what it was handed, public attributes alone, and no type of Python: `type` makes classes."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes], guarded: bool):
        self.reader, self.writer, self.guarded = reader, writer, guarded
        self.conversation = threading.RLock()
        self.lost = False
        """What comes after a line that is no message would be taken for the reply to another."""
        self.unanswered: list[str] = []
        """Why there was no answer, each time: a test may catch what is raised."""
        self.names: dict[str, Any] = {}
        """What can be asked for by name."""
        self.problem = ""
        """Why there are no names."""
        self.kept: list[Any] = []
        """Own objects that the other side asks from afar, by number."""
        self.numbers: dict[int, int] = {}
        self.theirs: dict[int, tuple[Any, int]] = {}
        """By identity: what stands here for an object of the other side, and its number there."""
        self.made: dict[int, Any] = {}

    def send(self, message: dict[str, Any]) -> None:
        """Write one line. Raises OSError where nobody reads."""
        self.writer.write(json.dumps(message).encode() + b"\n")
        self.writer.flush()

    def receive(self) -> dict[str, Any]:
        """Read one line. Raises any Exception for what is no message."""
        line = self.reader.readline(LONGEST_MESSAGE)
        if not line.endswith(b"\n"):
            raise EOFError
        return json.loads(line)

    def close(self) -> None:
        """End the other side, which has sent what is no message."""

    def ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """The value of an operation of the other side. Raises what it raised, and NoAnswer."""
        value: Any
        try:
            with self.conversation:
                kind, value = self._answer(operation, args, kwargs)
        except NoAnswer as error:
            kind, value = "none", str(error)
        if kind == "end":
            raise StopIteration(value)
        if kind == "raised":
            raise value
        if kind == "none":
            self.unanswered.append(f"NoAnswer: {value}")
            raise NoAnswer(value)
        return value

    def _answer(self, operation: str, args: Any, kwargs: dict[str, Any]) -> tuple[str, Any]:
        """ "value" and the value; "raised" and the exception; "end"; "none" and why."""
        values = Values(self)
        message = {
            "do": operation,
            "args": [values.write(each) for each in args],
            "kwargs": {name: values.write(each) for name, each in kwargs.items()},
        }
        try:
            if self.lost:
                raise EOFError
            self.send(message)
            while "do" in (reply := self.receive()):
                self.serve(reply)
            return values.reply(reply, operation)
        except Exception:
            self.lost = True
            self.close()
            why = "its process ended, took too long, or its value is too long or no reply"
            raise NoAnswer(why) from None

    def serve(self, request: dict[str, Any]) -> None:
        """Do what the other side asks and reply."""
        values = Values(self)
        operation = request["do"]
        try:
            args = [values.read(each) for each in request["args"]]
            kwargs = {name: values.read(each) for name, each in request["kwargs"].items()}
            values.remember()
            if operation == "name":
                value = self.named(args[0])
            elif self.guarded and not (id(args[0]) in self.numbers and allowed(operation, args)):
                raise TypeError(f"{operation} is not to be had here")
            else:
                value = OPERATIONS[operation](*args, **kwargs)
            reply = {"value": values.write(value), "changed": values.changed()}
        except StopIteration as error:
            ends = operation in ITERATION
            reply = {"end": values.write(error.value)} if ends else values.raised(error)
        except Exception as error:
            reply = values.raised(error)
        except BaseException as error:
            reply = {"none": described(error)}
        self.send(reply)

    def named(self, name: str) -> Any:
        """What stands under a name. Raises NoAnswer."""
        if name not in self.names:
            raise NoAnswer(self.problem or f"the code has no {name}")
        return self.names[name]

    def keep(self, value: Any) -> int:
        """The number under which the other side asks an own object."""
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.kept)
            self.kept.append(value)
        return self.numbers[id(value)]

    def stand_in(self, number: int, kind: str) -> Any:
        """What stands here for an object of the other side."""
        if number not in self.made:
            made: Any = Remote(self, number)
            self.theirs[id(made)] = made, number
            if kind == "function":
                made = function_of(made)
            elif kind == "iterator":
                made = iterator_of(made)
            self.made[number] = made
            self.theirs[id(made)] = made, number
        return self.made[number]


def allowed(operation: str, args: list[Any]) -> bool:
    """Whether a hostile side may have this of an object that it was handed."""
    asked = args[0]
    if operation in ("getattr", "setattr"):
        closed = isinstance(asked, (type, GeneratorType, *FUNCTIONS))
        return not closed and isinstance(args[1], str) and not args[1].startswith("_")
    return operation != "repr"


class Values:
    """The values of one request and its reply."""

    def __init__(self, peer: Peer):
        self.peer = peer
        self.objects: list[Any] = []
        """The mutable ones, in the order in which both sides meet them."""
        self.numbers: dict[int, int] = {}
        self.before: list[list[Any]] = []

    def write(self, value: Any) -> Any:
        """A value as JSON. Raises NoAnswer for what must not leave this process."""
        if value is None or value is True or value is False or type(value) is str:
            return value
        kind = type(value)
        if id(value) in self.numbers:
            return {"same": self.numbers[id(value)]}
        if id(value) in self.peer.theirs:
            return {"yours": self.peer.theirs[id(value)][1]}
        if kind in PLAIN:
            return {kind.__name__: PLAIN[kind][0](value)}
        if kind in FROZEN:
            return {kind.__name__: [self.write(each) for each in value]}
        if kind in MUTABLE:
            return self._write_mutable(kind, value)
        return self._write_other(kind, value)

    def _write_mutable(self, kind: type, value: Any) -> Any:
        self._number(value)
        extra = {}
        if isinstance(value, collections.defaultdict):
            extra = {"factory": self.write(value.default_factory)}
        if isinstance(value, collections.deque):
            extra = {"longest": value.maxlen}
        return {kind.__name__: [self.write(each) for each in contents(value)], **extra}

    def _write_other(self, kind: Any, value: Any) -> Any:
        if kind.__module__ == "numpy" and hasattr(value, "dtype") and not value.dtype.hasobject:
            return {"numpy": [value.dtype.str, list(value.shape), value.tobytes().hex()]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = [str(name) for name in kind._fields]
            return {"namedtuple": [kind.__name__, fields, [self.write(each) for each in value]]}
        if isinstance(value, slice):
            return {"slice": [self.write(each) for each in (value.start, value.stop, value.step)]}
        if isinstance(value, Exception):
            return {"error": self.told(value)}
        for base in BASES:
            if isinstance(value, base):
                return self.write(value[:] if base is str else base(value))
        if isinstance(value, type) and TYPES.get(value.__name__) is value:
            return {"type": value.__name__}
        if isinstance(value, type) and issubclass(value, Exception):
            bases = [self.write(each) for each in value.__bases__ if issubclass(each, Exception)]
            return {"exception": [value.__name__, self.peer.keep(value), bases]}
        if isinstance(value, INWARD):
            raise NoAnswer(f"a value of {kind.__name__} is not to be had")
        if isinstance(value, FUNCTIONS):
            names = [getattr(value, "__name__", ""), getattr(value, "__doc__", None)]
            return {"function": [self.peer.keep(value), *names]}
        form = "object"
        if isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
            form = "iterator"
        return {form: self.peer.keep(value)}

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
            return self._read_mutable(kind, value, inner)
        return READERS[name](self, inner)

    def _read_mutable(self, kind: type, value: dict[str, Any], inner: list[Any]) -> Any:
        made = kind(maxlen=value["longest"]) if kind is collections.deque else kind()
        self._number(made)
        if isinstance(made, collections.defaultdict):
            made.default_factory = self.read(value["factory"])
        MUTABLE[kind](made, [self.read(each) for each in inner])
        return made

    def _number(self, value: Any) -> None:
        self.numbers[id(value)] = len(self.objects)
        self.objects.append(value)

    def reply(self, reply: dict[str, Any], operation: str) -> tuple[str, Any]:
        """See `Peer._answer`. Raises any Exception for what is no reply."""
        if "none" in reply:
            return "none", str(reply["none"])[:WHY]
        if "end" in reply and operation in ITERATION:
            return "end", self.read(reply["end"])
        if "raised" in reply:
            kind, value = "raised", self.exception(**reply["raised"])
        else:
            kind, value = "value", self.read(reply["value"])
        for number, items in reply["changed"]:
            changed = self.objects[number]
            MUTABLE[type(changed)](changed, [self.read(each) for each in items])
        return kind, value

    def exception(self, kind: Any, args: Any, text: str, names: Any) -> Exception:
        """An exception of the other side, or RaisedThere."""
        try:
            error = self.read(kind)(*self.read(args))
            error.__dict__.update(self.read(names))
        except Exception:
            error = None
        if isinstance(error, Exception) and not isinstance(error, ENDS):
            return error
        return RaisedThere(str(text)[:WHY])

    def raised(self, error: Exception) -> dict[str, Any]:
        """The reply for an exception."""
        return {"raised": self.told(error), "changed": self.changed()}

    def told(self, error: Exception) -> dict[str, Any]:
        """Of an exception: its class, its arguments, its text and its attributes."""
        try:
            names = {name: value for name, value in vars(error).items() if name[:1] != "_"}
            args, names = self.write(error.args), self.write(names | {TEXT: str(error)})
        except NoAnswer:
            args, names = self.write((str(error),)), self.write({})
        kind = self.write(type(error))
        return {"kind": kind, "args": args, "text": described(error), "names": names}

    def remember(self) -> None:
        """Keep what the arguments hold, so that a change of it is seen."""
        self.before = [contents(each) for each in self.objects]

    def changed(self) -> list[Any]:
        """[number, contents] of each argument that holds something else than it did."""
        found = []
        for number, before in enumerate(self.before):
            now = contents(self.objects[number])
            if len(now) != len(before) or any(map(_other, now, before)):
                found.append([number, [self.write(each) for each in now]])
        return found


def contents(value: Any) -> list[Any]:
    """What a mutable value holds: its items, or its pairs of key and value."""
    return list(value.items()) if isinstance(value, dict) else list(value)


def _other(one: Any, two: Any) -> bool:
    """Whether an item is another one; pairs are made anew each time."""
    if type(one) is tuple and type(two) is tuple and len(one) == len(two):
        return any(map(operator.is_not, one, two))
    return one is not two


def _text(error: Exception) -> str:
    return str(vars(error).get(TEXT, ""))


def _exception(values: Values, found: list[Any]) -> type[Exception]:
    """A class here for an exception class there, under the classes here for its bases."""
    name, number, bases = found
    if number not in values.peer.made:
        bases = [values.read(each) for each in bases]
        if not all(isinstance(base, type) and issubclass(base, Exception) for base in bases):
            raise TypeError("an exception's base is none")
        made = type(str(name), tuple(bases), {"__str__": _text})
        values.peer.made[number] = made
        values.peer.theirs[id(made)] = made, number
    return values.peer.made[number]


def _numpy(_: Values, found: list[Any]) -> Any:
    import numpy

    kind, shape, data = found
    array = numpy.frombuffer(bytes.fromhex(data), numpy.dtype(kind)).reshape(shape)
    return array.copy() if shape else array[()]


def _named_tuple(values: Values, found: list[Any]) -> Any:
    name, fields, items = found
    return collections.namedtuple(name, fields)(*map(values.read, items))


def _named_function(values: Values, found: list[Any]) -> Any:
    number, name, text = found
    made = values.peer.stand_in(number, "function")
    made.__name__, made.__doc__ = name, text
    return made


READERS: dict[str, Callable[[Values, Any], Any]] = {
    "same": lambda values, number: values.objects[number],
    "yours": lambda values, number: values.peer.kept[number],
    "type": lambda values, name: TYPES[name],
    "exception": _exception,
    "error": lambda values, told: values.exception(**told),
    "slice": lambda values, bounds: slice(*map(values.read, bounds)),
    "numpy": _numpy,
    "namedtuple": _named_tuple,
    "function": _named_function,
    **{
        form: lambda values, number, form=form: values.peer.stand_in(number, form)
        for form in ("iterator", "object")
    },
}
"""How each other form is read."""


def described(error: BaseException) -> str:
    """Its class and its text; what NoAnswer says is its text alone."""
    return str(error) if isinstance(error, NoAnswer) else f"{type(error).__name__}: {error}"


def serve_code() -> None:
    """Run the code that the first line of standard input holds, then do what is asked of it."""
    peer = Peer(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"), guarded=False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    names: dict[str, Any] = {"__name__": "answer"}
    try:
        exec(compile(peer.receive()["answer"], "answer.py", "exec"), names)
        peer.names = names
    except BaseException as error:
        peer.problem = described(error)
    while True:
        peer.serve(peer.receive())
