"""A verifiers environment as a task: its data set as rows, its dialogue, its rubric as reward.

Written for `verifiers` 0.1 (`SingleTurnEnv`, `MultiTurnEnv` and what extends them). Episodes run
the library's own `rollout` with a client behind which the policy stands; the rubric judges a
rollout that is played again from the recorded conversation, so that a reward depends on row and
conversation alone. Judge rubrics, which ask a model by themselves, and rewards over groups are
refused.
"""

import asyncio
import json
import logging
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from assay.data.episode import Completion, Ended, Reward
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.tasks.task import Asked, BaseTask, Dialogue, Tools, call_syntax

WAIT_SECONDS = 300.0
"""For an environment's answer, or its rubric's verdict."""
EXAMPLE = "example"
"""The column of `extra` that holds the environment's own row."""


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The loop in which environments run, in a thread of its own: a notebook has one running."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="assay-verifiers", daemon=True).start()
    return loop


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine of the environment. Raises what it raises, and TimeoutError."""
    return asyncio.run_coroutine_threadsafe(work, event_loop()).result(WAIT_SECONDS)


@dataclass(frozen=True)
class Question:
    """What a rollout asks, and where its answer goes: a text, or None to end it."""

    messages: list[Any]
    tools: list[Any]
    answer: "asyncio.Future[str | None]"


@cache
def client_class() -> type:
    """A client of verifiers behind which a policy of Assay stands."""
    import verifiers as vf  # pyright: ignore[reportMissingImports]
    from verifiers.clients import Client  # pyright: ignore[reportMissingImports]
    from verifiers.types import Response, ResponseMessage, ToolCall  # pyright: ignore[reportMissingImports]

    class PolicyClient(Client):  # the other methods talk to a server, and there is none
        def __init__(self, questions: "queue.Queue[Question | Exception | dict]") -> None:
            super().__init__(None)
            self.questions = questions

        async def get_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **kwargs: Any
        ) -> Any:
            answer = asyncio.get_running_loop().create_future()
            self.questions.put(Question(list(prompt), list(tools or ()), answer))
            text = await answer
            if text is None:
                raise vf.OverlongPromptError("the episode was cut")
            calls = call_syntax().parse(text) if tools else ()
            message = ResponseMessage(
                content=text,
                tool_calls=[
                    ToolCall(id=f"call_{n}", name=c.name, arguments=json.dumps(dict(c.arguments)))
                    for n, c in enumerate(calls)
                ]
                or None,
                finish_reason="tool_calls" if calls else "stop",
                is_truncated=False,
            )
            return Response(id="assay", created=0, model=model, message=message)

    PolicyClient.__abstractmethods__ = frozenset()
    return PolicyClient


async def _rollout(environment: Any, example: Mapping[str, Any], questions: queue.Queue) -> None:
    try:
        client = client_class()(questions)
        state = await environment.rollout(dict(example), client, "policy", {})
        if state.get("error") is not None and not state.get("prompt_too_long"):
            raise RuntimeError(f"the environment fails: {state['error']!r}")
        questions.put(state)
    except Exception as error:  # it belongs to the thread that waits
        questions.put(error)


@dataclass
class EnvironmentDialogue:
    """One rollout of an environment; a `tasks.task.Dialogue`."""

    environment: Any
    row: Row
    said: list[str] = field(default_factory=list)
    """What the policy wrote."""
    state: Any = None
    """The rollout's state once it is over."""
    _question: Question | None = None

    def __post_init__(self) -> None:
        self._questions: queue.Queue[Any] = queue.Queue()
        work = _rollout(self.environment, self.row.extra[EXAMPLE], self._questions)
        running: Future[None] = asyncio.run_coroutine_threadsafe(work, event_loop())
        weakref.finalize(self, running.cancel)

    def asks(self) -> Asked | None:
        """What the rollout asks; None when it is over. Raises what the environment raises."""
        self._wait()
        if self._question is None:
            return None
        earlier = len(self.row.prompt)
        messages = as_messages(self._question.messages[earlier:], self.said)
        return Asked((*self.row.prompt, *messages), as_tools(self._question.tools))

    def hears(self, text: str, ended: Ended) -> None:
        """Pass the policy's text to the rollout."""
        self.said.append(text)
        self._answer(text)

    def cut(self) -> None:
        """End the rollout as one that outgrew the model."""
        self._wait()
        if self._question is not None:
            self._answer(None)
            self._wait()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The policy's messages as it wrote them, and what the environment said."""
        self._wait()
        if self._question is None:
            return as_messages(self.state["completion"], self.said)
        return as_messages(self._question.messages[len(self.row.prompt) :], self.said)

    def _answer(self, text: str | None) -> None:
        assert self._question is not None, "nothing was asked"
        answer, self._question = self._question.answer, None
        event_loop().call_soon_threadsafe(answer.set_result, text)

    def _wait(self) -> None:
        if self._question is not None or self.state is not None:
            return
        try:
            found = self._questions.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            raise TimeoutError(f"no answer in {WAIT_SECONDS:.0f} seconds") from None
        if isinstance(found, Exception):
            raise found
        if isinstance(found, Question):
            self._question = found
        else:
            self.state = found


