"""What a task says about the facts of its rewards, so that reports can count them.

A task whose rewards note what went wrong with an answer may declare it as `fact_reading`. Reports
take facts by their names (`error`, `operators`, `program`, `calls`, `fallback`, `cost`), and say
nothing of those that are not there. Nothing is counted here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.tasks.task import Task


@dataclass(frozen=True, slots=True)
class FactReading:
    """How the facts of a task are read."""

    families: tuple[str, ...]
    """Families of errors, in the order in which reports show them."""
    family_of: Callable[[str], str]
    """The family of a fact `error` that is not empty."""
    malformed: frozenset[str]
    """Families of answers that have not the right form."""


def reading_of(task: Task) -> FactReading | None:
    """What a task declares; None where it declares nothing."""
    return getattr(task, "fact_reading", None)


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts by their names alone; of a sum of rewards, the first "REWARD/NAME" is NAME."""
    found: dict[str, Any] = {}
    for key, value in facts.items():
        found.setdefault(key.rpartition("/")[2], value)
    return found


def operators_in(fact: str) -> tuple[str, ...]:
    """The names in a fact `operators`: "AnswerGenerate:1 Programmer:2" is of two."""
    return tuple(each.rpartition(":")[0] for each in fact.split())
