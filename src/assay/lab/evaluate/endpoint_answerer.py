"""A model behind an endpoint as an `Answerer`: messages out, text in, many requests at once.

Its records have no tokens, and token counts are the server's. A missing or unusable answer, or a
failed environment, is an abstention with a reason, never a wrong answer. Every answer is in a
ledger beside the record's chunks before it is used: an interrupted evaluation pays for none twice.
"""

import asyncio
import json
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from assay.data.conversation import dump_messages
from assay.data.episode import Completion
from assay.data.files import sha256_text
from assay.data.row import Message
from assay.errors import InputError, RunFailure, within
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.experiment import Experiment
from assay.experiment.tables import EvaluateSpec
from assay.lab.data.prepare import DataSet, prepare_set
from assay.lab.evaluate.answerer import Answerer, Chunks, ItemAnswer, Request, holder, plain_name
from assay.lab.models.endpoint_helper import EndpointHelper, Rounds
from assay.lab.models.learner import Encoder
from assay.lab.models.metering import HelperBudgets, Meter, MeteredModel
from assay.lab.session.evaluation import Evaluation, make_evaluation
from assay.lab.session.manifest import about_run
from assay.rl.policy import SampleKey
from assay.rollout.engines.endpoint.client import Endpoint, check_rendering, endpoint_of
from assay.rollout.engines.endpoint.openai_text import Unanswered
from assay.rollout.episodes import turn_finished
from assay.runs.cost_ledger import CostLedger
from assay.runs.run_directory import Manifest
from assay.tasks.helper_model import Caller, HelperAnswer, Question
from assay.tasks.task import Tools
from assay.train.sampled_groups import FAILED

TOGETHER = 8
"""Requests that the endpoint is asked at once."""
LOOK_SECONDS = 0.2
"""How often a request that waits to be repeated looks whether it is still wanted."""
WAITING = 64
"""Items in progress at once, including those that wait for a slot."""
NOTED = ("benchmark", "role", "items_hash", "repeats", "sampling", "rendering", "checker")
"""Fields of an evaluation in the manifest, apart from the benchmark's options."""


@dataclass
class EndpointAnswerer(Answerer):
    """See `Answerer`. There is one checkpoint, "base"; what weights answer is not known."""

    @cached_property
    def endpoint(self) -> Endpoint:
        """The endpoint of the model. Raises InputError."""
        experiment = self.session.experiment
        return endpoint_of(experiment.model, experiment.endpoint)

    def check(self) -> None:
        """Raise InputError where nothing answers, or not with this key."""
        self.endpoint.check()

    def evaluation(
        self, name: str, spec: EvaluateSpec, reference: CheckpointReference = BASE
    ) -> Evaluation:
        """See `Answerer`."""
        session, sets = self.session, dict[str, DataSet]()
        if spec.data is not None:
            # Without a limit on tokens, which the experiment's rules refuse, nothing is encoded.
            context = (session.task, lambda rendering: cast(Encoder, None), session.run.root, sets)
            prepare_set(session.experiment, spec.data.partition(".")[0], *context, session.observer)
        value = (session.task, sets, f"endpoint: {spec.rendering}", session.seed)
        made = make_evaluation(name, spec, *value, root=session.run.root)
        with within(f"evaluate.{name}"):
            check_rendering(spec.rendering)
            of_rows = any(item.template_options for item in made.items)
            for key, value in (
                ("template_options", spec.template_options or of_rows),
                ("keep_special", spec.keep_special),
            ):
                if value:
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
        self, evaluation: Evaluation, checkpoint: str, chunks: Chunks, folder: Path
    ) -> Generator[list[ItemAnswer]]:
        """See `Answerer`; the requests of all chunks are sent side by side.

        Once it is closed, no further request is sent. Raises InputError and RunFailure.
        """
        self.check()
        closed, ledger, budgets = threading.Event(), CostLedger(), HelperBudgets()

        async def pause(seconds: float) -> None:
            end = time.monotonic() + seconds
            while not closed.is_set() and (left := end - time.monotonic()) > 0:
                await asyncio.sleep(min(left, LOOK_SECONDS))

        ledger.move_to(folder)
        endpoint = replace(self.endpoint, pause=pause, turns=asyncio.Semaphore(TOGETHER))
        helper = EndpointHelper("", endpoint, evaluation.spec.rendering, Rounds(ledger))
        meter = Meter(endpoint.model, ledger, budgets)
        model = MeteredModel("", helper, evaluation.sampling, meter, Caller(evaluation.name))
        threads = ThreadPoolExecutor(WAITING, thread_name_prefix="assay-endpoint")

        def close() -> None:
            closed.set()
            budgets.limits = {"run": -1}  # what still waits for its turn has no room to be sent

        def one(request: Request) -> ItemAnswer:
            try:
                return ask(evaluation, model, request)
            except BaseException:
                close()
                raise

        try:
            coming = [[threads.submit(one, each) for each in chunk] for chunk in chunks]
            for waiting in coming:
                answered = []
                for each in waiting:
                    answered.append(each.result())
                    turn_finished()
                yield answered
        finally:
            close()
            threads.shutdown(cancel_futures=True)
            ledger.close()


