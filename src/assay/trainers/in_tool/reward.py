"""Asks Assay for rewards. Part of a folder that `assay export --to` wrote; the trainer loads it.

Assay works in a process of its own, in the Python that ASSAY_PYTHON names, else in the trainer's.
An answer is decoded from its tokens as Assay decodes it. Nothing but the standard library and the
trainer's Transformers is needed here.
"""

import json
import os
import subprocess
import sys
import threading
import time
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = "assay.lab.session.reward_process"


class Judge:
    """The reward of the folder; its process starts with the first answer."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()

    @cached_property
    def settings(self):
        """What was exported of the reward."""
        return json.loads((self.folder / "reward.json").read_text(encoding="utf-8"))

    @cached_property
    def tokenizer(self):
        """The model's."""
        from transformers import AutoTokenizer

        own = self.folder / self.settings["model"]
        return AutoTokenizer.from_pretrained(own if own.is_dir() else self.settings["model"])

    @cached_property
    def process(self):
        """Assay's."""
        python = os.environ.get("ASSAY_PYTHON", sys.executable)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return subprocess.Popen([python, "-m", MODULE, str(self.folder)], env=clean, **pipes)

    def answer(self, id_, tokens):
        """An answer as the process reads it."""
        tokens = [int(token) for token in tokens]
        ends = set(self.settings["end_tokens"])
        kept = [token for token in tokens if token not in ends]
        cut = len(kept) == len(tokens) and len(tokens) >= self.settings["max_tokens"]
        text = self.tokenizer.decode(kept, skip_special_tokens=False)
        return {"id": id_, "text": text, "tokens": tokens, "ended": "length" if cut else "stop"}

    def rewards(self, ids, answers):
        """A reward of each answer, given in tokens, beside the answer as Assay reads it: `value`,
        which is null where Assay abstains, `why` and `parts`."""
        replies = [self.answer(*each) for each in zip(ids, answers, strict=True)]
        with self.lock:
            self.process.stdin.write(json.dumps(replies) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the reward's process ended: see its last words above")
        return [{**each, **reward} for each, reward in zip(replies, json.loads(line), strict=True)]

    @cached_property
    def journal(self):
        """The file of what this process judged."""
        started = int(time.time() * 1000)
        name = f"{os.environ.get('RANK', '0')}-{started}-{os.getpid()}.jsonl"
        file = self.folder / "output" / "answers" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def certain(self, ids, answers, step, keys=None):
        """The values, of tools that know no abstention: one raises, since a 0 would be false. What
        was judged for optimizer step `step` is written down, under the tool's own names of the
        answers where it has some; `assay import` takes it over."""
        rewards = self.rewards(ids, answers)
        keys = keys or [""] * len(ids)
        noted = [{"step": step, "key": key, **r} for key, r in zip(keys, rewards, strict=True)]
        with self.lock, self.journal.open("a", encoding="utf-8") as stream:
            stream.write("".join(json.dumps(each) + "\n" for each in noted))
        for id_, reward in zip(ids, rewards, strict=True):
            if reward["value"] is None:
                raise RuntimeError(f"no reward for an answer to row {id_}: {reward['why']}")
        return [reward["value"] for reward in rewards]


JUDGE = Judge(HERE)


def trl_reward(completion_ids, id, log_extra, **columns):
    """The reward as TRL calls it; null is an abstention there too. Its tables of completions get
    each answer as Assay reads it, which `assay import` takes over."""
    rewards = JUDGE.rewards(id, completion_ids)
    log_extra("assay", [json.dumps(reward) for reward in rewards])
    return [reward["value"] for reward in rewards]
