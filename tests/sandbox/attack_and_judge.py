"""A judge that compares answers, and one call of which is an attack on the others' replies."""

from typing import Any

from tests.sandbox.faults import forge_through_supervisor


def serve(attack: str = "", gold: str = "", answer: str = "") -> Any:
    return forge_through_supervisor(attack) if attack else gold == answer
