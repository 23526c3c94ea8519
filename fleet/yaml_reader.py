"""YAML text to plain values and the line of each, by the core schema of YAML 1.2 (yaml.org/spec/1.2.2, 10.3).

PyYAML resolves YAML 1.1: there `NO` is false, `12:30` is 750, `2026-11-01` a date and JSON's own `1e9` a string.  This
reader returns text, text, text and a number, so that every JSON document has its JSON meaning.  The reader rejects
duplicate keys, tags, and documents that are too deep or expand too far through aliases, before it builds them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 64
MAX_VALUES = 1_000_000  # each use of an alias counts the values behind it

_INT = re.compile(r"[-+]?[0-9]+")
_RADIX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TAB_INDENT = re.compile(r" *\t")
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a value: its 1-based line, and the places of its parts."""

    line: int
    inside: Mapping[str | int, "Place"] = field(default_factory=dict)


class YamlDefectError(Exception):
    """The text is not an acceptable document."""

    def __init__(self, message: str, *, path: tuple[str | int, ...] = (), line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line


def load_yaml(text: str) -> tuple[Any, Place]:
    """The one document in the text, and the places of its values.  Empty text gives None."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times faster and accepts tabs in JSON
    try:
        return _Reader(iter(yaml.parse(text, Loader=loader))).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _syntax_defect(text, str(error.problem), mark.line + 1 if mark else None) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _syntax_defect(text, f"character U+{error.character:04X} is not allowed", line) from error
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise _syntax_defect(text, "not encodable as UTF-8", text.count("\n", 0, error.start) + 1) from error


def _syntax_defect(text: str, problem: str, line: int | None) -> YamlDefectError:
    message = f"not valid YAML or JSON: {problem}"
    if line is not None and _TAB_INDENT.match([*text.splitlines(), ""][line - 1]):
        message += "; indent with spaces, not tabs"
    return YamlDefectError(message, line=line)


@dataclass(frozen=True, slots=True)
class _Value:
    data: Any
    place: Place
    size: int


class _Reader:
    """Builds values from parser events, so that the depth and size checks come before construction."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchored: dict[str, _Value] = {}

    def document(self) -> tuple[Any, Place]:
        next(self._events)  # StreamStart
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None, Place(1)
        value = self._value(next(self._events), path=())
        next(self._events)  # DocumentEnd
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise YamlDefectError("holds a second document, expected one", line=_line(following))
        return value.data, value.place

    def _value(self, event: Any, *, path: tuple[str | int, ...]) -> _Value:
        if len(path) > MAX_DEPTH:
            raise YamlDefectError(f"nested deeper than {MAX_DEPTH} levels", line=_line(event))
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, path=path)
        if event.tag not in (None, "!"):
            raise YamlDefectError(f"tag {event.tag!r} is not allowed", path=path, line=_line(event))
        if isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(event, path=path)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(event, path=path)
        else:
            value = _Value(_scalar(event, path=path), Place(_line(event)), 1)
        if value.size > MAX_VALUES:
            raise YamlDefectError(f"holds more than {MAX_VALUES:,} values", path=path, line=_line(event))
        if event.anchor is not None:
            self._anchored[event.anchor] = value
        return value

    def _aliased(self, event: yaml.AliasEvent, *, path: tuple[str | int, ...]) -> _Value:
        value = self._anchored.get(event.anchor or "")
        if value is None:
            message = f"alias *{event.anchor} names no anchor that was completed before it"
            raise YamlDefectError(message, path=path, line=_line(event))
        return _Value(value.data, Place(_line(event), value.place.inside), value.size)

    def _sequence(self, start: Any, *, path: tuple[str | int, ...]) -> _Value:
        items: list[_Value] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, path=(*path, len(items))))
        inside: dict[str | int, Place] = {index: item.place for index, item in enumerate(items)}
        return _Value([item.data for item in items], Place(_line(start), inside), 1 + sum(item.size for item in items))

    def _mapping(self, start: Any, *, path: tuple[str | int, ...]) -> _Value:
        data: dict[str, Any] = {}
        inside: dict[str | int, Place] = {}
        size = 1
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, line = _key(event, path=path), _line(event)
            if key in data:
                first = inside[key].line
                raise YamlDefectError(f"given twice, first on line {first}", path=(*path, key), line=line)
            value = self._value(next(self._events), path=(*path, key))
            data[key] = value.data
            inside[key] = Place(line, value.place.inside)
            size += value.size
        return _Value(data, Place(_line(start), inside), size)


def _key(event: Any, *, path: tuple[str | int, ...]) -> str:
    """Keys are the text as written, because JSON has no other keys."""
    if not isinstance(event, yaml.ScalarEvent) or event.tag not in (None, "!"):
        raise YamlDefectError("a key must be plain text", path=path, line=_line(event))
    if event.value == "<<" and event.implicit[0]:
        raise YamlDefectError("merge keys (<<) are not part of YAML 1.2", path=path, line=_line(event))
    return str(event.value)


def _scalar(event: yaml.ScalarEvent, *, path: tuple[str | int, ...]) -> Any:
    text: str = event.value
    if event.tag is not None or not event.implicit[0]:  # quoted, so text
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _FLOAT.fullmatch(text) and not _INT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", "", 1))
    return _whole_number_or_text(text, path=path, line=_line(event))


def _whole_number_or_text(text: str, *, path: tuple[str | int, ...], line: int) -> int | str:
    try:
        if _INT.fullmatch(text):
            return int(text)
        return int(text, 0) if _RADIX.fullmatch(text) else text
    except ValueError as error:  # Python limits the digits
        raise YamlDefectError("a whole number with too many digits", path=path, line=line) from error


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def dump_yaml(data: Any) -> str:
    """Plain values as ASCII YAML with one meaning in 1.1 and 1.2: text that either would resolve is quoted."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120)


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, which knows what 1.1 resolves, extended by what 1.2 resolves."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Equal objects are written out each time."""
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Text of several lines keeps its lines where YAML can."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(rf"({_FLOAT.pattern})$"), [*"-+.0123456789"])
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(rf"({_RADIX.pattern})$"), ["0"])
