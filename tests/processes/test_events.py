"""Followers of `/v1/events` over sockets: of another replica than the writes, at a shutdown, with a revoked token."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice

import pytest

from api.cli.serve.run import SHUTDOWN_GRACE_S
from api.client import Client, Retries, UnauthorizedError
from api.schemas.events import ChangeEvent
from api.schemas.targets import Freeze
from api.schemas.tokens import TokenRequest, TokenScope
from tests.testbed.server import ADMIN_TOKEN, Server, StartServer
from tests.testbed.waiting import PATIENCE_S

WRITES = 6
BARE = ("--no-controller", "--no-worker")


def freeze(server: Server, *, times: int) -> None:
    with server.client() as client:
        for number in range(times):
            client.replace_freeze(Freeze(frozen=number % 2 == 0, reason=str(number)), if_match="*")


def head(server: Server) -> int:
    with server.client() as client:
        return client.list_audit(limit=1).items[0].seq


@contextmanager
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def follow(server: Server, *, after: int, count: int) -> list[ChangeEvent]:
    with Client(server.url, token=ADMIN_TOKEN, retries=Retries(attempts=1_000, give_up_after_s=PATIENCE_S)) as client:
        return list(islice(client.follow_events(after=after, types=["fleet."]), count))


def test_a_follower_of_one_replica_receives_the_writes_of_another(start_server: StartServer, database_url: str) -> None:
    first = start_server(database_url, *BARE)
    replicas = [first, first if database_url.startswith("sqlite") else start_server(database_url, *BARE)]
    begin = head(first)
    with pool() as threads:
        followers = [threads.submit(follow, replica, after=begin, count=WRITES) for replica in replicas]
        freeze(first, times=WRITES)
        received = [each.result(PATIENCE_S) for each in followers]
    assert received[0] == received[1]
    assert [event.type for event in received[0]] == ["fleet.frozen", "fleet.thawed"] * (WRITES // 2)
    last = received[0][2].id
    assert follow(replicas[1], after=last, count=3) == received[0][3:], "any replica resumes"


def test_a_service_with_followers_ends_at_once(start_server: StartServer, sqlite_url: str) -> None:
    server = start_server(sqlite_url, *BARE)
    freeze(server, times=1)
    with server.client() as client:
        events = client.follow_events(after=0)
        next(events)
        status = server.process.stop(grace_s=SHUTDOWN_GRACE_S / 2)
        del events
    assert status != -signal.SIGKILL


def test_a_revoked_token_follows_no_longer(start_server: StartServer, sqlite_url: str) -> None:
    server = start_server(sqlite_url, *BARE)
    with server.client() as admin:
        made = admin.create_token(TokenRequest(name="r", scopes=frozenset({TokenScope.READ})))
        with Client(server.url, token=made.secret) as reader, pool() as threads:
            events = reader.follow_events(types=["fleet."])
            waiting = threads.submit(next, events)
            admin.revoke_token(made.info.id)
            with pytest.raises(UnauthorizedError):
                waiting.result(PATIENCE_S)


def test_a_follower_that_leaves_makes_room(start_server: StartServer, sqlite_url: str) -> None:
    server = start_server(sqlite_url, *BARE, event_followers="1")
    freeze(server, times=1)
    for _time in range(3):
        with server.client() as client:
            assert next(client.follow_events(after=0)).type == "fleet.frozen"
