"""Contains the command line, the composition root, which wires the pure packages, service, client and controller.

`app` lists the commands.  Each has a module of its own, imported on its call.  `common.errors` defines exit codes.
"""

from api.cli.app import main

__all__ = ["main"]
