"""Derives the methods of both clients from one table of operations.

An operation describes a `Call`.  A `Method` of the blocking client sends that call and returns the result; the same
`Method` of the asynchronous client returns a coroutine.  `Items` iterates over the items of all pages.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from api.client import (
    access_operations,
    computation_operations,
    event_operations,
    fault_operations,
    job_operations,
    operations,
    plan_operations,
    planning_loop_operations,
    stock_operations,
)
from api.client.calls import Call
from api.client.event_operations import EventStream
from api.schemas.events import ChangeEvent
from api.schemas.pages import Page

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")
CallT = TypeVar("CallT")


class Sender:
    """Sends calls and waits for the results."""

    def send(self, call: Call[ResultT]) -> ResultT:
        """Send one call."""
        raise NotImplementedError

    def pages(self, call: Call[Page[ItemT]]) -> Iterator[ItemT]:
        """Iterate over the items of this page and of all that follow."""
        raise NotImplementedError

    def events(self, stream: EventStream) -> Iterator[ChangeEvent]:
        """Iterate over the events of a stream, over as many connections as that takes."""
        raise NotImplementedError


class AsyncSender:
    """Sends calls on the event loop."""

    async def send(self, call: Call[ResultT]) -> ResultT:
        """Send one call."""
        raise NotImplementedError

    def pages(self, call: Call[Page[ItemT]]) -> AsyncIterator[ItemT]:
        """Iterate over the items of this page and of all that follow."""
        raise NotImplementedError

    def events(self, stream: EventStream) -> AsyncIterator[ChangeEvent]:
        """Iterate over the events of a stream, over as many connections as that takes."""
        raise NotImplementedError


class _Operation(Generic[P, CallT]):
    """Presents the operation that a method of the client performs."""

    def __init__(self, describe: Callable[P, CallT]) -> None:
        self._describe = describe
        self.__wrapped__ = describe
        self.__doc__ = describe.__doc__


class Method(_Operation[P, Call[ResultT]], Generic[P, ResultT]):
    """Sends the described call."""

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, ResultT]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, Coroutine[Any, Any, ResultT]]: ...
    def __get__(self, client: Sender | AsyncSender | None, owner: type) -> Any:
        if client is None:
            return self

        @wraps(self._describe)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._describe(*args, **kwargs))

        return method


class Items(_Operation[P, Call[Page[ItemT]]], Generic[P, ItemT]):
    """Iterates over the items of all pages."""

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, Iterator[ItemT]]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, AsyncIterator[ItemT]]: ...
    def __get__(self, client: Sender | AsyncSender | None, owner: type) -> Any:
        if client is None:
            return self

        @wraps(self._describe)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.pages(self._describe(*args, **kwargs))

        return method


class Events(_Operation[P, EventStream]):
    """Iterates over events."""

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, Iterator[ChangeEvent]]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, AsyncIterator[ChangeEvent]]: ...
    def __get__(self, client: Sender | AsyncSender | None, owner: type) -> Any:
        if client is None:
            return self

        @wraps(self._describe)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.events(self._describe(*args, **kwargs))

        return method


class Methods:
    """Lists every operation of the API."""

    check_live = Method(operations.check_live)
    check_ready = Method(operations.check_ready)
    get_metrics = Method(operations.get_metrics)
    get_document = Method(operations.get_document)
    get_document_if_changed = Method(operations.get_document_if_changed)
    replace_document = Method(operations.replace_document)
    list_document_versions = Method(operations.list_document_versions)
    iter_document_versions = Items(operations.list_document_versions)
    get_document_version = Method(operations.get_document_version)
    validate_plan = Method(operations.validate_plan)
    create_plan = Method(operations.create_plan)
    submit_plan = Method(operations.submit_plan)
    list_plans = Method(operations.list_plans)
    iter_plans = Items(operations.list_plans)
    get_plan = Method(operations.get_plan)
    create_sweep = Method(operations.create_sweep)
    submit_sweep = Method(operations.submit_sweep)
    list_sweeps = Method(operations.list_sweeps)
    iter_sweeps = Items(operations.list_sweeps)
    get_sweep = Method(operations.get_sweep)
    compare_plans = Method(plan_operations.compare_plans)
    explain_plan = Method(plan_operations.explain_plan)
    replay_plan = Method(plan_operations.replay_plan)
    create_placement = Method(operations.create_placement)
    submit_placement = Method(operations.submit_placement)
    list_placements = Method(operations.list_placements)
    iter_placements = Items(operations.list_placements)
    get_placement = Method(operations.get_placement)
    export_placement = Method(operations.export_placement)
    create_power_simulation = Method(operations.create_power_simulation)
    submit_power_simulation = Method(operations.submit_power_simulation)
    list_power_simulations = Method(operations.list_power_simulations)
    iter_power_simulations = Items(operations.list_power_simulations)
    get_power_simulation = Method(operations.get_power_simulation)
    create_power_plan = Method(operations.create_power_plan)
    submit_power_plan = Method(operations.submit_power_plan)
    list_power_plans = Method(operations.list_power_plans)
    iter_power_plans = Items(operations.list_power_plans)
    get_power_plan = Method(operations.get_power_plan)
    list_power_trees = Method(operations.list_power_trees)
    iter_power_trees = Items(operations.list_power_trees)
    get_power_tree = Method(operations.get_power_tree)
    create_power_tree = Method(operations.create_power_tree)
    replace_power_tree = Method(operations.replace_power_tree)
    delete_power_tree = Method(operations.delete_power_tree)
    list_stocks = Method(stock_operations.list_stocks)
    iter_stocks = Items(stock_operations.list_stocks)
    get_stock = Method(stock_operations.get_stock)
    create_stock = Method(stock_operations.create_stock)
    replace_stock = Method(stock_operations.replace_stock)
    delete_stock = Method(stock_operations.delete_stock)
    list_power_budgets = Method(operations.list_power_budgets)
    iter_power_budgets = Items(operations.list_power_budgets)
    get_power_budget = Method(operations.get_power_budget)
    create_power_budget = Method(operations.create_power_budget)
    replace_power_budget = Method(operations.replace_power_budget)
    delete_power_budget = Method(operations.delete_power_budget)
    list_jobs = Method(job_operations.list_jobs)
    iter_jobs = Items(job_operations.list_jobs)
    get_job = Method(job_operations.get_job)
    cancel_job = Method(job_operations.cancel_job)
    get_job_output = Method(job_operations.get_job_output)
    follow_job = Method(job_operations.follow_job)
    follow_events = Events(event_operations.follow_events)
    report_diagnosis = Method(fault_operations.report_diagnosis)
    list_diagnoses = Method(fault_operations.list_diagnoses)
    iter_diagnoses = Items(fault_operations.list_diagnoses)
    get_diagnosis = Method(fault_operations.get_diagnosis)
    set_diagnosis_expiry = Method(fault_operations.set_diagnosis_expiry)
    get_diagnosis_bundle = Method(fault_operations.get_diagnosis_bundle)
    replay_diagnosis_bundle = Method(fault_operations.replay_diagnosis_bundle)
    create_fault_simulation = Method(operations.create_fault_simulation)
    submit_fault_simulation = Method(operations.submit_fault_simulation)
    list_fault_simulations = Method(operations.list_fault_simulations)
    iter_fault_simulations = Items(operations.list_fault_simulations)
    get_fault_simulation = Method(operations.get_fault_simulation)
    plan_fault_paths = Method(computation_operations.plan_fault_paths)
    assess_placement = Method(computation_operations.assess_placement)
    forecast_power = Method(computation_operations.forecast_power)
    import_profiles = Method(computation_operations.import_profiles)
    fit_profiles = Method(computation_operations.fit_profiles)
    list_nodes = Method(fault_operations.list_nodes)
    iter_nodes = Items(fault_operations.list_nodes)
    get_node = Method(fault_operations.get_node)
    get_quarantine_rules = Method(fault_operations.get_quarantine_rules)
    replace_quarantine_rules = Method(fault_operations.replace_quarantine_rules)
    get_quarantine = Method(fault_operations.get_quarantine)
    evaluate_quarantine = Method(fault_operations.evaluate_quarantine)
    request_node_action = Method(fault_operations.request_node_action)
    reset_quarantine_breaker = Method(fault_operations.reset_quarantine_breaker)
    list_remediation_cases = Method(fault_operations.list_remediation_cases)
    iter_remediation_cases = Items(fault_operations.list_remediation_cases)
    get_remediation_case = Method(fault_operations.get_remediation_case)
    open_remediation_case = Method(fault_operations.open_remediation_case)
    update_remediation_case = Method(fault_operations.update_remediation_case)
    list_health_events = Method(fault_operations.list_health_events)
    iter_health_events = Items(fault_operations.list_health_events)
    get_health_event = Method(fault_operations.get_health_event)
    create_health_event = Method(fault_operations.create_health_event)
    update_health_event = Method(fault_operations.update_health_event)
    list_target_statuses = Method(operations.list_target_statuses)
    iter_target_statuses = Items(operations.list_target_statuses)
    list_targets = Method(operations.list_targets)
    iter_targets = Items(operations.list_targets)
    get_target = Method(operations.get_target)
    create_target = Method(operations.create_target)
    replace_target = Method(operations.replace_target)
    preview_target = Method(operations.preview_target)
    delete_target = Method(operations.delete_target)
    get_target_status = Method(operations.get_target_status)
    get_wanted_replicas = Method(operations.get_wanted_replicas)
    report_target_status = Method(operations.report_target_status)
    approve_target = Method(operations.approve_target)
    list_planning_loops = Method(planning_loop_operations.list_planning_loops)
    iter_planning_loops = Items(planning_loop_operations.list_planning_loops)
    get_planning_loop = Method(planning_loop_operations.get_planning_loop)
    create_planning_loop = Method(planning_loop_operations.create_planning_loop)
    replace_planning_loop = Method(planning_loop_operations.replace_planning_loop)
    delete_planning_loop = Method(planning_loop_operations.delete_planning_loop)
    get_planning_loop_status = Method(planning_loop_operations.get_planning_loop_status)
    report_planning_loop_status = Method(planning_loop_operations.report_planning_loop_status)
    list_planning_loop_statuses = Method(planning_loop_operations.list_planning_loop_statuses)
    iter_planning_loop_statuses = Items(planning_loop_operations.list_planning_loop_statuses)
    set_planning_loop_plan = Method(planning_loop_operations.set_planning_loop_plan)
    list_leases = Method(operations.list_leases)
    iter_leases = Items(operations.list_leases)
    get_lease = Method(operations.get_lease)
    create_lease = Method(operations.create_lease)
    replace_lease = Method(operations.replace_lease)
    get_freeze = Method(operations.get_freeze)
    replace_freeze = Method(operations.replace_freeze)
    list_projects = Method(access_operations.list_projects)
    iter_projects = Items(access_operations.list_projects)
    get_project = Method(access_operations.get_project)
    create_project = Method(access_operations.create_project)
    replace_project = Method(access_operations.replace_project)
    delete_project = Method(access_operations.delete_project)
    open_session = Method(access_operations.open_session)
    get_session = Method(access_operations.get_session)
    end_session = Method(access_operations.end_session)
    create_token = Method(access_operations.create_token)
    list_tokens = Method(access_operations.list_tokens)
    iter_tokens = Items(access_operations.list_tokens)
    revoke_token = Method(access_operations.revoke_token)
    list_audit = Method(operations.list_audit)
    iter_audit = Items(operations.list_audit)
    export_audit = Method(operations.export_audit)
    check_audit = Method(operations.check_audit)
    list_audit_checkpoints = Method(operations.list_audit_checkpoints)
    iter_audit_checkpoints = Items(operations.list_audit_checkpoints)
    create_audit_checkpoint = Method(operations.create_audit_checkpoint)
