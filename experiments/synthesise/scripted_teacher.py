"""A teacher that answers by a script, behind OpenAI's interface: `python FILE NAME`.

NAME-teacher.jsonl lies beside this file and has a rule a line. The first whose `prompt` is found in
the conversation answers; which of several answers follows from the request's seed.
"""

import json
import random
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 8100


def answer(rules: list[dict[str, Any]], request: dict[str, Any]) -> str:
    """What the script says to a request."""
    text = "\n".join(f"{each['role']}: {each['content']}" for each in request["messages"])
    for rule in rules:
        if re.search(rule["prompt"], text):
            return random.Random(request.get("seed")).choice(rule["answer"])
    return "I do not know."


class Teacher(BaseHTTPRequestHandler):
    """Answers one request."""

    rules: list[dict[str, Any]]

    def do_GET(self) -> None:
        """The list of models, by which a client sees that it is up."""
        self.say({"object": "list", "data": [{"id": "scripted"}]})

    def do_POST(self) -> None:
        """A chat."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = answer(self.rules, asked)
        read = sum(len(each["content"].split()) for each in asked["messages"])
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": read, "completion_tokens": len(text.split())}
        self.say({"choices": [choice], "usage": usage})

    def say(self, value: Any) -> None:
        """Send a JSON value."""
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    file = Path(__file__).with_name(f"{sys.argv[1]}-teacher.jsonl")
    Teacher.rules = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    ThreadingHTTPServer(("127.0.0.1", PORT), Teacher).serve_forever()
