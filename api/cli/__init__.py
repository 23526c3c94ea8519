"""The command line, the composition root: it wires the pure packages, the service, the client and the controller.

`app` lists the commands.  Each has a module of its own, imported on its call.  `common.errors` defines exit codes.
"""

from api.cli.app import main

__all__ = ["main"]
