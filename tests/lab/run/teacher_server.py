"""A server that tells its likeliest words of prompts as vLLM's does, from a tiny model's scores."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from assay.lab.session.session import TRIED


@dataclass
class TeacherServer:
    """What it was asked, and what it does wrong."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Of the runs."""
    tried: int = 0
    """Before the runs."""
    failing: int = 0
    """Requests of the runs that fail first."""
    silent: bool = False
    """It knows no `prompt_logprobs`."""
    other: int | None = None
    """A token that it calls by another name."""
    late: bool = False
    """Nothing is wrong before the runs."""

    @property
    def right(self) -> bool:
        """Whether nothing is wrong yet."""
        return self.late and not self.asked


@contextmanager
def teacher_server(folder: Path) -> Iterator[TeacherServer]:
    """Serves the model of a folder."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer, found = AutoTokenizer.from_pretrained(folder), TeacherServer()
    lock, tried = threading.Lock(), tokenizer.encode(TRIED)

    def places(asked: dict[str, Any]) -> list[Any]:
        ids = torch.tensor([asked["prompt"]])
        with torch.no_grad(), lock:
            logps_TV = model(ids).logits[0].float().log_softmax(-1)
        told, other = list[Any]([None]), None if found.right else found.other
        for row, own in zip(logps_TV[:-1], asked["prompt"][1:], strict=True):
            words = {*row.topk(asked["prompt_logprobs"]).indices.tolist(), own}
            names = {w: "!" if w == other else tokenizer.decode([w]) for w in words}
            told.append(
                {str(w): {"logprob": float(row[w]), "decoded_token": names[w]} for w in words}
            )
        return told

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, {"data": []})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if asked["prompt"] == tried:
                found.tried += 1
            else:
                found.asked.append(asked)
            if found.failing and found.asked:
                found.failing -= 1
                self.answer(503, {"error": "busy"})
                return
            choice: dict[str, Any] = {"text": "x", "finish_reason": "length"}
            if found.right or not found.silent:
                choice["prompt_logprobs"] = places(asked)
            usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": 1}
            self.answer(200, {"choices": [choice], "usage": usage})

        def answer(self, status: int, body: Any) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
