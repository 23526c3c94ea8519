"""Reports whether the tests run in their long form: `make soak` sets FLEETWRIGHT_SOAK=1."""

import os
from typing import Final

SOAK: Final = os.environ.get("FLEETWRIGHT_SOAK") == "1"
