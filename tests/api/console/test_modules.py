"""Modules of the console that repeat a rule of the service: both must agree."""

import json
import random
import string
from typing import Any

import pytest
import yaml

from deploy.controller.plan_reader import part_of
from fleet.topology.hostlist import expand
from fleet.yaml_reader import load_yaml
from planner.result import Allocation
from tests.api.console.conftest import EXAMPLES, OpenPage
from tests.testbed.browser import BrowserError, Page

SCALARS: list[Any] = [None, True, False, 0, -1, 3, 1.5, -0.25, 1e-7, 12345678.9]
TEXTS = [
    "",
    " ",
    "a b",
    "null",
    "true",
    "~",
    "yes",
    "1",
    "1.0",
    "-",
    "- a",
    "a: b",
    "a #b",
    "#",
    "é",
    '"',
    "'",
    "\\",
    "\n",
]
OTHER_TEXTS = [
    "{",
    "[1",
    "a,b",
    "@x",
    "%",
    "x:",
    "  lead",
    "trail ",
    "0x10",
    "1e3",
    ".5",
    "…",
    "a\tb",
    "__proto__",
    "key",
]


@pytest.fixture
def modules(open_page: OpenPage) -> Page:
    """A page on which modules of the console are called alone."""
    page = open_page(signed_in=False)
    page.wait_text("API token")
    return page


def call(page: Page, module: str, expression: str) -> Any:
    return page.evaluate(f"import('./console/lib/{module}.js').then(m => {expression})")


def drawn(rng: random.Random, depth: int) -> Any:
    """Draw a JSON value; texts are those that YAML could read as something else, and random ones."""
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        letters = "".join(rng.choices(string.printable + "äß€", k=rng.randint(0, 12)))
        return rng.choice([*SCALARS, *TEXTS, *OTHER_TEXTS, letters.replace("\r", "")])
    if kind < 0.6:
        return [drawn(rng, depth - 1) for _ in range(rng.randint(0, 4))]
    return {rng.choice([*TEXTS[2:], *OTHER_TEXTS]): drawn(rng, depth - 1) for _ in range(rng.randint(0, 4))}


def test_yaml_is_read_as_the_command_line_reads_it(modules: Page) -> None:
    examples = [path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))]
    assert len(examples) >= 5
    for text in examples:
        expected, _places = load_yaml(text)
        assert call(modules, "yaml", f"m.parse({json.dumps(text)}).value") == expected
        written = call(modules, "yaml", f"m.stringify({json.dumps(expected)})")
        assert load_yaml(written)[0] == expected


def test_what_is_written_is_read_again_and_by_every_reader_of_yaml(modules: Page) -> None:
    rng = random.Random(7)
    values = [{"value": drawn(rng, 4)} for _ in range(400)]
    given = f"JSON.parse({json.dumps(json.dumps(values))})"  # in a script, `__proto__` would not be a key
    written = call(modules, "yaml", f"{given}.map(each => m.stringify(each))")
    assert [load_yaml(text)[0] for text in written] == values
    assert [yaml.safe_load(text) for text in written] == values, "YAML 1.1"
    assert call(modules, "yaml", f"{given}.map(each => m.parse(m.stringify(each)).value)") == values
    assert call(modules, "yaml", f"{given}.map(each => m.parse(JSON.stringify(each, null, 2)).value)") == values


def test_plain_scalars_mean_what_they_mean_on_the_command_line(modules: Page) -> None:
    texts = [
        *TEXTS[3:9],
        "0x1F",
        "0o17",
        "017",
        "1e9",
        "1.",
        ".5",
        "+3",
        "-.5e-3",
        "NULL",
        "No",
        "on",
        "1_000",
        "12:30",
    ]
    document = "\n".join(f"k{number}: {text}" for number, text in enumerate(texts))
    assert call(modules, "yaml", f"m.parse({json.dumps(document)}).value") == load_yaml(document)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1", "line 1: `&` is YAML that this page does not read; write the value out, or use JSON"),
        ("a: 1\nb: *x", "line 2: `*` is YAML that this page does not read; write the value out, or use JSON"),
        ("a: !!str 1", "line 1: `!` is YAML that this page does not read; write the value out, or use JSON"),
        ("a: |\n  text", "line 1: `|` is YAML that this page does not read; write the value out, or use JSON"),
        ("a: [1,\n 2", "line 2: has a bracket that is not closed"),
        ("a: [1 2}", "line 1: expected `,` or `]`"),
        ("a: 1\n  b: 2", "line 2: is indented more than the lines before it"),
        ("a: 1\n\nb: 2\na: 3", "line 4: has the key `a` twice"),
        ("a:\n\tb: 1", "line 2: is indented with a tab; use spaces"),
        ("a: {b: 1} c", "line 1: cannot read `c` after the value"),
        ('a: "x', "line 1: has a quote that does not end on its line"),
        ("a: 1\n---\nb: 2", "line 2: expected `key: value`"),
        ("a: " + "[" * 70, "line 1: is nested too deep"),
    ],
)
def test_what_the_page_does_not_read_is_named_with_its_line(modules: Page, text: str, message: str) -> None:
    with pytest.raises(BrowserError) as caught:
        call(modules, "yaml", f"m.parse({json.dumps(text)})")
    assert message in str(caught.value)


def test_values_have_the_lines_of_their_paths(modules: Page) -> None:
    text = "workloads:\n  - name: a\n    slo:\n      ttft_ms: {p99: 2}\n  - {name: b,\n     rate_rps: 1}\n"
    lines = dict(call(modules, "yaml", f"[...m.parse({json.dumps(text)}).lines]"))
    assert lines["workloads[0].slo.ttft_ms.p99"] == 4
    assert (lines["workloads[1].name"], lines["workloads[1].rate_rps"]) == (5, 6)


def test_parts_of_a_target_take_the_replicas_that_the_controller_gives_them(modules: Page) -> None:
    options = [
        ("L4", "o/l4", "o/l4/tp1", 1),
        ("H100-SXM", "o/h", "o/h/tp2-fp8", 2),
        ("H100-SXM", "o/h", "o/h/tp4-prefill", 4),
    ]
    given = [(gpu, None, "own", 2) for gpu in ("L4", "H100-SXM")]
    allocations = [
        Allocation(
            workload="w",
            option=option,
            gpu=gpu,
            count=1,
            gpus_per_replica=size,
            clock=clock,
            offer=offer,
            busy=0.5,
            power_w=None,
        )
        for gpu, offer, option, size in [*options, *given]
        for clock in (None, 1.0, 0.7, 0.65)
    ]
    keys = [
        "L4",
        "H100-SXM",
        "H100-SXM/x2",
        "H100-SXM/prefill",
        "H100-SXM/tp2-fp8",
        "H100-SXM/tp2-fp8@0.7",
        "L4/own",
        "L4@1",
    ]
    rng = random.Random(3)
    for _ in range(60):
        parts = rng.sample(keys, rng.randint(0, len(keys)))
        listed = json.dumps([each.model_dump(mode="json") for each in allocations])
        found = call(modules, "parts", f"{listed}.map(each => m.partOf(each, {json.dumps(parts)}))")
        assert found == [part_of(each, parts) for each in allocations], parts


@pytest.mark.parametrize("name", ["ups", "row-[1-3]", "r[01-03]-n[1-2]", "gpu-[008-012]x"])
def test_names_are_expanded_as_in_a_topology(modules: Page, name: str) -> None:
    assert call(modules, "hostlist", f"m.expanded({json.dumps(name)})") == list(expand(name))
