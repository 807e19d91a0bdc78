"""A scripted helper model, `source = "scripted:FILE"`, for tests alone.

A script is JSON lines, one rule a line. The first rule that fits answers; which of several answers,
and whether a failure comes, follows from the request's key, so that equal requests have equal
answers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.data.files import sha256_file
from assay.data.json_files import read_jsonl
from assay.data.row import Message
from assay.errors import InputError
from assay.experiment.base_table import Many, Share, SpecTable
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.token_choice import key_state, uniforms
from assay.tasks.helper_model import (
    HelperAnswer,
    HelperFailed,
    NextWords,
    Question,
    Score,
    Scores,
    Tokens,
)


class ScriptRule(SpecTable):
    """What is answered or scored where the patterns are found."""

    prompt: str = ""
    """A regular expression, searched in the conversation as `role: content` lines."""
    answered: str = ""
    """A regular expression, searched in an answer that is to be scored."""
    answer: str | Many[str] | None = None
    """The answer; of several the first when greedy, else one drawn by the request's key."""
    logps: float | Many[float] | None = None
    """Log-probabilities of a scored answer: one for each of its words, or the list itself."""
    failure: str | None = None
    """The reason of a failure, in place of an answer."""
    share: Share = 1.0
    """The share of the requests that fail."""

    def fails(self, state: int) -> bool:
        """Whether the request with this key state fails."""
        return self.failure is not None and _uniform(state, 0) < self.share


def _uniform(state: int, position: int) -> float:
    return float(uniforms(np.array([state], dtype=np.uint64), np.array([position]))[0])


def read_script(file: Path) -> tuple[ScriptRule, ...]:
    """The rules of a script."""
    return tuple(ScriptRule.model_validate(each.value) for each in read_jsonl(file))


@dataclass(frozen=True)
class ScriptedHelper:
    """See `Model`. Tokens are words."""

    name: str
    file: Path
    rules: tuple[ScriptRule, ...]
    identity: str = ""

    @property
    def fingerprint(self) -> str:
        """The sha256 of the script."""
        return sha256_file(self.file)

    def answer(self, batch: Sequence[Question]) -> list[HelperAnswer]:
        """See `Model`."""
        for question in batch:
            question.call.attempt()
        return [
            each.call.ended(
                self._answer(_written(each.messages), each.sampling, key_state(each.key))
            )
            for each in batch
        ]

    def _answer(self, text: str, sampling: Sampling, state: int) -> HelperAnswer:
        read = len(text.split())
        for rule in self.rules:
            if not re.search(rule.prompt, text):
                continue
            if rule.fails(state):
                return HelperAnswer("", failure=rule.failure or "")
            if rule.answer is not None:
                whole = _chosen(rule.answer, sampling, state)
                words = re.findall(r"\s*\S+", whole)
                if len(words) <= sampling.max_tokens:
                    return HelperAnswer(whole, "stop", read, len(words))
                cut = "".join(words[: sampling.max_tokens])
                return HelperAnswer(cut, "length", read, sampling.max_tokens)
        return HelperAnswer("", failure=f"no rule of {self.file.name} answers {text!r}")

    def score(self, batch: Sequence[Score]) -> Scores:
        """See `Model`; an end of the turn is as likely as a word, or in the rule's list."""
        texts = [_written(each.messages) for each in batch]
        logps = [
            self._logps(text, each.answer, each.ended)
            for text, each in zip(texts, batch, strict=True)
        ]
        words = sum(len(text.split()) for text in [*texts, *(each.answer for each in batch)])
        return Scores(logps, words)

    def read(self, contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        """Raise InputError: a script has no words."""
        raise InputError("a scripted model has no distribution over words")

    def _logps(self, text: str, answer: str, ended: bool) -> tuple[float, ...]:
        state = key_state(SampleKey(0, f"{text}\x1f{answer}", 0))
        for rule in self.rules:
            if not re.search(rule.prompt, text) or not re.search(rule.answered, answer):
                continue
            if rule.fails(state):
                raise HelperFailed(f"{self.name}: {rule.failure}")
            if isinstance(rule.logps, tuple):
                return rule.logps
            if rule.logps is not None:
                return (rule.logps,) * (len(answer.split()) + ended)
        raise HelperFailed(f"{self.name}: no rule of {self.file.name} scores {answer!r}")


def questions(
    conversations: Sequence[Sequence[Message]], sampling: Sampling, keys: Sequence[SampleKey]
) -> list[Question]:
    """A question for each conversation."""
    return [Question(each, sampling, key) for each, key in zip(conversations, keys, strict=True)]


def _written(messages: Sequence[Message]) -> str:
    return "\n".join(f"{message.role}: {message.content}" for message in messages)


def _chosen(answer: str | tuple[str, ...], sampling: Sampling, state: int) -> str:
    if isinstance(answer, str):
        return answer
    return answer[int(_uniform(state, 1) * len(answer)) if sampling.temperature else 0]


def opened(name: str, file: Path) -> ScriptedHelper:
    """See `helper_model.KINDS`."""
    return ScriptedHelper(name, file, read_script(file))
