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
from tests.deploy.node_agent.gpu.conftest import Keeping
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
def test_gpus_are_found_among_the_processors_and_limited(basic: bool) -> None:  # noqa: FBT001
    bmc = hgx()
    with opened(bmc, basic=basic) as gpus:
        assert [(gpu.uuid, gpu.name) for gpu in gpus.identities()] == [
            ("uuid-0", "NVIDIA H100 80GB HBM3"),
            ("uuid-1", "NVIDIA H100 80GB HBM3"),
        ]
        assert gpus.limits("uuid-0") == GpuLimits(least_w=200.0, most_w=700.0, default_w=700.0)
        reading = gpus.read("uuid-0")
        assert (reading.power_w, reading.energy_j, reading.temperature_c) == (512.5, 1e6, 51.0)
        gpus.set_power_limit("uuid-1", 449.7)
        assert metrics(bmc, 2)["SetPoint"] == 449
        assert gpus.enforced("uuid-1") == Caps(449.0)
        assert gpus.enforced("uuid-0") == Caps(700.0)
        assert len(bmc.sessions) == (0 if basic else 1)
    assert bmc.sessions == set()  # ended: a BMC has few
    assert any(path == SESSIONS for _method, path, _body in bmc.seen) is not basic


def test_what_somebody_changed_meanwhile_is_read_again_and_not_for_ever() -> None:
    bmc = hgx()
    with opened(bmc) as gpus:
        bmc.meddle = 2
        gpus.set_power_limit("uuid-0", 450.0)
        assert metrics(bmc, 1)["SetPoint"] == 450
        bmc.meddle = 100
        with pytest.raises(ChangedError, match="412"):
            gpus.set_power_limit("uuid-0", 400.0)
        assert bmc.meddle == 96
        assert metrics(bmc, 1)["SetPoint"] == 450


def test_an_expired_session_is_opened_again() -> None:
    bmc = hgx()
    with opened(bmc) as gpus:
        bmc.sessions.clear()
        gpus.set_power_limit("uuid-0", 450.0)
        assert metrics(bmc, 1)["SetPoint"] == 450
        assert len(bmc.sessions) == 1


def test_refusals_have_their_types_and_the_bmcs_message() -> None:
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
    bmc.most_sessions = 0
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


def test_where_processors_have_no_limit_a_module_of_them_may() -> None:
    bmc = modules()
    with opened(bmc) as gpus:
        (module,) = gpus.identities()
        assert (module.uuid, module.name) == ("/redfish/v1/Chassis/HGX_ProcessorModule_0", "module 0")
        assert gpus.read(module.uuid).energy_j == 7.2e6
        gpus.set_power_limit(module.uuid, 1500.0)
        assert gpus.enforced(module.uuid) == Caps(1500.0)
        limit = bmc.resources[f"{module.uuid}/EnvironmentMetrics"]["PowerLimitWatts"]
        assert limit["ControlMode"] == "Automatic"


def test_the_schema_before_has_a_limit_of_a_whole_server() -> None:
    bmc = legacy()
    with opened(bmc) as gpus:
        (server,) = gpus.identities()
        assert server.uuid == "/redfish/v1/Chassis/1/Power#/PowerControl/1"
        assert gpus.limits(server.uuid) == GpuLimits(most_w=6600.0)
        assert (gpus.read(server.uuid).power_w, gpus.enforced(server.uuid)) == (4200.0, NO_CAPS)
        gpus.set_power_limit(server.uuid, 5000.0)
        assert gpus.enforced(server.uuid) == Caps(5000.0)
        fans, control = bmc.resources["/redfish/v1/Chassis/1/Power"]["PowerControl"]
        assert fans == {"Name": "A fan wall", "PowerConsumedWatts": 90}
        assert control["PowerLimit"] == {"LimitInWatts": 5000, "LimitException": "NoAction"}
        gpus.set_power_limit(server.uuid, None)
        assert gpus.enforced(server.uuid) == NO_CAPS


def test_a_bmc_without_limits_has_its_own_error() -> None:
    bmc = legacy()
    bmc.resources["/redfish/v1/Chassis/1/Power"] = {"PowerControl": [{"PowerConsumedWatts": 1}]}
    with pytest.raises(NotSupportedError, match="lists nothing with a power limit"), opened(bmc):
        pass


def test_the_keeper_holds_and_restores_over_a_bmc_that_ignores() -> None:
    bmc = hgx(mode="Disabled")
    with opened(bmc) as gpus:
        bmc.ignored = 1
        keeping = Keeping(gpus)
        keeping.order(power_limit_w=450.0, lease_s=1e6)
        keeping.rounds(16, every_s=2.0)
        assert {sight.enforced for sight in keeping.cap_controller.gpu_states()} == {Caps(450.0)}
        assert keeping.cap_controller.counts[CapKind.POWER, Event.IGNORED] == 1
        assert keeping.cap_controller.restore()
        assert [metrics(bmc, at)["ControlMode"] for at in (1, 2)] == ["Disabled", "Disabled"]


def test_the_login_is_one_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bmc"
    file.write_text(f"{USER}:{PASSWORD}\n")
    assert read_login(file) == LOGIN
    for bad in ("", "nobody", ":x", "x:", "a:b\nc:d"):
        file.write_text(bad)
        with pytest.raises(GpuError, match="expected one line USER:PASSWORD"):
            read_login(file)
    with pytest.raises(GpuError, match="No such file"):
        read_login(tmp_path / "none")
