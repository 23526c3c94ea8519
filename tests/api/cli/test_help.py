"""The list of commands, help and completion, and the packages that they import."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from api.cli.app import COMMANDS, FAULTS, POWER, app
from api.cli.catalogues.topology import COMMANDS as TOPOLOGY_COMMANDS
from api.cli.common.lazy_groups import LazyCommand
from api.cli.common.options import LOCAL_URL
from api.cli.place.group import COMMANDS as PLACE_COMMANDS
from api.client.transport import DEFAULT_URL
from tests.testbed.cli import COMMAND, Cli, Shell

EXAMPLE = Path(__file__).parents[3] / "examples" / "chat.yaml"
# Their -o is a file or a folder, or their output has its own format.
WRITERS = {"place make", "place export", "plan export", "faults record", "faults diagnoses bundle", "targets table"}
# Long-running commands, with output on sockets and in logs.
ENDLESS = {
    "agent",
    "controller run",
    "faults forward",
    "faults monitor",
    "guard",
    "power admission-check",
    "remediate run",
    "remediate kubernetes",
    "router",
    "serve",
    "worker",
}
HEAVY = {"aiosqlite", "alembic", "deploy", "fastapi", "httpx", "kubernetes", "planner", "sqlalchemy", "uvicorn"}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its full name, loaded."""

    def below(name: str, command: Any, context: Any) -> Iterator[tuple[str, Any]]:
        if not isinstance(command, TyperGroup):
            yield name, command
            return
        for inner in command.list_commands(context):
            _name, loaded, _rest = command.resolve_command(context, [inner])
            yield from below(f"{name} {inner}".strip(), loaded, context)

    root = get_command(app)
    yield from below("", root, root.make_context("fleetwright", ["--help"], resilient_parsing=True))


ALL = dict(commands())


def test_the_set_of_commands_is_complete() -> None:
    verbs = ("list", "show", "check", "pull", "push", "versions")
    documents = {f"{kind} {verb}" for kind in ("gpus", "models", "offers", "topology") for verb in verbs}
    assert set(ALL) == documents | {
        *(
            "plan",
            "plan export",
            "sweep",
            "place make",
            "place check",
            "place export",
            "profiles import",
            "profiles show",
            "profiles fit",
        ),
        *("models from-config", "topology discover", "plans list", "plans show"),
        *("sweeps list", "sweeps show"),
        *("plans compare", "plans explain", "plans replay", "plans watch"),
        *("placements list", "placements show"),
        *("power simulate", "power plan", "power fit", "power forecast"),
        *("power trees list", "power trees check", "power trees pull", "power trees push", "power trees delete"),
        *("power budgets list", "power budgets show", "power budgets set", "power budgets withdraw"),
        *("power simulations list", "power simulations show"),
        *("power plans list", "power plans show", "power admission-check"),
        *("faults replay", "faults simulate", "faults record", "faults monitor", "faults paths"),
        *("faults forward", "faults health-events"),
        *("faults simulations list", "faults simulations show"),
        *(f"faults diagnoses {verb}" for verb in ("list", "show", "bundle", "replay", "report")),
        *("remediate run", "remediate kubernetes", "remediate cases", "remediate case"),
        *(f"faults quarantine {verb}" for verb in ("show", "rules", "set", "reset-breaker")),
        *(f"faults quarantine {verb}" for verb in ("approve", "decline", "release", "cordon")),
        *("controller start", "controller stop", "controller upgrade", "controller list"),
        *(
            "agent",
            "demo",
            "guard",
            "router",
            "serve",
            "worker",
            "gc",
            "doctor",
            "backup",
            "restore",
            "controller run",
            "migrate up",
            "migrate down",
            "migrate status",
        ),
        *("targets list", "targets show", "targets put", "targets set", "targets approve", "targets delete"),
        "targets table",
        *(f"planning-loops {verb}" for verb in ("list", "show", "put", "set", "delete", "status")),
        *(f"stock {verb}" for verb in ("list", "show", "delete")),
        *("jobs list", "jobs show", "jobs watch", "jobs cancel"),
        *("events", "nodes", "freeze", "thaw", "controller plan"),
        *(
            *(f"projects {verb}" for verb in ("list", "show", "put", "delete")),
            "tokens create",
            "tokens list",
            "tokens revoke",
            "audit list",
            "audit check",
            "audit checkpoint",
            "audit export",
        ),
    }


@pytest.mark.parametrize("name", ALL)
def test_every_command_and_option_has_help(name: str, cli: Cli) -> None:
    done = cli(*name.split(), "--help")
    assert done.code == 0
    assert done.stdout.startswith(f"Usage: fleetwright {name} ")
    assert ALL[name].help
    for parameter in ALL[name].params:
        if parameter.param_type_name == "option":
            assert parameter.help, parameter.name


@pytest.mark.parametrize("name", sorted(set(ALL) - ENDLESS - WRITERS))
def test_every_command_with_output_has_json_output(name: str, cli: Cli) -> None:
    assert re.search(r"-o, --format <(table|yaml)\|json>", cli(*name.split(), "--help").stdout)


def test_place_make_has_json_output(cli: Cli) -> None:
    assert re.search(r"--format <table\|json>", cli("place", "make", "--help").stdout)


@pytest.mark.parametrize(
    ("name", "lazy"),
    [
        *COMMANDS.items(),
        *TOPOLOGY_COMMANDS.items(),
        *PLACE_COMMANDS.items(),
        *POWER.items(),
        *FAULTS.items(),
    ],
)
def test_the_list_of_commands_has_the_first_line_of_each_commands_help(name: str, lazy: LazyCommand) -> None:
    loaded = lazy.load(name)
    assert loaded.help.splitlines()[0] == lazy.help
    assert len(lazy.help) < 66  # fits into 80 columns


