"""Reading documents: values by YAML 1.2, and errors with line, field and allowed values."""

import json
import time
from datetime import date
from enum import StrEnum
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from fleet.documents import (
    MAX_PROBLEMS,
    Frozen,
    RuleError,
    dotted,
    item_problems,
    parse_document,
    read_model,
    write_model,
)
from fleet.errors import DocumentError, FleetwrightError, Problem
from fleet.yaml_reader import MAX_DEPTH, MAX_VALUES, dump_yaml


class Colour(StrEnum):
    RED = "red"


class Part(Frozen):
    name: str = "part"
    count: int = Field(default=1, ge=1, le=9)
    weight_kg: float | None = Field(default=None, gt=0)
    spare: bool = False
    sizes: tuple[float, ...] = ()


class Thing(Frozen):
    title: str
    parts: tuple[Part, ...] = ()
    by_name: dict[str, float] = Field(default_factory=dict)
    colour: Colour = Colour.RED
    made_on: date | None = None


def read(text: str) -> Thing:
    return read_model(parse_document(text, name="thing.yaml"), Thing)


def problems(text: str) -> list[Problem]:
    with pytest.raises(DocumentError) as caught:
        read(text)
    assert caught.value.name == "thing.yaml"
    return list(caught.value.problems)


def the_problem(text: str) -> str:
    (problem,) = problems(text)
    return str(problem)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**30), max_value=10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF, exclude_characters="\x7f"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc.-/ ", max_size=8), inner, max_size=4),
    max_leaves=20,
)


class TestValues:
    def test_a_document_becomes_a_model(self) -> None:
        thing = read("title: a\nparts:\n  - {name: p, count: 3, weight_kg: 2}\ncolour: red\nmade_on: 2026-11-01\n")
        assert thing == Thing(title="a", parts=(Part(name="p", count=3, weight_kg=2.0),), made_on=date(2026, 11, 1))

    @pytest.mark.parametrize(
        "text", ["NO", "yes", "off", "12:30", "2026-11-01", "1_000", "0b1", "+.5.", "=", "1e", "NaN"]
    )
    def test_text_that_yaml_1_1_would_convert_stays_text(self, text: str) -> None:
        assert read(f"title: {text}").title == text

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            *[
                ("1", 1),
                ("-07", -7),
                ("0x1F", 31),
                ("0o17", 15),
                ("1e3", 1e3),
                ("1E5", 1e5),
                ("-.5", -0.5),
                ("+2.", 2.0),
            ],
            *[("true", True), ("False", False), ("~", None), ("null", None), ("", None), ("'1'", "1"), ('"~"', "~")],
        ],
    )
    def test_plain_scalars_follow_the_core_schema(self, text: str, value: Any) -> None:
        data = parse_document(f"a: {text}", name="x").data
        assert data == {"a": value}
        assert type(data["a"]) is type(value)

    def test_an_alias_repeats_a_value(self) -> None:
        assert parse_document("a: &x [1, {b: 2}]\nc: *x", name="x").data == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}

    def test_documents_read_the_same_without_libyaml(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "a: &x [1, {b: 'NO'}]\nc: *x\nd: 1e3\n"
        quick = parse_document(text, name="x")
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
        assert parse_document(text, name="x") == quick

    @given(json_values, st.sampled_from([None, 2, "\t"]))
    def test_json_is_read_as_by_a_json_parser(self, value: Any, indent: int | str | None) -> None:
        text = json.dumps(value, indent=indent)
        assert parse_document(text, name="body").data == json.loads(text)


class TestWriting:
    @given(json_values)
    def test_a_written_value_reads_back_equal(self, value: Any) -> None:
        data = parse_document(dump_yaml(value), name="x").data
        assert data == value

    @given(json_values)
    def test_yaml_1_1_parsers_read_the_same_value(self, value: Any) -> None:
        assert yaml.safe_load(dump_yaml(value)) == value

    @pytest.mark.parametrize("text", ["08", "1e3", "0o17", "NO", "12:30", "2026-11-01", "1_000", "~", "", "true"])
    def test_text_that_a_parser_could_convert_is_quoted(self, text: str) -> None:
        assert dump_yaml({"a": text}) == f"a: '{text}'\n"

    def test_a_model_is_written_without_default_values(self) -> None:
        thing = Thing(title="a", parts=(Part(count=3),), made_on=date(2026, 11, 1))
        assert write_model(thing) == "title: a\nparts:\n- count: 3\nmade_on: '2026-11-01'\n"
        assert read(write_model(thing)) == thing


class TestPlaces:
    text = "# a comment\ntitle: a\nparts:\n  - name: p\n    count: 3\n  - {name: q,\n     sizes: [1,\n       2]}\n"

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            *[
                ((), 2),
                (("title",), 2),
                (("parts",), 3),
                (("parts", 0), 4),
                (("parts", 0, "count"), 5),
                (("parts", 1), 6),
            ],
            *[
                (("parts", 1, "sizes", 1), 8),
                (("parts", 1, "missing"), 6),
                (("parts", 7, "name"), 3),
                (("nothing",), 2),
            ],
        ],
    )
    def test_each_value_has_its_line_and_a_missing_one_that_of_its_parent(
        self, path: tuple[str | int, ...], line: int
    ) -> None:
        assert parse_document(self.text, name="x").line_of(path) == line

    def test_a_value_inside_an_alias_has_the_line_of_its_anchor(self) -> None:
        document = parse_document("a: &x\n  b: 1\nc: *x\n", name="x")
        assert document.line_of(("c",)) == 3
        assert document.line_of(("c", "b")) == 2

    def test_a_nested_error_has_its_line_its_path_and_the_bound(self) -> None:
        assert the_problem("title: a\nparts:\n  - name: p\n  - name: q\n    count: 12\n") == (
            "line 5: parts[1].count: input should be less than or equal to 9, got 12"
        )

    def test_every_error_is_reported(self) -> None:
        found = problems("parts:\n  - count: 0\n  - weight_kg: -1\nwrong: 1\n")
        assert [(problem.path, problem.line) for problem in found] == [
            ("title", 1),
            ("parts[0].count", 2),
            ("parts[1].weight_kg", 3),
            ("wrong", 4),
        ]

    def test_the_number_of_reported_errors_is_bounded(self) -> None:
        found = problems("title: a\nparts:\n" + "  - {count: 0}\n" * (MAX_PROBLEMS + 50))
        assert len(found) == MAX_PROBLEMS + 1
        assert found[-1].message == "and 50 more"


