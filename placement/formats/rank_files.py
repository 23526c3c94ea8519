"""Which files are of one recording, by the names that engines give them: one file per rank.

SGLang writes `expert_distribution_recorder_<time>_<rank>.pt`, TensorRT-LLM `rank<rank>.safetensors` into one folder per
recording.  A rank that comes again starts another recording, for names without their folder.
"""

import re
from collections.abc import Iterable

_NAMES = (
    re.compile(r"(?P<recording>.*expert_distribution_recorder_[0-9.]+)_(?P<rank>[0-9]+)\.pt"),
    re.compile(r"(?P<recording>(?:.*/)?)rank(?P<rank>[0-9]+)(?:_raw)?\.safetensors"),
)
File = tuple[str, bytes]  # its name and content


def by_recording(files: Iterable[File]) -> list[list[File]]:
    """Files of one recording together, recordings in the order in which their first files come."""
    groups: list[list[File]] = []
    open_groups: dict[str, tuple[list[File], set[str]]] = {}  # by recording, with the ranks it has
    for file in files:
        matched = next((found for name in _NAMES if (found := name.fullmatch(file[0]))), None)
        if matched is None:
            groups.append([file])
            continue
        recording, rank = matched["recording"], matched["rank"]
        if recording not in open_groups or rank in open_groups[recording][1]:
            open_groups[recording] = ([], set())
            groups.append(open_groups[recording][0])
        open_groups[recording][0].append(file)
        open_groups[recording][1].add(rank)
    return groups
