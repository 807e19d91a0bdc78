"""vLLM's worker with the fault that a file names, FAULT's; for `benchmarks.sampling_proof`.

Its own source is run, with what it asks vLLM for changed at each sample.
"""

import sys
from pathlib import Path

WORKER = Path(__file__).parents[1] / "src" / "assay" / "engines" / "vllm_worker.py"
EACH = "        each = [SamplingParams(**common, seed=seed) for seed in seeds]\n"
TOLD = "        outputs = [result.outputs[0] for result in self._run(prompts, each)]\n"
CHANGED = f"""\
        fault = open(os.environ["FAULT"], encoding="utf-8").read()
        if fault == "temperature x 0.95":
            common["temperature"] *= 0.95
        elif fault == "drawn at 0.7 T, told at T":
            common["temperature"] *= 0.7
        elif fault == "top_p 0.9":
            common["top_p"] = 0.9
        elif fault == "top_k 50":
            common["top_k"] = 50
        elif fault == "end tokens not honoured":
            common["stop_token_ids"] = []
        elif fault == "one seed for all":
            seeds = [7] * len(seeds)
        else:
            assert not fault, fault
{EACH}"""
AGAIN = f"""\
{TOLD}
        if "told at T" in fault:
            tokens = [list(out.token_ids) for out in outputs]
            ended = [out.finish_reason == "stop" for out in outputs]
            return list(zip(tokens, self.score(prompts, tokens), ended, strict=True))
"""

source = WORKER.read_text(encoding="utf-8")
for line, change in ((EACH, CHANGED), (TOLD, AGAIN)):
    assert source.count(line) == 1
    source = source.replace(line, change)
sys.argv[0] = str(WORKER)
exec(compile(source, str(WORKER), "exec"), {"__name__": "__main__"})