class TestRefusedText:
    @pytest.mark.parametrize(
        ("text", "line", "message"),
        [
            ("a:\n\tb: 1", 2, "indent with spaces, not tabs"),
            ("a: [1, 2", 2, "not valid YAML or JSON"),
            ("a: 1\nb: {c: 1\nd: 2", 3, "not valid YAML or JSON"),
            ("a: 1\n  b: 2", 2, "not valid YAML or JSON"),
            ("a: 1\nb: \x01", 2, "character U+0001 is not allowed"),
            ("a: 1\nb: \ud800", 2, "not encodable as UTF-8"),
            ("a: 1\n---\nb: 2", 2, "holds a second document, expected one"),
            ("a: *x", 1, "alias *x names no anchor that was completed before it"),
            ("a: &x [*x]", 1, "alias *x names no anchor that was completed before it"),
            (
                "a: 1\nb: !!python/object:os.system x",
                2,
                "tag 'tag:yaml.org,2002:python/object:os.system' is not allowed",
            ),
            ("? [a, b]\n: 1", 1, "a key must be plain text"),
            ("a: &x {b: 1}\nc:\n  <<: *x", 3, "merge keys (<<) are not part of YAML 1.2"),
            (f"a: 1\nb: {'9' * 5000}", 2, "a whole number with too many digits"),
        ],
    )
    def test_invalid_text_is_refused_with_its_line(self, text: str, line: int, message: str) -> None:
        (problem,) = problems(text)
        assert problem.line == line
        assert message in problem.message

    def test_a_duplicate_key_is_reported_with_both_lines(self) -> None:
        assert the_problem("title: a\nparts:\n  - name: p\n    count: 1\n    name: q\n") == (
            "line 5: parts[0].name: given twice, first on line 3"
        )

    @pytest.mark.parametrize("text", ["", "  \n", "# only a comment\n", "---\n", "null"])
    def test_an_empty_document_is_reported(self, text: str) -> None:
        assert the_problem(text) == "is empty, expected a mapping of fields"

    @pytest.mark.parametrize("text", ["[]", "5", "text"])
    def test_a_document_of_another_type_is_reported_with_the_expected_one(self, text: str) -> None:
        assert the_problem(text).startswith("line 1: expected a mapping of fields")


class TestHostileText:
    """Each text is refused within one second of CPU time."""

    @pytest.fixture(autouse=True)
    def _quick(self) -> Any:
        before_s = time.process_time()
        yield
        assert time.process_time() - before_s < 1

    def test_aliases_that_grow_exponentially_are_refused(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 40)]
        problem = the_problem("\n".join(lines))
        assert problem == f"line 6: a5: holds more than {MAX_VALUES:,} values"

    @pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
    def test_deep_nesting_is_refused(self, opening: str) -> None:
        assert the_problem(opening * 100_000) == f"line 1: nested deeper than {MAX_DEPTH} levels"

    def test_the_deepest_allowed_nesting_is_read(self) -> None:
        assert parse_document("[" * MAX_DEPTH + "]" * MAX_DEPTH, name="x").line_of(()) == 1


