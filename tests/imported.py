"""What the server of `forked` imports, so that none of its processes has to."""

import assay.cli.main
import assay.lab.run.runner
import tests.labs

__all__ = ["assay", "tests"]
