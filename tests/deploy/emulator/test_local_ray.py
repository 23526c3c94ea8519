"""The holder of a local Ray cluster ends all its processes, however the process that started it ends."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.emulator.local_ray import environment

HELD = """
import json, subprocess, sys
from pathlib import Path
from deploy.emulator import local_ray

def start(nodes):
    # A daemon that leaves its parent, as Ray's do.
    code = "from subprocess import *; print(Popen(['sleep', '1000'], stdout=DEVNULL).pid)"
    left = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {"daemon": int(left)}

local_ray._start = start
local_ray.main(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fw-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="adoption of orphans requires Linux")
def test_orphans_and_files_are_removed_when_the_pipe_closes(folder: Path) -> None:
    scratch = folder / "scratch"
    scratch.mkdir()
    nodes, ready = scratch / "nodes.json", scratch / "ready.json"
    nodes.write_text("[]")
    with subprocess.Popen(
        [sys.executable, "-c", HELD, str(nodes), str(ready)],
        stdin=subprocess.PIPE,
        env=environment(scratch, metrics_port=1),
    ) as holder:
        assert holder.stdin is not None
        while not ready.exists():
            assert holder.poll() is None
        daemon = json.loads(ready.read_text())["daemon"]
        assert is_alive(daemon)
        holder.stdin.close()
        assert holder.wait() == 0
    assert not is_alive(daemon)
    assert list(folder.iterdir()) == []


def test_the_environment_of_the_cluster_is_isolated() -> None:
    found = environment(Path("/scratch"), metrics_port=4711)
    assert (found["HOME"], found["TMPDIR"], found["RAY_TMPDIR"]) == ("/scratch",) * 3
    assert "RAY_ADDRESS" not in found
    assert found["RAY_USAGE_STATS_ENABLED"] == "0"