class TestRefusedValues:
    @pytest.mark.parametrize(
        ("field", "message"),
        [
            ("count: yes", "expected a whole number, got 'yes'"),
            ("count: true", "expected a whole number, got True"),
            ("count: '3'", "expected a whole number, got '3'"),
            ("count: 3.0", "expected a whole number, got 3.0"),
            ("count: null", "expected a whole number"),
            ("count: [3]", "expected a whole number"),
            ("weight_kg: heavy", "expected a number, got 'heavy'"),
            ("weight_kg: false", "expected a number, got False"),
            ("weight_kg: .nan", "expected a finite number, got nan"),
            ("weight_kg: .inf", "expected a finite number, got inf"),
            ("weight_kg: 0", "input should be greater than 0, got 0"),
            ("weight_kg: 1_000", "expected a number, got '1_000'"),
            ("sizes: 3", "expected a list, got 3"),
            ("spare: on", "expected true or false, got 'on'"),
            ("spare: 1", "expected true or false, got 1"),
            ("name: 12", "expected text (a number or true/false meant as text needs quotes), got 12"),
            ("name: true", "expected text (a number or true/false meant as text needs quotes), got True"),
            ("nmae: p", "is not a known field"),
        ],
    )
    def test_a_value_of_a_wrong_type_is_reported_with_the_expected_one(self, field: str, message: str) -> None:
        name = field.partition(":")[0]
        assert the_problem(f"title: a\nparts:\n  - {field}") == f"line 3: parts[0].{name}: {message}"

    def test_numbers_in_lists_and_mappings_are_strict_too(self) -> None:
        found = problems("title: a\nparts: [{sizes: [1, '2']}]\nby_name: {x: 1, y: yes}\n")
        assert [problem.path for problem in found] == ["parts[0].sizes[1]", "by_name.y"]

    def test_an_invalid_choice_is_reported_with_the_allowed_values(self) -> None:
        assert "should be 'red', got 'blue'" in the_problem("title: a\ncolour: blue")

    @pytest.mark.parametrize("value", ["20261101", "yesterday", "2026-13-01", "true"])
    def test_an_invalid_date_is_refused(self, value: str) -> None:
        assert the_problem(f"title: a\nmade_on: {value}").startswith("line 2: made_on: ")


class TestRules:
    def test_a_rule_error_is_reported_with_lines_and_paths(self) -> None:
        class Pair(Frozen):
            low: int
            high: int

            @model_validator(mode="after")
            def _in_order(self) -> "Pair":
                RuleError.raise_for(
                    [(("high",), "is below low"), ((), "is out of order")] if self.high < self.low else []
                )
                return self

        class Pairs(Frozen):
            pairs: tuple[Pair, ...]

        document = parse_document("pairs:\n  - {low: 1, high: 2}\n  - low: 2\n    high: 1\n", name="x")
        with pytest.raises(DocumentError) as caught:
            read_model(document, Pairs)
        assert [str(problem) for problem in caught.value.problems] == [
            "line 4: pairs[1].high: is below low",
            "line 3: pairs[1]: is out of order",
        ]

    def test_an_ordinary_value_error_keeps_its_message(self) -> None:
        class Odd(Frozen):
            number: int

            @model_validator(mode="after")
            def _is_odd(self) -> "Odd":
                if self.number % 2 == 0:
                    raise ValueError("Number must be odd")
                return self

        with pytest.raises(ValidationError) as caught:
            Odd(number=2)
        assert item_problems(caught.value.errors()) == [((), "number must be odd")]

    def test_a_rule_error_is_a_fleetwright_error_with_a_joined_message(self) -> None:
        error = RuleError([(("a", 0), "is wrong"), ((), "is odd")])
        assert isinstance(error, FleetwrightError)
        assert str(error) == "a[0]: is wrong; is odd"


def test_an_invalid_entry_is_not_also_reported_as_a_missing_one() -> None:
    class Box(Frozen):
        parts: tuple[Part, ...] = Field(min_length=1)

    with pytest.raises(DocumentError) as caught:
        read_model(parse_document("parts: [{count: 99}]", name="box.yaml"), Box)
    assert [problem.path for problem in caught.value.problems] == ["parts[0].count"]
    with pytest.raises(DocumentError, match=r"parts: .*expected at least one"):
        read_model(parse_document("parts: []", name="box.yaml"), Box)


class TestFrozen:
    def test_a_frozen_model_cannot_be_changed(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            Part().count = 2  # type: ignore[misc]

    def test_other_pydantic_models_stay_lax(self) -> None:
        class Lax(BaseModel):
            count: int

        assert Lax.model_validate({"count": "3"}).count == 3

    @pytest.mark.parametrize("made_on", [1700000000, "1700000000", True, 1.5])
    def test_a_date_is_not_a_number(self, made_on: object) -> None:
        with pytest.raises(ValidationError, match="expected a date in ISO 8601"):
            Thing.model_validate({"title": "x", "made_on": made_on})

    def test_the_schema_may_be_built_many_times(self) -> None:
        """pydantic returns the schema of an inner model many times; the additions to it happen once."""
        for _ in range(300):
            TypeAdapter(list[Thing])
        assert TypeAdapter(list[Thing]).validate_python([{"title": "x", "made_on": "2026-11-21"}])[0].made_on

    def test_the_json_schema_has_no_additions(self) -> None:
        assert Part.model_json_schema()["properties"]["count"] == {
            "default": 1,
            "maximum": 9,
            "minimum": 1,
            "title": "Count",
            "type": "integer",
        }


def test_paths_are_written_with_dots_and_indices() -> None:
    assert dotted(("offers", 3, "price")) == "offers[3].price"
    assert dotted((3, "a")) == "[3].a"
    assert dotted(()) == ""
