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


@dataclass
class TeacherServer:
    """What it was asked, and what it does wrong."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    failing: int = 0
    """Requests that fail first."""
    silent: bool = False
    """It knows no `prompt_logprobs`."""
    other: int | None = None
    """A token that it calls by another name."""


@contextmanager
def teacher_server(folder: Path) -> Iterator[TeacherServer]:
    """Serves the model of a folder."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer, found = AutoTokenizer.from_pretrained(folder), TeacherServer()
    lock = threading.Lock()

    def places(asked: dict[str, Any]) -> list[Any]:
        ids = torch.tensor([asked["prompt"]])
        with torch.no_grad(), lock:
            logps_TV = model(ids).logits[0].float().log_softmax(-1)
        told: list[Any] = [None]
        for row, own in zip(logps_TV[:-1], asked["prompt"][1:], strict=True):
            words = {*row.topk(asked["prompt_logprobs"]).indices.tolist(), own}
            names = {w: "!" if w == found.other else tokenizer.decode([w]) for w in words}
            told.append(
                {str(w): {"logprob": float(row[w]), "decoded_token": names[w]} for w in words}
            )
        return told

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, {"data": []})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.asked.append(asked)
            if found.failing:
                found.failing -= 1
                self.answer(503, {"error": "busy"})
                return
            choice: dict[str, Any] = {"text": "x", "finish_reason": "length"}
            if not found.silent:
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