def test_without_a_command_the_commands_are_listed_on_stderr(cli: Cli) -> None:
    done = cli()
    assert (done.code, done.stdout) == (2, "")
    assert all(f"  {name} " in done.stderr for name in COMMANDS)


def test_a_group_without_a_command_lists_its_commands(cli: Cli) -> None:
    done = cli("topology")
    assert (done.code, done.stdout) == (2, "")
    assert "  discover  Read the topology from the labels of a running cluster.\n" in done.stderr


def test_the_version_is_printed(cli: Cli) -> None:
    done = cli("--version")
    assert (done.code, done.stdout, done.stderr) == (0, "fleetwright 0.2.0\n", "")


def test_the_url_in_the_help_is_the_clients_default() -> None:
    assert LOCAL_URL == DEFAULT_URL


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--frmat",), "no such option: --frmat (Possible options: --format); see fleetwright gpus list --help"),
        (("--format", "xml"), "'xml' is not one of 'table', 'json'"),
        (("--format",), "option '--format' requires an argument"),
        (("surplus",), "got unexpected extra argument(s) (surplus); see fleetwright gpus list --help"),
    ],
)
def test_a_misused_option_is_reported_in_one_line(args: tuple[str, ...], message: str, cli: Cli) -> None:
    done = cli("gpus", "list", *args)
    assert done.code == 2
    (line,) = done.refused
    assert message in line


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("gpu", "list"), "no such command 'gpu'. Did you mean 'gpus'?; see fleetwright --help"),
        (("plan",), "missing argument 'FILE'; see fleetwright plan --help"),
        (("audit", "list", "--most", "0"), "invalid value for '--most': Input should be greater than or equal to 1"),
        (
            ("tokens", "create", "ci"),
            "missing option '--scope'. Choose from: read, plan, operate, report, approve, audit, admin",
        ),
        (
            ("tokens", "create", "ci", "--scope", "all"),
            "'all' is not one of 'read', 'plan', 'operate', 'report', 'approve', 'audit', 'admin'",
        ),
        (("targets", "set", "t"), "targets set: give --plan, --mode or both"),
        (("topology", "discover"), "give either --ray URL or --kubernetes"),
        (("topology", "discover", "--ray", "http://r", "--kubernetes"), "give either --ray URL or --kubernetes"),
        (("topology", "discover", "--ray", "http://r", "--context", "c"), "--context and --kubeconfig go with"),
    ],
)
def test_a_misused_command_is_reported_in_one_line(args: tuple[str, ...], message: str, cli: Cli) -> None:
    done = cli(*args)
    assert done.code == 2
    (line,) = done.refused
    assert line.startswith(message) or message in line


class TestCompletion:
    @pytest.mark.parametrize(
        ("shell_name", "mark"), [("bash", "complete -o default -F"), ("zsh", "#compdef fleetwright")]
    )
    def test_the_script_is_printed_for_the_completion_variable(self, shell: Shell, shell_name: str, mark: str) -> None:
        done = shell(_FLEETWRIGHT_COMPLETE=f"source_{shell_name}")
        assert done.code == 0
        assert mark in done.stdout

    def test_the_script_is_printed_for_the_current_shell(self, bare_environment: Mapping[str, str]) -> None:
        script = f"{' '.join(COMMAND)} --show-completion; true"  # `true` keeps bash as the parent process
        done = subprocess.run(["bash", "-c", script], env=bare_environment, capture_output=True, text=True, check=True)
        assert "complete -o default -F _fleetwright_completion fleetwright" in done.stdout

    def test_install_completion_installs_the_script(self, bare_environment: Mapping[str, str]) -> None:
        script = f"{' '.join(COMMAND)} --install-completion; true"
        subprocess.run(["bash", "-c", script], env=bare_environment, capture_output=True, text=True, check=True)
        completed = subprocess.run(
            ["bash", "-c", f"source {bare_environment['HOME']}/.bashrc && complete -p fleetwright"],
            env=bare_environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert completed.stdout == "complete -o default -F _fleetwright_completion fleetwright\n"

    @pytest.mark.parametrize(
        ("words", "wanted"),
        [
            ("fleetwright ", {name for name in COMMANDS if " " not in name}),
            ("fleetwright t", {"topology", "targets", "tokens", "thaw"}),
            ("fleetwright topology ", {"discover", "list", "show", "check", "pull", "push", "versions"}),
            ("fleetwright gpus show H100", {"H100-SXM", "H100-PCIe", "H100-NVL"}),
            ("fleetwright gpus list --format ", {"table", "json"}),
            ("fleetwright plan --o", {"--offers"}),
        ],
    )
    def test_completion_suggests_the_matching_words(self, shell: Shell, words: str, wanted: set[str]) -> None:
        last = len(words.split()) - (0 if words.endswith(" ") else 1)
        done = shell(_FLEETWRIGHT_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(last))
        assert set(done.stdout.split()) == wanted


class TestImports:
    def loaded_by(self, *args: str) -> set[str]:
        """The packages that a command has imported when it ends."""
        report_modules = (
            "atexit.register(lambda: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr))"
        )
        code = f"import atexit, sys; {report_modules}; from api.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
        return set(done.stderr.split())

    def test_help_imports_no_heavy_packages(self) -> None:
        assert not self.loaded_by("--help") & (HEAVY | {"pydantic", "rich", "yaml"})

    @pytest.mark.parametrize("kind", ["gpus", "models", "offers", "topology"])
    def test_catalogues_need_neither_service_nor_solver(self, kind: str) -> None:
        assert not self.loaded_by(kind, "list") & HEAVY

    def test_planning_needs_no_service(self) -> None:
        assert self.loaded_by("plan", str(EXAMPLE)) & HEAVY == {"planner"}