def as_messages(found: list[Any], said: list[str]) -> tuple[Message, ...]:
    """Messages of verifiers; those of the assistant are what the policy wrote, in order."""
    texts = iter(said)
    made = []
    for each in found:
        value = each if isinstance(each, Mapping) else each.model_dump()
        text = value.get("content") or ""
        if not isinstance(text, str):
            text = "".join(part.get("text", "") for part in text)
        role = value["role"]
        text = next(texts, text) if role == "assistant" else text
        made.append(Message(role, text, tool_call_id=value.get("tool_call_id") or ""))
    return tuple(made)


def as_tools(found: list[Any]) -> Tools:
    """Tools of verifiers as function descriptions."""
    return tuple(
        {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
        for t in found
    )


def played_again(environment: Any, row: Row, completion: Completion) -> EnvironmentDialogue | None:
    """The rollout that a recorded conversation leads to; None where it is answered otherwise.

    Raises what the environment raises.
    """
    recorded = completion.messages or (Message("assistant", completion.text),)
    talk = EnvironmentDialogue(environment, row)
    for message in recorded:
        if message.role == "assistant" and talk.asks() is not None:
            talk.hears(message.content, "stop")
    again = [(each.role, each.content) for each in talk.messages]
    talk.cut()
    same = again[: len(recorded)] == [(each.role, each.content) for each in recorded]
    return talk if same else None


@contextmanager
def errors_of_rewards() -> Iterator[list[str]]:
    """What verifiers logs as errors: it scores a reward function that raises as 0."""
    seen: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    listener = Listener(logging.ERROR)
    logger = logging.getLogger("verifiers")
    logger.addHandler(listener)
    try:
        yield seen
    finally:
        logger.removeHandler(listener)


@dataclass(frozen=True)
class RubricReward:
    """The weighted sum of a rubric's functions; each is a part."""

    environment: Any

    def __call__(self, row: Row, completion: Completion) -> Reward:
        """Abstains where a reward function raises, and where the environment is not the same twice.

        Raises what the environment raises.
        """
        talk = played_again(self.environment, row, completion)
        if talk is None:
            why = "the environment answers otherwise when the episode is played again"
            return Reward(None, why=why)
        with errors_of_rewards() as errors:
            finished(self.environment.rubric.score_rollout(talk.state))
        if errors:
            return Reward(None, why="; ".join(errors))
        parts = {name: float(value) for name, value in talk.state["metrics"].items()}
        return Reward(float(talk.state["reward"]), parts)


class VerifiersTask(BaseTask):
    """A task made of an environment; `source = "verifiers:train"` and `"verifiers:eval"` are its
    rows, `reward = "rubric"` its rubric."""

    def __init__(
        self, name: str, environment: Any, target: Callable[[Mapping[str, Any]], str] | None
    ) -> None:
        refuse(environment)
        self.name, self.environment, self.gold = name, environment, target
        self.rewards = {"rubric": RubricReward(environment)}
        weights = environment.rubric._get_reward_weights()
        self.reward_maximum = {"rubric": float(sum(w for w in weights if w > 0))}
        self.sources = {"verifiers": self.rows}

    def rows(self, split: str) -> Loaded:
        """The rows of `train` or `eval`. Raises InputError for another name."""
        sets = {"train": "get_dataset", "eval": "get_eval_dataset"}
        if split not in sets:
            raise InputError(f"unknown split {split!r}", field="source", fix="train or eval")
        found = getattr(self.environment, sets[split])()
        return Loaded(tuple(self._row(split, dict(example)) for example in found))

    def _row(self, split: str, example: dict[str, Any]) -> Row:
        answer = example.get("answer")
        return Row(
            id=f"{split}-{example['example_id']}",
            messages=as_messages(example["prompt"], []),
            gold=answer if answer not in ("", None) else None,
            extra={EXAMPLE: example},
        )

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The environment's own prompt, system text and examples included."""
        return row.messages

    def target(self, row: Row) -> Message:
        """What `target` says that a right answer is. Raises InputError without it."""
        if self.gold is None:
            fix = "give verifiers_task(target=lambda example: ...), the text of a right answer"
            raise InputError(f"row {row.id} has no answer to imitate", fix=fix)
        return Message("assistant", self.gold(row.extra[EXAMPLE]))

    def dialogue(self, row: Row) -> Dialogue | None:
        """A rollout of the environment; None where one answer is all."""
        from verifiers import SingleTurnEnv  # pyright: ignore[reportMissingImports]

        if isinstance(self.environment, SingleTurnEnv):
            return None
        return EnvironmentDialogue(self.environment, row)


def refuse(environment: Any) -> None:
    """Raise InputError for rewards that ask a model or compare a group."""
    import verifiers as vf  # pyright: ignore[reportMissingImports]

    rubric = environment.rubric
    for each in (rubric, *getattr(rubric, "rubrics", ())):
        if isinstance(each, vf.JudgeRubric):
            problem = f"{type(each).__name__} asks a model by itself, beside the run's record"
            fix = "write the judge as a reward with a helper model, [model.NAME]"
            raise InputError(problem, fix=fix)
    if rubric.has_group_rewards:
        problem = "it has rewards over groups of completions, and each is judged alone here"
        raise InputError(problem, fix="make them rewards of one completion")


def verifiers_task(
    name: str, environment: Any, target: Callable[[Mapping[str, Any]], str] | None = None
) -> VerifiersTask:
    """The task of a loaded environment. `target` gives the text of a right answer to a row of the
    environment, for SFT and for the proof of gold answers.

    Raises InputError.
    """
    return VerifiersTask(name, environment, target)
