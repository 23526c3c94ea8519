"""The arrays of the compiled fit: the sparse matrix both ways, and one window's values.

loss of edge e at predicted slowdown p, residual r, scale s, in nats above that of a perfect fit:

    (nu_e + 1) / 2 log(1 + (r - p)^2 / (nu_e (s^2 + (m p)^2))) + 1/2 log(1 + (m p / s)^2), at most odd_e

Student's t with nu = 4 as measured for noise, nearly normal for permanent differences; m: misfit of the explanation;
odd_e: the cost of an outlier.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NU = 4.0
MAX = 6.0  # log slowdown: 400 times; more is a hang


class WindowArrays(NamedTuple):
    first: NDArray[np.int32]
    edge: NDArray[np.int32]
    share: NDArray[np.float64]
    begin: NDArray[np.int32]
    entity: NDArray[np.int32]
    part: NDArray[np.float64]
    misfit: NDArray[np.float64]  # per entity
    weight: NDArray[np.float64]  # per entity: 1 / inflation for correlated noise
    price: NDArray[np.float64]  # per entity, nats
    residual: NDArray[np.float64]  # per edge; NaN: not observed
    scale: NDArray[np.float64]  # per edge
    tail: NDArray[np.float64]  # per edge: degrees of freedom
    odd: NDArray[np.float64]  # per edge: the most that it may cost
    least: NDArray[np.float64]  # [0]: smallest slowdown (log) that may explain anything