def endpoint_holder(root: Path, source: str, skill: str) -> Experiment:
    """The experiment of the run that holds what the model at OPENAI_BASE_URL is measured on.

    Raises InputError.
    """
    url = endpoint_of(source, None).url
    name = f"{plain_name(skill, source)}-{sha256_text(f'{source} {url}')[:8]}"
    return holder(name, source, skill, url)


def ask(evaluation: Evaluation, model: MeteredModel, request: Request) -> ItemAnswer:
    """The answer to one item, or the dialogue with it. Raises what ends the evaluation: InputError
    and RunFailure."""
    item, repeat = evaluation.items[request[0]], request[1]
    key = SampleKey(evaluation.seed, item.id, repeat)
    replies: list[HelperAnswer] = []

    def send(messages: Sequence[Message], tools: Tools) -> HelperAnswer:
        sent = [dump_messages(tuple(messages)), list(tools)]
        name = answer_name(model.meter.ledger, item.id, repeat, len(replies), sent)
        free = {"most": (0, 0), "remembered_as": name}
        (answer,) = model.answer([Question(messages, model.sampling, key, tools=tools, **free)])
        if answer.failure:
            raise Unanswered(answer.failure)
        replies.append(answer)
        return answer

    completion, failure = Completion(""), ""
    try:
        messages: tuple[Message, ...] = ()
        earned = None
        if evaluation.dialogue is None:
            send(evaluation.task.prompt(item), item.tools)
        else:
            dialogue = evaluation.dialogue(item)
            if (begin := getattr(dialogue, "begin", None)) is not None:  # an agent's
                begin(key)
            while (turn := dialogue.asks()) is not None:
                answer = send(turn.messages, turn.tools)
                dialogue.hears(answer.text, answer.ended)
            messages, earned = dialogue.messages, getattr(dialogue, "reward", None)
        text = "\n".join(each.text for each in replies)
        completion = Completion(text, (), replies[-1].ended, messages, earned)
    except (KeyboardInterrupt, RunFailure, InputError):
        raise
    except Unanswered as error:
        failure = str(error)
    except BaseException as error:  # the environment of one item failed; the others go on
        failure = f"{FAILED}{type(error).__name__}: {error}"
    known = [each.completion_tokens for each in replies if each.completion_tokens is not None]
    return ItemAnswer(
        item=item,
        repeat=repeat,
        completion=completion,
        prompt_tokens=replies[-1].prompt_tokens if replies else None,
        completion_tokens=sum(known) if known and len(known) == len(replies) else None,
        failure=failure,
        several=evaluation.dialogue is not None,
    )


def answer_name(ledger: CostLedger, item: str, repeat: int, turn: int, sent: Any) -> str:
    """What an answer is remembered by: in a ledger that lies elsewhere it is not found."""
    file = ledger.file
    place = [] if file is None else [file.parts[-3:-1]]
    return sha256_text(json.dumps([*place, item, repeat, turn, sent], sort_keys=True))
