"""Small demonstration sets and queries, and features that are known without a model."""

import hashlib

import numpy as np
import pytest

from assay.data.row import ImagePart, Message
from assay.labs.demos.demonstrations import Demonstration, DemonstrationSet, Query
from assay.labs.demos.pools import SIMILARITIES

WIDTH = 6


def asked(text: str, *images: str) -> Message:
    parts = tuple(ImagePart(name, "image/png", name) for name in images)
    return Message("user", text, parts=parts)


def shown(count: int, *more: Demonstration) -> DemonstrationSet:
    """Questions `asks 0`, `asks 1` ... with the answers `a`, `b`, `c` in turn."""
    made = [Demonstration(f"d{n}", asked(f"asks {n}"), "abc"[n % 3]) for n in range(count)]
    return DemonstrationSet("made", "Answer.", (*made, *more))


def queries(count: int, first: int = 0) -> list[Query]:
    """Questions that are no demonstrations."""
    return [Query(f"q{n}", asked(f"wants {n}"), ("a",)) for n in range(first, first + count)]


def features_of(messages, wheres) -> np.ndarray:
    """Unit vectors that follow from the text alone."""
    rows = []
    for message in messages:
        seed = int.from_bytes(hashlib.sha256(message.content.encode()).digest()[:8], "big")
        rows.append(np.random.default_rng(seed).normal(size=WIDTH))
    found = np.array(rows, np.float32).reshape(-1, WIDTH)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.fixture
def known_features(monkeypatch):
    """Both similarities are those of `features_of`."""
    for name in SIMILARITIES:
        monkeypatch.setitem(SIMILARITIES, name, features_of)
