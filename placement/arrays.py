"""Array types.  Docstrings give shapes where arrays are used: [layers, slots], [layers, GPUs]."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Experts = npt.NDArray[np.int16]  # expert numbers of many tokens, in little memory

MAX_EXPERTS = 4096
MAX_LAYERS = 1000
MAX_SLOTS = 16_384
MAX_GPUS = 4096
