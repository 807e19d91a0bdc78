"""Searches texts for a row's own pattern, in a worker: apart from the task, whose imports take a
second."""

import re


def search(pattern: str, text: str) -> bool | str:
    """Whether a pattern occurs in a text; why where it is none."""
    try:
        return re.search(pattern, text) is not None
    except re.error as error:
        return f"the pattern is not a regular expression: {error}"
