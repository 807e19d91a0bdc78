"""Reads a hand-over of weights with vLLM's own classes; see `environments.ask`."""

import json
import os
import sys

os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"

from vllm.config import WeightTransferConfig  # type: ignore[import-not-found]
from vllm.distributed.weight_transfer.factory import (  # type: ignore[import-not-found]
    WeightTransferEngineFactory,
)
from vllm.distributed.weight_transfer.ipc_engine import (  # type: ignore[import-not-found]
    IPCWeightTransferInitInfo,
    IPCWeightTransferUpdateInfo,
)
from vllm.entrypoints.rl.offline import RLOfflineMixin  # type: ignore[import-not-found]

asked = json.load(sys.stdin)


class Calls(RLOfflineMixin):
    """An engine that keeps what its workers are called with."""

    def __init__(self):
        self.llm_engine = self
        self.seen = []

    def collective_rpc(self, method, kwargs=None):
        self.seen.append((method, kwargs or {}))


llm = Calls()
llm.init_weight_transfer_engine({"init_info": asked["init"]})
llm.start_weight_update()
llm.update_weights({"update_info": asked["update"]})
llm.finish_weight_update()
(_, init), _, (_, update), _ = llm.seen
read = IPCWeightTransferUpdateInfo(**update["update_info"])
answer = {
    "called": [method for method, _ in llm.seen],
    "known": WeightTransferConfig(backend="ipc").backend in WeightTransferEngineFactory._registry,
    "packed": IPCWeightTransferInitInfo(**init["init_info"]).packed,
    "names": read.names,
    "handles": read.ipc_handles,
}
print(json.dumps(answer))
