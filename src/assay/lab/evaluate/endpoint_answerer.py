"""A model behind an endpoint as an `Answerer`: messages out, text in, many requests at once.

Its records have no tokens, and token counts are the server's. A missing or unusable answer, or a
failed environment, is an abstention with a reason, never a wrong answer. Every reply is journalled
before it is used, so that an interrupted evaluation pays for none twice.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.data.conversation import dump_messages
from assay.data.episode import Completion
from assay.data.files import append_line, sync
from assay.data.hashing import sha256_text
from assay.data.row import Message
from assay.errors import InputError, RunFailure, within
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.experiment import Experiment
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.answerer import BASE, Answered, Request, Unlearned, holder, plain_name
from assay.lab.setup.evaluation import Evaluation, make_evaluation
from assay.lab.setup.manifest import about_run
from assay.rl.policy import SampleKey
from assay.rollout.engines.endpoint.client import (
    Endpoint,
    Said,
    Unanswered,
    check_rendering,
)
from assay.rollout.engines.register import TEXT_ENGINES
from assay.rollout.episodes import turn_finished
from assay.rollout.token_choice import key_state
from assay.runs.manifest_file import Manifest
from assay.runs.run_files import FIX, DamagedFile, named_line, whole_lines
from assay.tasks.task import Dialogue, Tools
from assay.train.sampled_groups import FAILED

JOURNAL = "replies.jsonl"
KINDS = {"text": str, "ended": str, "prompt_tokens": int | None, "completion_tokens": int | None}
"""The fields of a `Said` and what they hold."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which request of an evaluation: the turn counts from 0."""

    item: str
    repeat: int
    turn: int
    request: str
    """See `request_hash`."""


class ReplyJournal:
    """Answers by the request that they answer; safe to use from several threads."""

    def __init__(self, folder: Path):
        """Reads what an interrupted evaluation left in `folder`. Raises DamagedFile."""
        self._file = folder / JOURNAL
        self._lock = threading.Lock()
        self._file.touch()
        sync(folder)
        self._known = _read(self._file)

    def known(self, place: Place) -> Said | Unanswered | None:
        """The outcome of a request; None if it is unknown."""
        return self._known.get(place)

    def add(self, place: Place, outcome: Said | Unanswered) -> None:
        """Write the outcome of a request; it is on the disk on return. Raises RunFailure."""
        line = {**asdict(place), **_values(outcome)}
        try:
            with self._lock:
                append_line(self._file, named_line(self._file, line))
                sync(self._file)
        except OSError as error:
            raise RunFailure(f"{self._file}: cannot be written: {error.strerror}") from error


def request_hash(sent: Any) -> str:
    """The hash of what a request sends, a JSON value."""
    return sha256_text(json.dumps(sent, sort_keys=True))


def _values(outcome: Said | Unanswered) -> Mapping[str, Any]:
    if isinstance(outcome, Said):
        return {name: getattr(outcome, name) for name in KINDS}
    return {"reason": outcome.reason, "detail": outcome.detail}


def _read(file: Path) -> dict[Place, Said | Unanswered]:
    return dict(_entry(line, file, n) for n, line in enumerate(whole_lines(file), 1))


def _entry(line: Mapping[str, Any], file: Path, number: int) -> tuple[Place, Said | Unanswered]:
    try:
        place = Place(*(_kind(line[name], kind) for name, kind in Place.__annotations__.items()))
        if "reason" in line:
            return place, Unanswered(_kind(line["reason"], str), _kind(line["detail"], str))
        return place, Said(**{name: _kind(line[name], kind) for name, kind in KINDS.items()})
    except (KeyError, TypeError) as error:
        problem = f"is no reply: {' '.join(str(error).split())}"
        raise DamagedFile(problem, file=file, line=number, fix=FIX) from error


