"""Programs that measure Assay beside its peers; run from the repository's root.

    python -m benchmarks.grpo     GRPO steps against TRL
    python -m benchmarks.sft      SFT updates against TRL
    python -m benchmarks.rollout  sampling against generate, vLLM and llama.cpp
    python -m benchmarks.limit    updates and rollouts against the arithmetic bound of the machine
    python -m benchmarks.report   the tables of docs/benchmarks.md, from the result files

`driver` runs each side as a process that answers by `worker`; `results` keeps a file for each cell.
"""
