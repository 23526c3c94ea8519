"""An executable `scontrol` that keeps its nodes in a file and logs each update."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = """#!{python}
import json, pathlib, sys, time
folder = pathlib.Path({folder!r})
words = sys.argv[1:]
if (folder / "down").exists():
    sys.exit("slurm_load_node error: Unable to contact slurm controller (connect failure)")
nodes = json.loads((folder / "nodes.json").read_text())
if words[0] == "show":
    named = [each for each in nodes if words[1] == "nodes" or each["name"] == words[2]]
    print(json.dumps({{"nodes": named, "last_update": {{"set": True, "number": 1}}, "meta": {{}}, "warnings": []}}))
elif words[0] == "update" and (folder / "refusal").exists():
    sys.exit("slurm_update error: " + (folder / "refusal").read_text())
elif words[0] == "update":
    given = dict(word.split("=", 1) for word in words[1:])
    with (folder / "updates.log").open("a") as log:
        log.write(json.dumps(given) + "\\n")
    for node in nodes:
        if given["nodename"] in (node["name"], "ALL"):
            if given["state"] == "drain":
                node["state"] = sorted({{*node["state"], "DRAIN"}})
                node["reason"], node["reason_set_by_user"] = given["reason"], "fleetwright"
            elif given["state"] == "undrain":
                node["state"] = [state for state in node["state"] if state != "DRAIN"]
                node["reason"] = ""
    (folder / "nodes.json").write_text(json.dumps(nodes))
    while (folder / "hang").exists():
        time.sleep(0.05)
else:
    sys.exit("invalid keyword: " + words[0])
"""


@dataclass
class FakeScontrol:
    folder: Path

    @property
    def command(self) -> str:
        return str(self.folder / "scontrol")

    def write(self, names: str) -> None:
        """Create the command and its idle nodes."""
        executable = self.folder / "scontrol"
        executable.write_text(SCRIPT.format(python=sys.executable, folder=str(self.folder)))
        executable.chmod(0o755)
        states: dict[str, Any] = {"state": ["IDLE"], "reason": "", "partitions": ["train"]}
        (self.folder / "nodes.json").write_text(json.dumps([{"name": name, **states} for name in names.split()]))

    def nodes(self) -> dict[str, Any]:
        return {each["name"]: each for each in json.loads((self.folder / "nodes.json").read_text())}

    def change(self, name: str, **fields: Any) -> None:
        """Change a node as another person would."""
        nodes = self.nodes()
        nodes[name] |= fields
        (self.folder / "nodes.json").write_text(json.dumps(list(nodes.values())))

    def updates(self) -> list[str]:
        """Return the updates so far: node and state."""
        log = self.folder / "updates.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [f"{each['nodename']} {each['state']}" for each in map(json.loads, lines)]

    def stop(self, *, stopped: bool = True) -> None:
        """Let every call fail, as without a controller of Slurm."""
        self._flag("down", on=stopped)

    def refuse(self, reason: str) -> None:
        """Refuse each update."""
        (self.folder / "refusal").write_text(reason)

    def hang_after_updates(self, *, hang: bool = True) -> None:
        """Let each update change the node and then not return."""
        self._flag("hang", on=hang)

    def _flag(self, name: str, *, on: bool) -> None:
        if on:
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink()
