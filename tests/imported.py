"""What the server of `forked` imports, so that none of its processes has to.

None of them looks through it for garbage either, nor copies its pages by doing so.
"""

import gc

import assay.cli.main
import assay.lab.run.runner
import tests.tiny_labs
from assay.tasks.helper_model import KINDS
from tests.scripted_helper import opened

__all__ = ["assay", "tests"]

KINDS["scripted"] = opened

gc.collect()
gc.freeze()
