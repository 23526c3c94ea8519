"""Limits how long a request waits for the database: one that hangs fails requests instead of holding them.

PostgreSQL ends slow statements and waits for locks itself.  A server that is stopped cannot: a timer of this process
then shuts the socket down, and the driver reports a broken connection, which leaves the pool.  On SQLite the timer
interrupts the statement.
"""

import asyncio
import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine

STATEMENT_LIMIT_S = 12.0  # of this process; over the server's own limit and over SQLite's busy timeout
LOCK_WAIT_S = 10.0  # for the other writers of this process
SERVER_LIMITS_MS: Final = {
    "statement_timeout": 10_000,
    "lock_timeout": 5_000,
    "idle_in_transaction_session_timeout": 60_000,
}
_TIMER: Final = "fleetwright_timer"  # key in the `info` of a pooled connection


def limit_postgresql(engine: AsyncEngine) -> None:
    """Limit statements, and replace connections that the server has closed."""
    # By statement: a pooler between the two refuses unknown parameters of a connection's start.
    event.listen(engine.sync_engine, "connect", _set_server_limits)
    event.listen(engine.sync_engine, "checkout", _prepare)
    _limit(engine, _shut_down)


def limit_sqlite(engine: AsyncEngine) -> None:
    _limit(engine, _interrupt)


def _limit(engine: AsyncEngine, end: Callable[[Any], None]) -> None:
    pooled = engine.sync_engine

    def start(info: dict[str, Any], driver_connection: Any) -> None:
        _stop_timer(info)
        info[_TIMER] = asyncio.get_running_loop().call_later(STATEMENT_LIMIT_S, end, driver_connection)

    def start_of(connection: Any, *_more: Any) -> None:
        if not connection.invalidated:  # a rollback after the server has closed the connection
            start(connection.info, connection.connection.driver_connection)

    def stop_of(connection: Any, *_more: Any) -> None:
        _stop_timer(connection.info)

    for begins in ("before_cursor_execute", "commit", "rollback"):
        event.listen(pooled, begins, start_of)
    event.listen(pooled, "after_cursor_execute", stop_of)
    event.listen(pooled, "checkin", lambda _connection, record: _stop_timer(record.info))
    event.listen(pooled, "invalidate", lambda _connection, record, _error: _stop_timer(record.info))


def _stop_timer(info: dict[str, Any]) -> None:
    timer = info.pop(_TIMER, None)
    if timer is not None:
        timer.cancel()


def _set_server_limits(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("; ".join(f"SET {name} = {limit_ms}" for name, limit_ms in SERVER_LIMITS_MS.items()))
    cursor.close()
    connection.commit()  # a rollback would undo them


def _prepare(connection: Any, _record: Any, _proxy: Any) -> None:
    """Refuse a closed connection, without a round trip: an idle one is readable only once the server has ended it."""
    poll = select.poll()
    poll.register(connection.driver_connection.fileno(), select.POLLIN)
    if poll.poll(0):
        raise DisconnectionError("the server has closed this connection")
    # After a read-only transaction the pool leaves "read write", which overrides a server that is read-only.
    if connection.read_only is not None:
        connection.set_read_only(None)


def _shut_down(driver_connection: Any) -> None:
    # Through a duplicate: the driver still owns its descriptor, and closes it.
    with (
        suppress(OSError, driver_connection.OperationalError),  # closed meanwhile
        socket.socket(fileno=os.dup(driver_connection.fileno())) as duplicate,
    ):
        duplicate.shutdown(socket.SHUT_RDWR)


def _interrupt(driver_connection: Any) -> None:
    interruption = asyncio.ensure_future(driver_connection.interrupt())
    interruption.add_done_callback(lambda done: done.exception())  # ValueError: closed meanwhile
