"""Which build of an engine this machine takes. Imports no torch."""

import shutil

from assay.engines.environments import installed
from assay.errors import InputError

ADD_VLLM = "assay engines add vllm"


def environment_for(name: str) -> str:
    """The environment of an engine here: `vllm` has one for CUDA and one for machines without."""
    return "vllm-cuda" if name == "vllm" and shutil.which("nvidia-smi") else name


def need_vllm() -> str:
    """The environment of vLLM. Raises InputError where it is not installed."""
    name = environment_for("vllm")
    if installed(name) is None:
        raise InputError("vLLM is not installed", field="engine.sample", fix=ADD_VLLM)
    return name
