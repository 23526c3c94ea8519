"""The public names, and every operation as a method of both clients."""

import inspect
from types import FunctionType, MethodType, ModuleType

import api.client
from api.client import (
    AsyncClient,
    Client,
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
from api.client.calls import ResultOperations
from api.client.methods import Events, Items, Method, Methods


def is_module(value: object) -> bool:
    return inspect.ismodule(value)


def is_operation(function: FunctionType | MethodType, module: ModuleType) -> bool:
    """Whether a function of a module is an operation: defined there, or a method of `ResultOperations`."""
    return function.__module__ == module.__name__ or isinstance(getattr(function, "__self__", None), ResultOperations)


MODULES = (
    *(operations, access_operations, computation_operations),
    *(event_operations, fault_operations, job_operations, plan_operations),
    planning_loop_operations,
    stock_operations,
)
OPERATIONS = {
    name: function
    for module in MODULES
    for name, function in vars(module).items()
    if isinstance(function, FunctionType | MethodType) and is_operation(function, module) and not name.startswith("_")
}


def test_every_public_name_is_re_exported_once() -> None:
    assert len(set(api.client.__all__)) == len(api.client.__all__)
    assert all(hasattr(api.client, name) for name in api.client.__all__)
    imported = {name for name, value in vars(api.client).items() if not name.startswith("_") and not is_module(value)}
    assert imported == set(api.client.__all__)


def test_the_method_table_has_exactly_the_operations() -> None:
    offered = {
        name: each.__wrapped__ for name, each in vars(Methods).items() if isinstance(each, Method | Items | Events)
    }
    lists = {name.replace("list_", "iter_", 1): OPERATIONS[name] for name in OPERATIONS if name.startswith("list_")}
    assert offered == OPERATIONS | lists


def test_a_method_has_the_signature_and_docstring_of_its_operation() -> None:
    with Client("http://fleet.test") as client:
        asynchronous = AsyncClient("http://fleet.test")
        for method in (client.get_plan, asynchronous.get_plan):
            assert method.__doc__ == operations.get_plan.__doc__
            assert inspect.signature(method) == inspect.signature(operations.get_plan)
        assert inspect.isgenerator(client.iter_plans())
        assert inspect.isgenerator(client.follow_events())
        assert inspect.isasyncgen(asynchronous.follow_events())
        assert inspect.isasyncgen(asynchronous.iter_plans())
