"""Rows about a document: the text stands in the system message, and answers have to stand in it."""

from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.leakage import question
from assay.data.row import Row
from assay.lab.synthesise.answers import json_objects


def with_text(seed: Row, text: str) -> list[dict[str, Any]]:
    """The teacher's rows with the document before each question."""
    return [{**each, "system": question(seed)} for each in json_objects(text)]


def in_the_text(row: Row, completion: Completion) -> Reward:
    """1 where the answer is the row's and stands in its document, whatever its capitals."""
    said = completion.text.strip().lower()
    right = said == str(row.gold).strip().lower()
    return Reward(float(right and said in row.messages[0].content.lower()))
