"""The public face: what can be imported, and that both clients offer every operation."""

import inspect
from types import FunctionType

import pytest

import api.client
from api.client import AsyncFleetwright, Fleetwright, fault_operations, operations

OPERATIONS = {
    name: function
    for module in (operations, fault_operations)
    for name, function in vars(module).items()
    if isinstance(function, FunctionType) and function.__module__ == module.__name__ and not name.startswith("_")
}


def test_everything_public_is_re_exported_once_in_order() -> None:
    assert len(set(api.client.__all__)) == len(api.client.__all__)
    assert all(hasattr(api.client, name) for name in api.client.__all__)
    imported = {name for name, value in vars(api.client).items() if not name.startswith("_") and not is_module(value)}
    assert imported == set(api.client.__all__)


@pytest.mark.parametrize("client", [Fleetwright, AsyncFleetwright])
def test_a_client_has_every_operation_under_its_name_and_no_other(client: type) -> None:
    methods = {name: method for name, method in vars(client).items() if isinstance(method, FunctionType)}
    offered = {name: method.__wrapped__ for name, method in methods.items() if hasattr(method, "__wrapped__")}
    lists = {name.replace("list_", "iter_", 1): OPERATIONS[name] for name in OPERATIONS if name.startswith("list_")}
    assert offered == OPERATIONS | lists


def is_module(value: object) -> bool:
    return inspect.ismodule(value)
