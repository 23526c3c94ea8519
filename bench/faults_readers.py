"""Reading what was observed: how fast, in how much memory, and what damaged or hostile input can do.

The public recordings are read, then damaged in six ways (cut, bytes changed, things put in, lines shuffled or doubled,
values swapped) and read again: an exception that is not a count is a crash.  Hostile pickles are read under an audit
hook, which sees every import, file, process and evaluation that Python begins (PEP 578).
"""

import json
import pickle
import random
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import data
from faults.readers import Tally, read
from faults.readers.flight import parse_dump, parse_pickle
from faults.readers.lines import split_lines
from faults.readers.parse_errors import MalformedError

RUNS = ("healthy_a", "hang_sigstop", "crash_sigkill", "hang_fr_multigroup")
DAMAGED = 25  # versions of each file
GIGABYTE = 1 << 30
ENTRIES = 2000  # of a large dump; torch's buffer is usually of that size
PUT_IN = (b'"', b"{", b"[", b"NaN", b"-", b"1e999", b"9" * 40, b"\x00", b"\xff", b"\n")
SWAPS: tuple[Any, ...] = (None, True, -1, 1.5, 2**63, 10**400, "", "x" * 5000, [], {}, [[]])
Files = dict[str, bytes]


def run() -> list[dict[str, Any]]:
    """Speed, memory, damage, hostility."""
    rows = [_gigabyte_line()]  # first: what is measured is the most memory that the process ever had
    folders = {path.parent.name: path.parent for path in sorted((data.BESIDE / "faults").glob("*/run.json"))}
    rows += [_speed(folders)] if folders else [{"what": "public recordings: not at hand, left out"}]
    rows += [_large_dump()]
    rows += [_damage(name, _files(folders[name])) for name in RUNS if name in folders]
    return [*rows, *_hostile()]


def _files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _speed(folders: dict[str, Path]) -> dict[str, Any]:
    files = [_files(folder) for folder in folders.values()]
    size_mb = sum(len(each) for folder in files for each in folder.values()) / 1e6
    started = time.process_time()
    recordings = [read(each) for each in files]
    took_s = time.process_time() - started
    return {
        "what": f"{len(files)} public recordings",
        "size_mb": round(size_mb, 2),
        "core_s": round(took_s, 3),
        "mb_per_core_s": round(size_mb / took_s, 1),
        "observations": sum(len(each.observations) for each in recordings),
        "malformed": sum(sum(each.malformed.values()) for each in recordings),
    }


def _large_dump() -> dict[str, Any]:
    frames = [{"name": f"call_{index}", "filename": f"/job/train_{index}.py", "line": index} for index in range(20)]
    entries = [
        {
            "pg_id": index % 4,
            "process_group": (str(index % 4), "mesh"),
            "collective_seq_id": index // 4 + 1,
            "p2p_seq_id": 0,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1_795_000_000_000_000_000 + index,
            "state": "completed",
            "is_p2p": False,
            "retired": True,
            "frames": list(frames),
        }
        for index in range(ENTRIES)
    ]
    dump = pickle.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}, protocol=2)
    started = time.process_time()
    found = parse_dump(dump, tally=Tally())
    return {
        "what": f"pickled dump of {len(found.entries)} operations with stacks",
        "size_mb": round(len(dump) / 1e6, 2),
        "core_s": round(time.process_time() - started, 3),
    }


def _gigabyte_line() -> dict[str, Any]:
    def chunks() -> Iterator[bytes]:
        chunk = b'{"t":' + b"[" * (1 << 18)
        for _ in range(GIGABYTE // len(chunk)):
            yield chunk
        yield b"\n{}\n"

    tally = Tally()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    lines = list(split_lines(chunks(), source="coll", tally=tally))
    return {
        "what": "a line of one gigabyte, then a good one",
        "size_mb": round(GIGABYTE / 1e6),
        "core_s": round(time.process_time() - started, 3),
        "memory_mib": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024, 1),
        "malformed": tally.total,
        "lines_read": len(lines),
    }


