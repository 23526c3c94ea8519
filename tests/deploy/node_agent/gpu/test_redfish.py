"""Power limits out of band, over HTTP against an emulated BMC."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deploy.node_agent.gpu.cap_state_machine import Event
from deploy.node_agent.gpu.errors import (
    DriverGoneError,
    GpuError,
    NoPermissionError,
    NotSupportedError,
    OutOfRangeError,
)
from deploy.node_agent.gpu.gpu_state import CapKind
from deploy.node_agent.gpu.interface import NO_CAPS, Caps, GpuLimits
from deploy.node_agent.gpu.redfish import RedfishDriver
from deploy.node_agent.gpu.redfish_client import ChangedError, Login, RedfishClient, read_login
from tests.deploy.node_agent.gpu.conftest import CapHarness
from tests.deploy.node_agent.gpu.redfish_emulator import PASSWORD, SESSIONS, USER, Bmc, answering, hgx, legacy, modules

LOGIN = Login(USER, PASSWORD)


@contextmanager
def opened(bmc: Bmc, *, basic: bool = False, login: Login = LOGIN) -> Iterator[RedfishDriver]:
    with answering(bmc) as url, closing(RedfishClient(url, login=login, basic=basic)) as client:
        yield RedfishDriver(client, now_s=lambda: 0.0)


def metrics(bmc: Bmc, at: int) -> dict[str, object]:
    path = f"/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_SXM_{at}/EnvironmentMetrics"
    return dict(bmc.resources[path]["PowerLimitWatts"])


@pytest.mark.parametrize("basic", [False, True])
def test_gpus_are_found_among_the_processors_and_power_limited(basic: bool) -> None:  # noqa: FBT001
    bmc = hgx()
    with opened(bmc, basic=basic) as gpus:
        assert [(gpu.uuid, gpu.name) for gpu in gpus.identities()] == [
            ("uuid-0", "NVIDIA H100 80GB HBM3"),
            ("uuid-1", "NVIDIA H100 80GB HBM3"),
        ]
        assert gpus.limits("uuid-0") == GpuLimits(min_w=200.0, max_w=700.0, default_w=700.0)
        reading = gpus.read("uuid-0")
        assert (reading.power_w, reading.energy_j, reading.temperature_c) == (512.5, 1e6, 51.0)
        gpus.set_power_limit("uuid-1", 449.7)
        assert metrics(bmc, 2)["SetPoint"] == 449
        assert gpus.enforced("uuid-1") == Caps(449.0)
        assert gpus.enforced("uuid-0") == Caps(700.0)
        assert len(bmc.sessions) == (0 if basic else 1)
    assert bmc.sessions == set()  # closed, since a BMC allows few sessions
    assert any(path == SESSIONS for _method, path, _body in bmc.requests) is not basic


def test_a_concurrent_change_is_retried_a_bounded_number_of_times() -> None:
    bmc = hgx()
    with opened(bmc) as gpus:
        bmc.foreign_writes = 2
        gpus.set_power_limit("uuid-0", 450.0)
        assert metrics(bmc, 1)["SetPoint"] == 450
        bmc.foreign_writes = 100
        with pytest.raises(ChangedError, match="412"):
            gpus.set_power_limit("uuid-0", 400.0)
        assert bmc.foreign_writes == 96
        assert metrics(bmc, 1)["SetPoint"] == 450


def test_an_expired_session_is_opened_again() -> None:
    bmc = hgx()
    with opened(bmc) as gpus:
        bmc.sessions.clear()
        gpus.set_power_limit("uuid-0", 450.0)
        assert metrics(bmc, 1)["SetPoint"] == 450
        assert len(bmc.sessions) == 1


def test_errors_have_their_exception_types_and_the_message_of_the_bmc() -> None:
    bmc = hgx()
    with (
        pytest.raises(NoPermissionError, match="401"),
        opened(bmc, login=Login(USER, "wrong")),
    ):
        pass
    with opened(bmc) as gpus, pytest.raises(OutOfRangeError, match="400 PropertyValueOutOfRange: 900 for SetPoint"):
        gpus.set_power_limit("uuid-0", 900.0)
    with opened(bmc) as gpus:
        with pytest.raises(NotSupportedError, match="a BMC locks no clocks"):
            gpus.lock_clock("uuid-0", 1500)
        gpus.lock_clock("uuid-0", None)
    bmc.max_sessions = 0
    with pytest.raises(DriverGoneError, match="503 SessionLimitExceeded"), opened(bmc):
        pass
    with pytest.raises(DriverGoneError), closing(RedfishClient("http://127.0.0.1:9", login=LOGIN)) as client:
        RedfishDriver(client)


def test_a_disabled_control_is_enabled_and_disabled_again() -> None:
    bmc = hgx(gpus=1, mode="Disabled")
    with opened(bmc) as gpus:
        assert gpus.enforced("uuid-0") == NO_CAPS
        gpus.set_power_limit("uuid-0", 450.0)
        assert gpus.enforced("uuid-0") == Caps(450.0)
        assert metrics(bmc, 1)["ControlMode"] == "Manual"
        gpus.set_power_limit("uuid-0", None)
        assert gpus.enforced("uuid-0") == NO_CAPS
        assert metrics(bmc, 1)["ControlMode"] == "Disabled"


def test_a_module_is_used_if_its_processors_have_no_power_limit() -> None:
    bmc = modules()
    with opened(bmc) as gpus:
        (module,) = gpus.identities()
        assert (module.uuid, module.name) == ("/redfish/v1/Chassis/HGX_ProcessorModule_0", "module 0")
        assert gpus.read(module.uuid).energy_j == 7.2e6
        gpus.set_power_limit(module.uuid, 1500.0)
        assert gpus.enforced(module.uuid) == Caps(1500.0)
        limit = bmc.resources[f"{module.uuid}/EnvironmentMetrics"]["PowerLimitWatts"]
        assert limit["ControlMode"] == "Automatic"


def test_the_previous_schema_has_one_limit_per_server() -> None:
    bmc = legacy()
    with opened(bmc) as gpus:
        (server,) = gpus.identities()
        assert server.uuid == "/redfish/v1/Chassis/1/Power#/PowerControl/1"
        assert gpus.limits(server.uuid) == GpuLimits(max_w=6600.0)
        assert (gpus.read(server.uuid).power_w, gpus.enforced(server.uuid)) == (4200.0, NO_CAPS)
        gpus.set_power_limit(server.uuid, 5000.0)
        assert gpus.enforced(server.uuid) == Caps(5000.0)
        fans, control = bmc.resources["/redfish/v1/Chassis/1/Power"]["PowerControl"]
        assert fans == {"Name": "A fan wall", "PowerConsumedWatts": 90}
        assert control["PowerLimit"] == {"LimitInWatts": 5000, "LimitException": "NoAction"}
        gpus.set_power_limit(server.uuid, None)
        assert gpus.enforced(server.uuid) == NO_CAPS


def test_a_bmc_without_power_limits_is_reported() -> None:
    bmc = legacy()
    bmc.resources["/redfish/v1/Chassis/1/Power"] = {"PowerControl": [{"PowerConsumedWatts": 1}]}
    with pytest.raises(NotSupportedError, match="lists nothing with a power limit"), opened(bmc):
        pass


def test_caps_hold_and_are_restored_on_a_bmc_that_ignores_writes() -> None:
    bmc = hgx(mode="Disabled")
    with opened(bmc) as gpus:
        bmc.ignored = 1
        cap_harness = CapHarness(gpus)
        cap_harness.request(power_limit_w=450.0, lease_s=1e6)
        cap_harness.reconcile(16, every_s=2.0)
        assert {state.enforced for state in cap_harness.cap_controller.gpu_states()} == {Caps(450.0)}
        assert cap_harness.cap_controller.counts[CapKind.POWER, Event.IGNORED] == 1
        assert cap_harness.cap_controller.restore()
        assert [metrics(bmc, at)["ControlMode"] for at in (1, 2)] == ["Disabled", "Disabled"]


def test_the_login_is_read_from_one_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bmc"
    file.write_text(f"{USER}:{PASSWORD}\n")
    assert read_login(file) == LOGIN
    for bad in ("", "nobody", ":x", "x:", "a:b\nc:d"):
        file.write_text(bad)
        with pytest.raises(GpuError, match="expected one line USER:PASSWORD"):
            read_login(file)
    with pytest.raises(GpuError, match="No such file"):
        read_login(tmp_path / "none")