def _kind(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not {kind}")
    return value


TOGETHER = 8
"""Requests that the endpoint is asked at once."""
WAITING = 64
"""Items in progress at once, including those that wait for a slot."""
MOST_COUNTED = 2**31 - 1
"""The largest integer in the column of a record."""
NOTED = ("benchmark", "role", "items_hash", "repeats", "sampling", "rendering", "checker")
"""Fields of an evaluation in the manifest, apart from the benchmark's options."""

Send = Callable[[Sequence[Message], Tools], Said]


@dataclass(frozen=True)
class EndpointAnswerer(Unlearned):
    """See `Answerer`. There is one checkpoint, "base"; what weights answer is not known."""

    @property
    def chunk(self) -> int:
        """See `Answerer`."""
        return 64

    @cached_property
    def endpoint(self) -> Endpoint:
        """The endpoint of the model. Raises InputError."""
        experiment = self.session.experiment
        return TEXT_ENGINES["endpoint"](experiment.model, experiment.endpoint)

    def check(self) -> None:
        """Raise InputError where nothing answers, or not with this key."""
        self.endpoint.check()

    def evaluation(
        self, name: str, spec: EvaluateSpec, reference: CheckpointReference = BASE
    ) -> Evaluation:
        """See `Answerer`."""
        session = self.session
        given = (session.task, {}, f"endpoint: {spec.rendering}", session.seed)
        made = make_evaluation(name, spec, *given, root=session.run.root)
        with within(f"evaluate.{name}"):
            check_rendering(spec.rendering)
            of_rows = any(item.template_options for item in made.items)
            for key, given in (
                ("template_options", spec.template_options or of_rows),
                ("keep_special", spec.keep_special),
            ):
                if given:
                    problem = "the server renders, and is not told of them"
                    raise InputError(problem, field=key, fix="remove them")
        return made

    def manifest(self) -> Manifest:
        """See `Answerer`; weights are unknown, and nothing is trained."""
        return {
            **about_run(self.session),
            "base_weights": {
                "source": self.session.experiment.model,
                "endpoint": self.endpoint.url,
            },
            "data": {},
            "stages": {},
            "evaluation": {
                name: {key: getattr(each.record, key) for key in NOTED}
                | {"options": dict(each.record.options)}
                for name, each in self.evaluations().items()
            },
        }

    def answers(
        self,
        evaluation: Evaluation,
        checkpoint: str,
        chunks: Sequence[Sequence[Request]],
        folder: Path,
    ) -> Generator[list[Answered]]:
        """See `Answerer`; the requests of all chunks are sent side by side.

        Once it is closed, no further request is sent. Raises InputError, RunFailure, and
        DamagedFile for a journal that cannot be read.
        """
        self.check()
        slots = RequestSlots(TOGETHER)
        threads = ThreadPoolExecutor(WAITING, thread_name_prefix="assay-endpoint")
        # A pause blocks; each item can be in one, besides its own thread, which waits for it.
        pausing = ThreadPoolExecutor(WAITING, thread_name_prefix="assay-pause")

        async def pause(seconds: float) -> None:
            await asyncio.get_running_loop().run_in_executor(pausing, slots.pause, seconds)

        asker = replace(self.endpoint, pause=pause)
        journal = ReplyJournal(folder)

        def one(request: Request) -> Answered:
            with slots.held():
                return ask(evaluation, asker, request, journal)

        try:
            coming = [[threads.submit(one, each) for each in chunk] for chunk in chunks]
            for waiting in coming:
                answered = []
                for each in waiting:
                    answered.append(each.result())
                    turn_finished()
                yield answered
        finally:
            slots.close()
            threads.shutdown(cancel_futures=True)
            pausing.shutdown()


def endpoint_holder(root: Path, source: str, skill: str) -> Experiment:
    """The experiment of the run that holds what the model at OPENAI_BASE_URL is measured on.

    Raises InputError.
    """
    url = TEXT_ENGINES["endpoint"](source, None).url
    return holder(endpoint_run_name(skill, source, url), source, skill, url)


def endpoint_run_name(skill: str, source: str, url: str) -> str:
    """The name of the run that holds what a model at an endpoint was measured on."""
    return f"{plain_name(skill, source)}-{sha256_text(f'{source} {url}')[:8]}"


def ask(
    evaluation: Evaluation, endpoint: Endpoint, request: Request, journal: ReplyJournal
) -> Answered:
    """The answer to one item, or the dialogue with it.

    Raises what ends the evaluation: InputError, RunFailure, RuntimeError.
    """
    item, repeat = evaluation.items[request[0]], request[1]
    replies: list[Said] = []
    ends: list[BaseException] = []

    def send(messages: Sequence[Message], tools: Tools) -> Said:
        sent = [dump_messages(tuple(messages)), list(tools)]
        place = Place(item.id, repeat, len(replies), request_hash(sent))
        try:
            replies.append(reply(evaluation, endpoint, journal, place, messages, tools))
        except Unanswered:
            raise
        except Exception as error:  # no further request can be answered
            ends.append(error)
            raise
        return replies[-1]

    completion, failure = Completion(""), ""
    try:
        messages: tuple[Message, ...] = ()
        if evaluation.dialogue is None:
            send(evaluation.task.prompt(item), item.tools)
        else:
            messages = converse(evaluation.dialogue(item), send)
        text = "\n".join(each.text for each in replies)
        completion = Completion(text, (), replies[-1].ended, messages)
    except KeyboardInterrupt:
        raise
    except Unanswered as error:
        failure = f"endpoint: {error}"
    except BaseException as error:  # the environment of one item failed; the others go on
        if error in ends:
            raise
        failure = f"{FAILED}{type(error).__name__}: {error}"
    return Answered(
        item=item,
        repeat=repeat,
        completion=completion,
        prompt_tokens=replies[-1].prompt_tokens if replies else None,
        completion_tokens=counted(replies),
        failure=failure,
        several=evaluation.dialogue is not None,
    )


def counted(replies: Sequence[Said]) -> int | None:
    """The tokens of all answers; None where the server did not count each, or beyond measure."""
    counts = [each.completion_tokens for each in replies]
    known = [count for count in counts if count is not None]
    if not counts or len(known) < len(counts) or sum(known) > MOST_COUNTED:
        return None
    return sum(known)


def reply(
    evaluation: Evaluation,
    endpoint: Endpoint,
    journal: ReplyJournal,
    place: Place,
    messages: Sequence[Message],
    tools: Tools,
) -> Said:
    """The reply to one request, from the journal or else the endpoint.

    Raises Unanswered, InputError. A failure is journalled as well, because it may have been paid
    for.
    """
    outcome = journal.known(place)
    if outcome is None:
        # Servers take seeds of 31 bits; equal items of another seed shall differ.
        seed = key_state(SampleKey(evaluation.seed, place.item, place.repeat)) >> 33
        try:
            sampling, rendering = evaluation.sampling, evaluation.spec.rendering
            outcome = endpoint.say(messages, tools, sampling, rendering, seed)
        except Unanswered as error:
            outcome = error
        journal.add(place, outcome)
    if isinstance(outcome, Unanswered):
        raise outcome
    return outcome


def converse(dialogue: Dialogue, send: Send) -> tuple[Message, ...]:
    """Play a dialogue to its end; returns what followed the prompt."""
    while (asked := dialogue.asks()) is not None:
        answer = send(asked.messages, asked.tools)
        dialogue.hears(answer.text, answer.ended)
    return dialogue.messages


class RequestSlots:
    """A limit on concurrent requests; a holder that must wait gives up its slot."""

    def __init__(self, count: int):
        self._free = threading.Semaphore(count)
        self._closed = threading.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take a slot. An exception in its holder closes all slots. Raises RuntimeError once they
        are closed."""
        self._take()
        try:
            yield
        except BaseException:
            self.close()
            raise
        finally:
            self._free.release()

    def pause(self, seconds: float) -> None:
        """Sleep without the caller's slot. Raises RuntimeError once the slots are closed."""
        self._free.release()
        try:
            self._closed.wait(seconds)
        finally:
            self._free.acquire()
        self._refuse_closed()

    def close(self) -> None:
        """Close the slots and wake all waiting threads."""
        self._closed.set()

    def _take(self) -> None:
        self._free.acquire()
        if self._closed.is_set():
            self._free.release()
        self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise RuntimeError("no further request is sent")
