"""Answers of a model behind an endpoint, judged and recorded item by item.

The endpoint gives text alone, so a line has no tokens, and its counts are the server's; of a
dialogue it keeps what was said. An answer that did not come or cannot be kept, or a dialogue whose
world failed, is an abstention that says why; it is never a wrong answer. Every reply is in
`reply_journal` before it is used. Runs and their manifests are `endpoint_runs`' part.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.conversation import dump_messages
from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.experiment.tables import EvaluateSpec
from assay.lab.evaluate.reply_journal import NotJournalled, Place, ReplyJournal, request_hash
from assay.lab.evaluate.request_slots import RequestSlots, Stopped
from assay.lab.monitor.observer import Observer
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.endpoint.client import Endpoint, EndpointError, Said, Unanswered
from assay.rollout.token_choice import key_state
from assay.runs.records import EvaluationRecord, RecordWriter, conversation_columns
from assay.tasks.running import RewardRunner
from assay.tasks.task import Benchmark, Task, Tools, error_type

CHUNK = 64
"""Answers judged and recorded together."""
TOGETHER = 8
"""Requests that the endpoint is asked at once."""
WAITING = 64
"""Items under way at once, those included that wait before they ask again."""
MOST_COUNTED = 2**31 - 1
"""What the column of a record holds."""
BASE = "base"
"""The name of the only checkpoint that an endpoint has."""

Say = Callable[[Sequence[Message], Tools], Said]


@dataclass(frozen=True)
class EndpointEvaluation:
    """One benchmark made ready to be asked through an endpoint."""

    spec: EvaluateSpec
    task: Task
    made: Benchmark
    items: tuple[Row, ...]
    record: EvaluationRecord
    seed: int

    @property
    def sampling(self) -> Sampling:
        """The sampling settings of the evaluation."""
        table = self.spec.sampling
        return Sampling(table.temperature, table.max_tokens, table.top_p, table.top_k)


@dataclass(frozen=True)
class Heard:
    """What came of one repeat of an item."""

    completion: Completion
    said: tuple[Said, ...]
    failure: str = ""
    """Why there is no answer."""

    def counted(self, name: str) -> int | None:
        """The sum of one of the server's token counts; None where it did not count every answer."""
        counts = [getattr(one, name) for one in self.said]
        whole = None if None in counts or not counts else sum(counts)
        return None if whole is None or whole > MOST_COUNTED else whole


