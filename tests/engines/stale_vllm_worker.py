"""vLLM's worker with a prefix cache that outlives the weights it was made with."""

import sys
from pathlib import Path

WORKER = Path(__file__).parents[2] / "src" / "assay" / "engines" / "vllm_worker.py"

source = WORKER.read_text(encoding="utf-8").replace("self._forget()", "pass")
sys.argv[0] = str(WORKER)
exec(compile(source, str(WORKER), "exec"), {"__name__": "__main__"})