def _damage(name: str, files: Files) -> dict[str, Any]:
    inputs = crashes = counted = 0
    for file in sorted(files.keys() - {"run.json"}):
        for version in range(DAMAGED):
            chance = random.Random(f"{name}/{file}/{version}")
            inputs += 1
            try:
                found = read({"run.json": files["run.json"], file: _damaged(files[file], chance)})
                counted += sum(found.malformed.values())
            except Exception:  # noqa: BLE001 - what is measured is that there is none
                crashes += 1
    return {
        "what": f"{name}, each file damaged {DAMAGED} times",
        "inputs": inputs,
        "crashes": crashes,
        "malformed": counted,
    }


def _damaged(content: bytes, chance: random.Random) -> bytes:
    ways: tuple[Callable[[bytes, random.Random], bytes], ...] = (_cut, _changed, _put_in, _shuffled, _doubled, _swapped)
    return chance.choice(ways)(content, chance)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _changed(content: bytes, chance: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(chance.randrange(1, 50)):
        found[chance.randrange(len(found))] = chance.randrange(256)
    return bytes(found)


def _put_in(content: bytes, chance: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(chance.randrange(1, 50)):
        at = chance.randrange(len(found))
        found[at:at] = chance.choice(PUT_IN)
    return bytes(found)


def _shuffled(content: bytes, chance: random.Random) -> bytes:
    rows = content.splitlines(keepends=True)
    chance.shuffle(rows)
    return b"".join(rows)


def _doubled(content: bytes, chance: random.Random) -> bytes:
    return b"".join(row for row in content.splitlines(keepends=True) for _ in range(chance.randrange(3)))


def _swapped(content: bytes, chance: random.Random) -> bytes:
    return b"\n".join(_swapped_line(line, chance) for line in content.split(b"\n"))


def _swapped_line(line: bytes, chance: random.Random) -> bytes:
    try:
        found = json.loads(line)
    except ValueError:
        return line
    if isinstance(found, dict) and found and chance.random() < 0.3:
        found[chance.choice(list(found))] = chance.choice(SWAPS)
    return json.dumps(found).encode()


def _hostile() -> list[dict[str, Any]]:
    seen: list[str] = []
    watching = False

    def hook(event: str, _: Any) -> None:
        if watching:
            seen.append(event)

    sys.addaudithook(hook)
    refused = 0
    started = time.process_time()
    watching = True
    for program in HOSTILE:
        try:
            parse_pickle(program)
        except MalformedError:
            refused += 1
    watching = False
    return [
        {
            "what": "hostile pickles: calls, imports, builds, bombs",
            "inputs": len(HOSTILE),
            "refused": refused,
            "audit_events": len(seen),  # what they made Python begin
            "core_s": round(time.process_time() - started, 3),
        }
    ]


_SYSTEM = b"cposix\nsystem\n"
HOSTILE = tuple(
    b"\x80\x04" + program
    for program in (
        _SYSTEM + b"(S'true'\ntR.",
        b"\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
        b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.",
        b"cbuiltins\nexec\n(X\x04\x00\x00\x00passtR.",
        b"c__builtin__\n__import__\n(X\x02\x00\x00\x00ostR.",
        b"csubprocess\nPopen\n(X\x04\x00\x00\x00truetR.",
        b"(S'true'\niposix\nsystem\n.",
        b"(" + _SYSTEM + b"S'true'\no.",
        _SYSTEM + b")\x81.",
        _SYSTEM + b")}\x92.",
        b"}}b.",
        b"\x82\x01.",
        b"Pname\n.",
        b"NQ.",
        b"}X\x07\x00\x00\x00entries](" + _SYSTEM + b"X\x04\x00\x00\x00true\x85Res.",
        b"Nr\xff\xff\xff\x7fj\x00\x00\x00\x00.",
        b"\x8e" + struct.pack("<Q", 2**62) + b".",
        b"\x8a\xff" + b"\x7f" * 255 + b".",
        b"(" * 1_000_000 + b".",
        b")" + b"q\x00h\x00\x86" * 60 + b"q\x00}h\x00Ns.",
    )
)
