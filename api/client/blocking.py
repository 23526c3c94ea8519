"""`Fleetwright`: the client for ordinary code."""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx

from api.client import fault_operations, operations
from api.client.calls import Call, connection_errors, next_page
from api.client.retries import Retries
from api.client.tokens import token_from_environment
from api.client.transport import Timeouts, make_connection, url_from_environment
from api.schemas.pages import Page

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")


def _method(describe: Callable[P, Call[ResultT]]) -> "Callable[Concatenate[Fleetwright, P], ResultT]":
    """A method that sends the described call."""

    @wraps(describe)
    def method(self: "Fleetwright", /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        return self.send(describe(*args, **kwargs))

    return method


def _items(describe: Callable[P, Call[Page[ItemT]]]) -> "Callable[Concatenate[Fleetwright, P], Iterator[ItemT]]":
    """A method that yields the items of every page from the described one on."""

    @wraps(describe)
    def method(self: "Fleetwright", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[ItemT]:
        return self.pages(describe(*args, **kwargs))

    return method


class Fleetwright:
    """A connection to the service; close it, or use it in a `with` block.

    `transport` replaces the network, for tests and for calls inside one process.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._connection = make_connection(url=url, token=token, timeouts=timeouts, retries=retries)
        self._http = httpx.Client(**self._connection.http_options(), transport=transport)

    @classmethod
    def from_environment(cls) -> Self:
        """The service and token that FLEETWRIGHT_URL, FLEETWRIGHT_TOKEN or FLEETWRIGHT_TOKEN_FILE name."""
        return cls(url_from_environment(os.environ), token=token_from_environment(os.environ))

    def __repr__(self) -> str:
        return f"Fleetwright({str(self._connection.url)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def send(self, call: Call[ResultT]) -> ResultT:
        """Carry out one call, trying again where that is safe."""
        for attempt in self._connection.retries.context(call):
            with attempt:
                return self._exchange(call)
        raise AssertionError("the last attempt returns or raises")

    def pages(self, call: Call[Page[ItemT]]) -> Iterator[ItemT]:
        """The items of this page and of all that follow."""
        following: Call[Page[ItemT]] | None = call
        while following is not None:
            page = self.send(following)
            yield from page.items
            following = next_page(following, page)

    def _exchange(self, call: Call[ResultT]) -> ResultT:
        with connection_errors(call):
            response = self._http.request(**self._connection.request_options(call))
        return call.answer(response)

    check_live = _method(operations.check_live)
    check_ready = _method(operations.check_ready)
    get_metrics = _method(operations.get_metrics)
    get_document = _method(operations.get_document)
    get_document_if_changed = _method(operations.get_document_if_changed)
    replace_document = _method(operations.replace_document)
    list_document_versions = _method(operations.list_document_versions)
    iter_document_versions = _items(operations.list_document_versions)
    get_document_version = _method(operations.get_document_version)
    create_plan = _method(operations.create_plan)
    list_plans = _method(operations.list_plans)
    iter_plans = _items(operations.list_plans)
    get_plan = _method(operations.get_plan)
    create_placement = _method(operations.create_placement)
    list_placements = _method(operations.list_placements)
    iter_placements = _items(operations.list_placements)
    get_placement = _method(operations.get_placement)
    export_placement = _method(operations.export_placement)
    create_power_simulation = _method(operations.create_power_simulation)
    list_power_simulations = _method(operations.list_power_simulations)
    iter_power_simulations = _items(operations.list_power_simulations)
    get_power_simulation = _method(operations.get_power_simulation)
    create_power_plan = _method(operations.create_power_plan)
    list_power_plans = _method(operations.list_power_plans)
    iter_power_plans = _items(operations.list_power_plans)
    get_power_plan = _method(operations.get_power_plan)
    list_power_trees = _method(operations.list_power_trees)
    iter_power_trees = _items(operations.list_power_trees)
    get_power_tree = _method(operations.get_power_tree)
    create_power_tree = _method(operations.create_power_tree)
    replace_power_tree = _method(operations.replace_power_tree)
    delete_power_tree = _method(operations.delete_power_tree)
    list_power_budgets = _method(operations.list_power_budgets)
    iter_power_budgets = _items(operations.list_power_budgets)
    get_power_budget = _method(operations.get_power_budget)
    create_power_budget = _method(operations.create_power_budget)
    replace_power_budget = _method(operations.replace_power_budget)
    delete_power_budget = _method(operations.delete_power_budget)
    report_fault_verdict = _method(fault_operations.report_fault_verdict)
    list_fault_verdicts = _method(fault_operations.list_fault_verdicts)
    iter_fault_verdicts = _items(fault_operations.list_fault_verdicts)
    get_fault_verdict = _method(fault_operations.get_fault_verdict)
    believe_fault_verdict = _method(fault_operations.believe_fault_verdict)
    get_fault_bundle = _method(fault_operations.get_fault_bundle)
    replay_fault_bundle = _method(fault_operations.replay_fault_bundle)
    create_fault_simulation = _method(fault_operations.create_fault_simulation)
    list_fault_simulations = _method(fault_operations.list_fault_simulations)
    iter_fault_simulations = _items(fault_operations.list_fault_simulations)
    get_fault_simulation = _method(fault_operations.get_fault_simulation)
    plan_fault_paths = _method(fault_operations.plan_fault_paths)
    get_isolation_rules = _method(fault_operations.get_isolation_rules)
    replace_isolation_rules = _method(fault_operations.replace_isolation_rules)
    get_isolation = _method(fault_operations.get_isolation)
    look_at_fleet = _method(fault_operations.look_at_fleet)
    wish_for_node = _method(fault_operations.wish_for_node)
    close_isolation_breaker = _method(fault_operations.close_isolation_breaker)
    list_healing_cases = _method(fault_operations.list_healing_cases)
    iter_healing_cases = _items(fault_operations.list_healing_cases)
    get_healing_case = _method(fault_operations.get_healing_case)
    open_healing_case = _method(fault_operations.open_healing_case)
    carry_healing_case_on = _method(fault_operations.carry_healing_case_on)
    list_targets = _method(operations.list_targets)
    iter_targets = _items(operations.list_targets)
    get_target = _method(operations.get_target)
    create_target = _method(operations.create_target)
    replace_target = _method(operations.replace_target)
    delete_target = _method(operations.delete_target)
    get_target_status = _method(operations.get_target_status)
    report_target_status = _method(operations.report_target_status)
    approve_target = _method(operations.approve_target)
    list_leases = _method(operations.list_leases)
    iter_leases = _items(operations.list_leases)
    get_lease = _method(operations.get_lease)
    create_lease = _method(operations.create_lease)
    replace_lease = _method(operations.replace_lease)
    get_freeze = _method(operations.get_freeze)
    replace_freeze = _method(operations.replace_freeze)
    create_token = _method(operations.create_token)
    list_tokens = _method(operations.list_tokens)
    iter_tokens = _items(operations.list_tokens)
    revoke_token = _method(operations.revoke_token)
    list_audit = _method(operations.list_audit)
    iter_audit = _items(operations.list_audit)
    check_audit = _method(operations.check_audit)
