"""verifiers alone: the rewards of an environment's tasks, whose answers a small server gives."""

import asyncio
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path[:0] = [str(Path.cwd())]
sys.path.append(sys.argv[2])  # behind: a file there has the name of the package
import verifiers.v1 as vf  # noqa: E402
from replies import answer, grade  # noqa: E402
from verifiers_program import environment  # noqa: E402


class Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = "\n".join(f"{m['role']}: {m.get('content') or ''}" for m in body["messages"])
        tools = [*(each["function"]["name"] for each in body.get("tools") or ()), ""]
        said = grade(text) if body["model"] == "grader" else answer(text, tools[0])
        message = {"role": "assistant", "content": said}
        if isinstance(said, dict):
            function = {"name": said["name"], "arguments": json.dumps(said["arguments"])}
            call = {"id": "call_1", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        end = "tool_calls" if isinstance(said, dict) else "stop"
        choice = {"index": 0, "message": message, "finish_reason": end}
        whole = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
        told, kind = json.dumps({**whole, "choices": [choice]}), "application/json"
        if body.get("stream"):
            for place, call in enumerate(message.get("tool_calls", ())):
                call["index"] = place
            chunk = {"index": 0, "delta": message, "finish_reason": end}
            whole |= {"object": "chat.completion.chunk", "choices": [chunk]}
            told, kind = f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n", "text/event-stream"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(told.encode())))
        self.end_headers()
        self.wfile.write(told.encode())

    def log_message(self, *_: object) -> None:
        pass


async def rewards(name: str, url: str) -> list[float]:
    env = environment(name, {})
    context = vf.ModelContext(
        client=vf.EvalClientConfig(base_url=url, api_key_var="PRIME_API_KEY"),
        model="policy",
        sampling=vf.SamplingConfig(),
    )
    async with env.serving():
        slots = [slot for task in env.taskset for slot in env.slots(task)]
        episodes = [await env.run_slot(slot, context) for slot in slots]
    assert all(episode.ok for episode in episodes), [e.errors for e in episodes]
    return [sum(trace.reward for trace in episode.traces) for episode in episodes]


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
os.environ |= {"PRIME_INFERENCE_URL": url, "PRIME_API_KEY": "k", "PYTHONPATH": str(Path.cwd())}
print(json.dumps(asyncio.run(rewards(sys.argv[1], url))))
