"""Gives rewards the options of an experiment file, checked against their own parameters.

A reward takes its parameters with defaults as options, or those of the function that makes it: its
attribute `maker`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from assay.errors import InputError, nearest
from assay.tasks.reward_signatures import TextReward
from assay.tasks.task import RewardFunction

SETTINGS = (bool, int, float, str, tuple)
"""Types of parameters that a file can set."""


def with_options(kind: str, reward: RewardFunction, options: Mapping[str, Any]) -> RewardFunction:
    """The reward called `kind` with these options. Raises InputError."""
    if not options:
        return reward
    maker = getattr(reward, "maker", None)
    inner = reward.function if isinstance(reward, TextReward) else reward
    known = parameters(maker or inner)
    given = {name: checked(kind, name, value, known) for name, value in options.items()}
    if maker is None:
        return _bound(reward, inner, given)
    try:
        return maker(**given)
    except (ValueError, TypeError) as error:
        raise InputError(f"{kind!r} cannot be made: {error}", field="options") from error


def _bound(reward: RewardFunction, inner: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    bound = partial(inner, **given)
    # What a reward says of itself: `unsafe`, `lowest`.
    bound.__dict__.update(vars(inner))
    return replace(reward, function=bound) if isinstance(reward, TextReward) else bound


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters that a file can set, with their defaults."""
    found = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in found if isinstance(p.default, SETTINGS)}


def checked(kind: str, name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """A value of the type of the option's default. Raises InputError."""
    field = f"options.{name}"
    if name not in known:
        fix = nearest(name, known) if known else "remove it"
        problem = f"{kind!r} has no option {name!r}" if known else f"{kind!r} has no options"
        raise InputError(problem, field=field, fix=fix)
    wanted = type(known[name])
    if wanted is tuple and isinstance(value, list):
        return tuple(value)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        words = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
        problem = f"expected {words.get(wanted, 'an array')}, got {value!r}"
        raise InputError(problem, field=field)
    return value
