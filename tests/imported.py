"""What the server of `forked` imports, so that none of its processes has to.

None of them looks through it for garbage either, nor copies its pages by doing so.
"""

import gc

import assay.cli.main
import assay.lab.run.runner
import tests.tiny_labs

__all__ = ["assay", "tests"]

gc.collect()
gc.freeze()
