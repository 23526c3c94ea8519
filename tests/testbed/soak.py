"""Reports whether the tests run in their long form: `make soak` sets FLEETWRIGHT_SOAK=1."""

import os
from typing import Final

import pytest

SOAK: Final = os.environ.get("FLEETWRIGHT_SOAK") == "1"

# For tests of the test bed that start a second control plane or cluster and kill it.
long_form_only: Final = pytest.mark.skipif(not SOAK, reason="runs in the long form: make soak")
