"""Objects of another process as they stand here, and what can be asked of them there.

Operators that a test compares with ask only where both operands are from there: the other side
would read the expected value otherwise.
"""

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol


def _reflected(operator_of: Callable[[Any, Any], Any], right: Any, left: Any) -> Any:
    return operator_of(left, right)


WITH_PLAIN = ("add", "mul", "matmul", "pow")
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("eq", "lt", "le", "gt", "ge", "sub")},
    **{name: getattr(operator, name) for name in ("truediv", "floordiv", "mod", "and_", "or_")},
    **{name: getattr(operator, name) for name in ("xor", "invert", "neg", "index", *WITH_PLAIN)},
    **{f"r{name}": partial(_reflected, getattr(operator, name)) for name in WITH_PLAIN},
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", "contains")},
    **{kind.__name__: kind for kind in (str, repr, len, bool, hash, int, float, format)},
    **{kind.__name__: kind for kind in (abs, round, reversed, issubclass)},
    "enter": lambda manager: type(manager).__enter__(manager),
    "exit": lambda manager, *error: bool(type(manager).__exit__(manager, *error)),
    "iter": iter,
    "next": next,
    "send": lambda generator, value: generator.send(value),
    "throw": lambda generator, error: generator.throw(error),
    "getattr": getattr,
    "setattr": setattr,
    "isinstance": lambda kind, value: isinstance(value, kind),
    "call": lambda called, *args, **kwargs: called(*args, **kwargs),
}
"""What can be asked of an object from afar."""
ITERATION = ("next", "send", "throw")


class Asked(Protocol):
    """Who reaches the other side, see `shared_values.Peer`."""

    def ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """The value of an operation there. Raises what it raised."""


class Remote:
    """An object of the other side."""

    def __init__(self, peer: Asked, number: int):
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._peer.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.ask("setattr", self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._peer.ask("call", self, *args, **kwargs)

    def __instancecheck__(self, value: Any) -> bool:
        return self._peer.ask("isinstance", self, value) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return self._peer.ask("issubclass", kind, self) is True

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        # A failed assertion may tell what was expected, and is not the code's to suppress.
        if error is not None and (not isinstance(error, Exception) or kind is AssertionError):
            self._peer.ask("exit", self, None, None, None)
            return False
        return self._peer.ask("exit", self, kind, error, None) is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self._peer.ask("eq", self, other) is True

    def __hash__(self) -> int:
        return int(self._peer.ask("hash", self))


def _asking(name: str, kind: type | None) -> Callable[..., Any]:
    """A special method that asks the other side; `kind` is of what Python wants from it."""

    def method(self: Remote, *args: Any) -> Any:
        value = self._peer.ask(name, self, *args)
        if kind is not None and type(value) is not kind:
            raise TypeError(f"{name} returned no {kind.__name__}")
        return value

    return method


def _between(name: str) -> Callable[..., Any]:
    """An operator of two objects of the other side."""
    return lambda self, other: (
        self._peer.ask(name, self, other) if isinstance(other, Remote) else NotImplemented
    )


for _name in ("lt", "le", "gt", "ge", "sub", "truediv", "floordiv", "mod", "and_", "or_", "xor"):
    setattr(Remote, f"__{_name.rstrip('_')}__", _between(_name))
# No test compares a value with these, so the other operand may be plain.
for _name in WITH_PLAIN:
    setattr(Remote, f"__{_name}__", _asking(_name, None))
    setattr(Remote, f"__r{_name}__", _asking(f"r{_name}", None))
for _name, _kind in {
    "str": str,
    "repr": str,
    "len": int,
    "bool": bool,
    "hash": int,
    "int": int,
    "float": float,
    "format": str,
    "index": int,
    "contains": bool,
    "getitem": None,
    "setitem": None,
    "delitem": None,
    "iter": None,
    "neg": None,
    "abs": None,
    "round": None,
    "reversed": None,
    "invert": None,
    "enter": None,
    "next": None,
}.items():
    setattr(Remote, f"__{_name}__", _asking(_name, _kind))


def function_of(remote: Remote) -> Callable[..., Any]:
    """A function here that calls one of the other side."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return remote(*args, **kwargs)

    return function


def iterator_of(remote: Remote) -> Iterator[Any]:
    """A generator here that asks an iterator of the other side; values, exceptions and the value
    at the end pass as in one process."""
    asked: tuple[Any, ...] = ("next", remote)
    while True:
        try:
            value = remote._peer.ask(*asked)
        except StopIteration as end:
            return end.value
        try:
            sent = yield value
            asked = ("next", remote) if sent is None else ("send", remote, sent)
        except Exception as error:
            asked = ("throw", remote, error)