def answer_all(
    evaluation: EndpointEvaluation,
    endpoint: Endpoint,
    folder: Path,
    observer: Observer,
    runner: RewardRunner,
) -> Path:
    """Ask and judge what the record lacks; returns the record's file.

    Raises EndpointError, and DamagedFile for a journal of replies that cannot be read.
    """
    jobs = evaluation.record.jobs(BASE)
    name = evaluation.record.name
    with RecordWriter(folder, evaluation.record, BASE) as writer:
        starts = [n for n in range(0, len(jobs), CHUNK) if not writer.has_chunk(n // CHUNK)]
        chunks = [jobs[start : start + CHUNK] for start in starts]
        with asking(evaluation, endpoint, writer.parts, chunks) as coming:
            for start, chunk, waiting in zip(starts, chunks, coming, strict=True):
                observer.evaluation(name, BASE, start, len(jobs))
                started = time.perf_counter()
                heard = [each.result() for each in waiting]
                lines = chunk_lines(evaluation, chunk, heard, runner, started)
                writer.write_chunk(start // CHUNK, lines)
        file = writer.finish()
    observer.evaluation(name, BASE, len(jobs), len(jobs))
    return file


@contextmanager
def asking(
    evaluation: EndpointEvaluation,
    endpoint: Endpoint,
    parts: Path,
    chunks: Sequence[Sequence[tuple[int, int]]],
) -> Iterator[list[list[Future[Heard]]]]:
    """What comes of the (item, repeat) pairs of each chunk; asked side by side.

    Where the block ends before all is answered, no further request is sent.
    """
    slots = RequestSlots(TOGETHER)
    asker = replace(endpoint, pause=slots.pause)
    threads = ThreadPoolExecutor(WAITING, thread_name_prefix="assay-endpoint")
    with ReplyJournal(parts) as journal:

        def one(job: tuple[int, int]) -> Heard:
            with slots.held():
                return ask(evaluation, asker, job, journal)

        try:
            yield [[threads.submit(one, job) for job in chunk] for chunk in chunks]
        finally:
            slots.close()
            threads.shutdown(cancel_futures=True)


def chunk_lines(
    evaluation: EndpointEvaluation,
    jobs: Sequence[tuple[int, int]],
    heard: Sequence[Heard],
    runner: RewardRunner,
    started: float,
) -> list[dict[str, Any]]:
    """The record's lines of some (item, repeat) pairs."""
    rewards = [Reward(None, why=each.failure) for each in heard]
    fresh = [n for n, each in enumerate(heard) if not each.failure]
    pairs = [(evaluation.items[jobs[n][0]], heard[n].completion) for n in fresh]
    for n, reward in zip(fresh, runner.score(pairs), strict=True):
        rewards[n] = reward
    seconds = (time.perf_counter() - started) / len(jobs)
    return [
        line(evaluation, evaluation.items[index], repeat, each, reward, seconds)
        for (index, repeat), each, reward in zip(jobs, heard, rewards, strict=True)
    ]


def ask(
    evaluation: EndpointEvaluation,
    endpoint: Endpoint,
    job: tuple[int, int],
    journal: ReplyJournal,
) -> Heard:
    """The answer to one item, or the dialogue with it.

    Raises EndpointError, NotJournalled, and Stopped.
    """
    item, repeat = evaluation.items[job[0]], job[1]
    said: list[Said] = []

    def say(messages: Sequence[Message], tools: Tools) -> Said:
        sent = [dump_messages(tuple(messages)), list(tools)]
        place = Place(item.id, repeat, len(said), request_hash(sent))
        said.append(reply(evaluation, endpoint, journal, place, messages, tools))
        return said[-1]

    messages: tuple[Message, ...] = ()
    try:
        if evaluation.made.dialogue is None:
            say(evaluation.task.prompt(item), item.tools)
        else:
            messages = converse(evaluation.made.dialogue(item), say)
    except (EndpointError, NotJournalled, Stopped):
        raise
    except Unanswered as error:
        return Heard(Completion(""), tuple(said), f"endpoint: {error}")
    except Exception as error:  # the world of one item failed; the others go on
        return Heard(Completion(""), tuple(said), f"environment: {type(error).__name__}: {error}")
    text = "\n".join(one.text for one in said)
    return Heard(Completion(text, (), said[-1].ended, messages), tuple(said))


def reply(
    evaluation: EndpointEvaluation,
    endpoint: Endpoint,
    journal: ReplyJournal,
    place: Place,
    messages: Sequence[Message],
    tools: Tools,
) -> Said:
    """What the journal or else the endpoint has to one request. Raises Unanswered, EndpointError.

    A failure is put down like an answer: it may have been paid for too.
    """
    came = journal.known(place)
    if came is None:
        # Servers take seeds of 31 bits; equal items of another seed shall differ.
        seed = key_state(SampleKey(evaluation.seed, place.item, place.repeat)) >> 33
        try:
            sampling, rendering = evaluation.sampling, evaluation.spec.rendering
            came = endpoint.say(messages, tools, sampling, rendering, seed)
        except Unanswered as error:
            came = error
        journal.add(place, came)
    if isinstance(came, Unanswered):
        raise came
    return came


def converse(dialogue: Any, say: Say) -> tuple[Message, ...]:
    """Play a `tasks.dialogue.Dialogue` to its end; returns what followed the prompt."""
    while (asked := dialogue.asks()) is not None:
        said = say(asked.messages, asked.tools)
        dialogue.hears(said.text, said.ended)
    return dialogue.messages


def line(
    evaluation: EndpointEvaluation,
    item: Row,
    repeat: int,
    heard: Heard,
    reward: Reward,
    seconds: float,
) -> dict[str, Any]:
    """One line of an evaluation record."""
    talk = evaluation.made.dialogue and conversation_columns(heard.completion.messages, ())
    return {
        "sample_id": f"{evaluation.record.name}/{BASE}/{item.id}#{repeat}",
        "item_id": item.id,
        "repeat": repeat,
        "output": heard.completion.text,
        "tokens": [],
        "completion_tokens": heard.counted("completion_tokens"),
        "prompt_tokens": heard.said[-1].prompt_tokens if heard.said else None,
        "score": reward.value,
        "parts": json.dumps(dict(reward.parts), sort_keys=True),
        "error": error_type(evaluation.made.classify, item, heard.completion, reward),
        "why": reward.why,
        "ended": heard.completion.ended,
        "seconds": seconds,
        **(talk or {}),
    }
