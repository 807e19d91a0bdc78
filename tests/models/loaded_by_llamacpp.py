"""What llama.cpp makes of a GGUF file: read by the interpreter of its own environment, with
`xllamacpp`, on the port of its own server.
"""

import json
import sys
import urllib.request
from typing import Any

import xllamacpp  # type: ignore[import-not-found]


def main() -> None:
    """Standard input is `{"file": ..., "texts": [...], "chats": [[message, ...], ...], "ids":
    [...], "max_tokens": n}`; the last line of output has the token ids of each text, of each chat
    the prompt's and the greedy answer's, and which of `ids` end an answer."""
    request = json.loads(sys.stdin.read())
    server = xllamacpp.Server(settings(request["file"]))

    def ask(path: str, **body: Any) -> dict[str, Any]:
        url, sent = server.listening_address + path, json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, sent, JSON)) as answer:
            return json.load(answer)

    def tokens(text: str) -> list[int]:
        return ask("/tokenize", content=text, add_special=True, parse_special=True)["tokens"]

    def answer(prompt: str | list[int], length: int, **options: Any) -> dict[str, Any]:
        greedy = {"temperature": 0, "return_tokens": True, "n_predict": length}
        return ask("/completion", prompt=prompt, **greedy, **options)

    def chat(messages: list[dict[str, str]]) -> dict[str, Any]:
        prompt = ask("/apply-template", messages=messages)["prompt"]
        made = answer(prompt, request["max_tokens"])
        return {"prompt": tokens(prompt), "answer": made["tokens"], "stop": made["stop_type"]}

    def ends(id_: int) -> bool:
        made = answer("a", 1, logit_bias=[[id_, 1e4]])
        return made["tokens"] == [id_] and made["stop_type"] == "eos"

    made = {
        "texts": [tokens(text) for text in request["texts"]],
        "chats": [chat(messages) for messages in request["chats"]],
        "ends": [id_ for id_ in request["ids"] if ends(id_)],
    }
    print(json.dumps(made), flush=True)


JSON = {"Content-Type": "application/json"}


def settings(file: str) -> Any:
    """One thread on the CPU; keys and values in fp32, as Transformers keeps those of fp32."""
    wanted = xllamacpp.CommonParams()
    wanted.model.path, wanted.use_jinja, wanted.warmup = file, True, False
    wanted.n_ctx, wanted.n_parallel, wanted.n_gpu_layers = 2048, 1, 0
    wanted.cpuparams.n_threads = 1
    wanted.cache_type_k = wanted.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return wanted


main()
