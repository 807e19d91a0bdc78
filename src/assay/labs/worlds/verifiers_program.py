"""Plays environments of verifiers 0.4, run by the Python of an environment that holds it.

It reads lines: one with `root` asks for the rows of an environment, any other is an episode whose
reward it writes (docs/agents.md). What verifiers and its judges ask by default goes to the address
that the line names.
"""

import asyncio
import hashlib
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
from verifiers.v1.runtimes.subprocess import SubprocessRuntime
from verifiers.v1.utils import loaders

Json = dict[str, Any]
prepare_anew = SubprocessRuntime.prepare_uv_script


async def prepare(self: Any, script: Any, env: Any = None, *, activate: bool = True) -> list[str]:
    """The chat program's packages are all here: nothing is fetched for it."""
    if script != CHAT_PROGRAM_SOURCE:
        return await prepare_anew(self, script, env, activate=activate)
    path = f"{self.scripts_dir}/{hashlib.sha256(script.encode()).hexdigest()}.py"
    await self.write(f"{path}.{self.name}", script.encode())
    # Another episode may be reading it.
    return [sys.executable, str(Path(f"{path}.{self.name}").replace(path))]


SubprocessRuntime.prepare_uv_script = prepare


def environment(name: str, options: Json) -> Any:
    """An environment with these keys of its `[env]` table; its agents chat on this machine unless
    they say otherwise."""
    made = {**options, "taskset": {**options.get("taskset", {}), "id": name}}
    seat: Json = {"runtime": {"type": "subprocess"}}
    if loaders.default_harness_id(name) == "bash":
        seat["harness"] = {"id": "null"}
    for role, known in loaders.env_config_type(name, made.get("id", "")).model_fields.items():
        if isinstance(known.default, vf.AgentConfig):
            made[role] = {**seat, **made.get(role, {})}
    return loaders.load_environment(loaders.resolve_env_config(made))


def world(name: str, options: Json) -> tuple[Any, list[Any]]:
    """An environment, and as many of its tasks as `rows` says. Raises what loading it raises."""
    env = environment(name, {key: value for key, value in options.items() if key != "rows"})
    tasks = env.taskset.take(options["rows"]) if "rows" in options else env.taskset
    if not tasks.bounded:
        raise ValueError("its tasks have no end: write how many rows")
    return env, [*tasks]


def row(task: Any) -> Json:
    """What Assay's row holds of a task."""
    data = task.data
    prompt = data.prompt if data.prompt is not None else data.description or data.name or "Begin."
    messages = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, str):
        messages = [message_to_wire(message) for message in prompt]
    if data.system_prompt:
        messages.insert(0, {"role": "system", "content": data.system_prompt})
    return {"place": data.idx, "key": task.key, "messages": messages}


async def played(env: Any, task: Any, url: str, key: str) -> Json:
    """One episode: the rewards of the environment, or why there are none."""
    # Clients are kept by it.
    variable = f"ASSAY_KEY_{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    os.environ |= {variable: key, "PRIME_API_KEY": key, "PRIME_INFERENCE_URL": url}
    context = vf.ModelContext(
        client=vf.EvalClientConfig(base_url=url, api_key_var=variable),
        model="policy",
        sampling=vf.SamplingConfig(),
    )
    episode = await env.run_episode(task, context)
    del os.environ[variable]
    if not episode.ok:
        errors = [*episode.errors, *(e for trace in episode.traces for e in trace.errors)]
        return {"reward": None, "why": " ".join(f"{e.type}: {e.message}" for e in errors)[:400]}
    traces = episode.traces
    parts = {name: r.value for t in traces for name, r in t.rewards.items() if r is not None}
    facts = {name: value for t in traces for name, value in t.metrics.items() if value is not None}
    reward = sum(trace.reward for trace in traces) / len(traces)
    return {"reward": reward, "parts": parts, "facts": facts}


async def main() -> None:
    """Answer each line: the rows of an environment, or the reward of an episode. An environment is
    served from its first episode to the end; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path.append("")
    os.environ["PYTHONPATH"] = str(Path.cwd())  # for the servers of its tools
    served: dict[str, tuple[Any, list[Any]]] = {}
    async with AsyncExitStack() as stack:
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            if "root" in asked:
                os.chdir(asked["root"])
                told: Any = [row(task) for task in world(asked["name"], asked["options"])[1]]
            else:
                of = asked["row"]
                name = json.dumps([of["world"], of["options"]])
                if name not in served:
                    served[name] = world(of["world"], of["options"])
                    await stack.enter_async_context(served[name][0].serving())
                env, tasks = served[name]
                told = await played(env, tasks[of["place"]], asked["base_url"], asked["api_key"])
            print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
