"""The command line, the only composition root: here the pure rooms, the service, the client and the controller meet.

`app` lists the commands; each stands in a module of its own, imported when it is called.  Exit codes: `failures`.
"""

from api.cli.app import main

__all__ = ["main"]
