"""Named size distributions, fitted to public traces, for plans without an own trace.

Each is a mixture of bivariate lognormals (`lognormal_mixture`), cut off at the longest request of its trace.  The data
file has the parameters, the source of the trace and the error of the fit.  `scripts/fit_size_presets.py` writes it
from the traces, none of which ships.
"""

import datetime as dt
from collections.abc import Sequence
from functools import cache
from math import inf
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fleet.catalogues import Catalogue, Entry, shipped_document
from fleet.documents import Frozen, read_model
from fleet.sizes.histogram import Edges, SizeBuckets
from fleet.sizes.lognormal_mixture import Component, cell_shares, draw

Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]


class Goodness(Frozen):
    """The difference between the preset and its trace."""

    input_ks: Share = Field(description="Largest distance between the cumulative distributions of input tokens.")
    output_ks: Share = Field(description="The same of output tokens.")
    misplaced: Share = Field(
        description="Share of requests in another bucket than in the trace, on the preset's edges."
    )
    mean_tokens_ratio: Annotated[float, Field(gt=0)] = Field(
        description="Input and output tokens per request, over the trace's."
    )
    trace_correlation: Annotated[float, Field(ge=-1, le=1)] = Field(description="Of the logarithms, in the trace.")
    preset_correlation: Annotated[float, Field(ge=-1, le=1)] = Field(description="The same in the preset.")


class SizePreset(Entry):
    """One distribution of request sizes."""

    components: Annotated[tuple[Component, ...], Field(min_length=1, max_length=32)]
    longest_input_tokens: Annotated[int, Field(ge=1, le=100_000_000)]
    longest_output_tokens: Annotated[int, Field(ge=1, le=100_000_000)]
    input_edges: Edges  # those that overstate the trace's tokens the least
    output_edges: Edges
    source: Text
    licence: Text
    citation: Text
    requests: Annotated[int, Field(ge=1)]
    date: dt.date  # of the fit
    fit: Goodness
    note: Text | None = None

    def buckets(
        self, input_edges: Sequence[int] | None = None, output_edges: Sequence[int] | None = None
    ) -> SizeBuckets:
        """The histogram on these edges, by numerical integration; the default edges are the preset's."""
        inputs, outputs = tuple(input_edges or self.input_edges), tuple(output_edges or self.output_edges)
        shares = cell_shares(
            self.components,
            input_edges=_cut_off(inputs, self.longest_input_tokens),
            output_edges=_cut_off(outputs, self.longest_output_tokens),
        )
        shares /= shares.sum()
        return SizeBuckets(
            input_tokens=inputs, output_tokens=outputs, share=tuple(tuple(map(float, row)) for row in shares)
        )

    def sample(self, count: int, *, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        inputs, outputs = draw(self.components, count, rng=rng)
        return inputs.clip(max=self.longest_input_tokens), outputs.clip(max=self.longest_output_tokens)


class SizePresets(Catalogue[SizePreset]):
    """All known presets."""

    kind: ClassVar[str] = "size preset"
    field: ClassVar[str] = "presets"

    presets: tuple[SizePreset, ...]


@cache
def builtin_size_presets() -> SizePresets:
    return read_model(shipped_document("size_presets.yaml"), SizePresets)


def preset(name: str) -> SizePreset:
    return builtin_size_presets().get(name)


def _cut_off(edges: Sequence[int], longest: int) -> tuple[float, ...]:
    return tuple(
        float(edge) if edge < longest and position < len(edges) - 1 else inf for position, edge in enumerate(edges)
    )
