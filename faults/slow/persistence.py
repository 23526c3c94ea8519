"""A slow fault is named after repeated findings, and ends after a time without."""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Found = TypeVar("Found")


@dataclass
class _Track(Generic[Found]):
    first_s: float
    hits: deque[bool]
    found: list[Found] = field(default_factory=list)
    last_s: float = 0.0
    confirmed_s: float | None = None


@dataclass(frozen=True, slots=True)
class Confirmed(Generic[Found]):
    """A repeated finding: its last findings, its first time, and the time of its confirmation."""

    key: Hashable
    first_s: float
    confirmed_s: float
    found: tuple[Found, ...]


class Persistence(Generic[Found]):
    """Persistence of findings.  Keys are suspects; values are the evidence of one evaluation."""

    def __init__(self, hits: int, of: int, gone_s: float) -> None:
        self._hits, self._of, self._gone_s = hits, of, gone_s
        self._tracks: dict[Hashable, _Track[Found]] = {}

    def update(self, now_s: float, found: Mapping[Hashable, Found]) -> None:
        for key in found:
            if key not in self._tracks:
                self._tracks[key] = _Track(now_s, deque(maxlen=self._of))
        for key, track in list(self._tracks.items()):
            track.hits.append(key in found)
            if key in found:
                track.found.append(found[key])
                del track.found[:-64]
                track.last_s = now_s
            if track.confirmed_s is None and sum(track.hits) >= self._hits:
                track.confirmed_s = now_s
            if now_s - track.last_s > self._gone_s or (track.confirmed_s is None and not any(track.hits)):
                del self._tracks[key]

    def suspected(self) -> bool:
        """Return whether anything was found at the last evaluation, or is confirmed."""
        return any(track.confirmed_s is not None or track.hits[-1] for track in self._tracks.values())

    def confirmed(self) -> list[Confirmed[Found]]:
        return [
            Confirmed(key, track.first_s, track.confirmed_s, tuple(track.found))
            for key, track in self._tracks.items()
            if track.confirmed_s is not None
        ]

    def alone(self, key: Hashable, *, within_s: float) -> bool:
        """Return whether no other suspicion or confirmed fault began within this time of the key."""
        first_s = self._tracks[key].first_s
        return all(abs(track.first_s - first_s) > within_s for other, track in self._tracks.items() if other != key)

    def open(self) -> Mapping[Hashable, Found]:
        return {key: track.found[-1] for key, track in self._tracks.items()}
