"""The command line; its verbs are in `main`."""

import sys


def start() -> None:
    """The command `assay`; Ctrl-C while it loads or reads its words says how to go on too."""
    try:
        from assay.cli.main import app

        app()
    except BaseException as end:
        # typer itself ends without a word, by an exit that Ctrl-C caused
        cause = getattr(end.__context__, "__cause__", None)
        if not isinstance(end, KeyboardInterrupt) and not isinstance(cause, KeyboardInterrupt):
            raise
    print("assay: interrupted; call the same command again to go on", file=sys.stderr)
    sys.exit(130)
