"""Which address of a Ray cluster the settings accept, and that no job of lane `work` is taken before it is reached."""

import pytest
from pydantic import ValidationError

from api.jobs.process import ProcessExecutor
from api.jobs.ray_tasks import RayExecutor
from api.schemas.jobs import Lane
from api.server.settings import Settings


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379"])
def test_the_address_of_the_control_service_is_accepted(address: str) -> None:
    assert Settings(job_ray_address=address).job_ray_address == address


def test_an_address_of_ray_client_is_refused() -> None:
    with pytest.raises(ValidationError, match="job_ray_address: must be `auto`"):
        Settings(job_ray_address="ray://10.0.0.1:10001")


def test_only_the_other_lanes_are_taken_before_the_cluster_is_reached() -> None:
    executor = RayExecutor(address="127.0.0.1:1", local=ProcessExecutor())
    assert {lane for lane in Lane if executor.takes(lane)} == {Lane.SAFETY, Lane.READS}
