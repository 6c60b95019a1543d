"""Reads a YAML file into plain values and the place of every key and value.

The dialect is the YAML 1.2 core schema, read by PyYAML's parser: ``on``, ``no``, ``12:30`` and
``0755`` are strings, as they look; only ``true`` and ``false`` are booleans. Duplicate keys,
merge keys, tags, several documents and keys that are no strings are faults.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from testbed.source.places import Diagnostic, FileFaults, Place
from testbed.source.syntax import explain

MAX_BYTES = 4 * 1024 * 1024
MAX_NODES = 500_000  # aliases can make a small file large
MAX_DEPTH = 60

KeyPath = tuple[str | int, ...]

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _CoreLoader(_BASE):  # type: ignore[misc]
    """PyYAML's parser with the core schema of YAML 1.2 instead of that of 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own attribute


_NULL, _BOOL, _INT, _FLOAT, _STR = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")
)
_CoreLoader.add_implicit_resolver(
    _NULL, re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_CoreLoader.add_implicit_resolver(
    _BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_CoreLoader.add_implicit_resolver(
    _INT, re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
_CoreLoader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


@dataclass
class Document:
    """A file as values, with the places of its keys and values.

    :ivar value: mappings, lists and scalars.
    :ivar faults: found while reading; the reader goes on after a fault where it can.
    :ivar hidden: texts that no message may show.
    """

    file: str
    text: str
    value: Any = None
    faults: list[Diagnostic] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    _values: dict[KeyPath, Place] = field(default_factory=dict)
    _keys: dict[KeyPath, Place] = field(default_factory=dict)

    def place(self, path: KeyPath) -> Place:
        """Where the value at that path stands; of the nearest parent that exists otherwise."""
        while path and path not in self._values:
            path = path[:-1]
        return self._values.get(path, Place(self.file, 1, 1))

    def key_place(self, path: KeyPath) -> Place:
        """Where the key stands that leads to that path."""
        return self._keys.get(path) or self.place(path)

    def fault(self, place: Place, message: str, hint: str = "") -> None:
        """Add a fault, with the line it is in."""
        lines = self.text.splitlines()
        excerpt = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
        for text in self.hidden:
            excerpt = excerpt.replace(text, "*" * len(text))
            message = message.replace(text, "***")
        self.faults.append(Diagnostic(place, message, excerpt[:200], hint))

    def check(self) -> None:
        """:raises FileFaults: when there are any faults."""
        if self.faults:
            raise FileFaults(self.faults)


def read_text(path: Path) -> str:
    """The text of a user's file. :raises FileFaults: when it cannot be read as UTF-8 text."""
    place = Place(str(path), 1, 1)

    def refuse(message: str, hint: str = "") -> FileFaults:
        return FileFaults([Diagnostic(place, message, "", hint)])

    try:
        if path.is_dir():
            raise refuse("this is a folder, not a file", "name the YAML file itself")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        near = _similar_file(path)
        raise refuse("there is no such file", f"did you mean {near}?" if near else "") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refuse(f"the file cannot be read: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise refuse(f"the file is larger than {MAX_BYTES // 2**20} MiB", "is it the right one?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = Diagnostic(
            Place(str(path), line, 1), "the file is not UTF-8 text", "", "save it as UTF-8"
        )
        raise FileFaults([bad]) from None


def parse(text: str, file: str) -> Document:
    """Read YAML text. Faults are collected in the document; a syntax error ends the reading."""
    document = Document(file, text)
    try:
        node = _compose(text)
    except yaml.YAMLError as error:
        wrong = explain(error, text)
        document.fault(Place(file, wrong.line, wrong.column), wrong.message, wrong.hint)
        return document
    except RecursionError:
        document.fault(Place(file, 1, 1), "the file is nested too deeply")
        return document
    if node is None:
        document.fault(Place(file, 1, 1), "the file is empty")
        return document
    document.value = _Builder(document).build(node, (), 0)
    return document


def _compose(text: str) -> yaml.Node | None:
    loader = _CoreLoader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


class _Builder:
    """Values out of nodes, with places."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._count = 0

    def _place(self, node: yaml.Node) -> Place:
        mark = node.start_mark
        return Place(self._document.file, mark.line + 1, mark.column + 1)

    def build(self, node: yaml.Node, path: KeyPath, depth: int) -> Any:
        place = self._place(node)
        self._document._values.setdefault(path, place)
        self._count += 1
        if self._count > MAX_NODES or depth > MAX_DEPTH:
            if self._count <= MAX_NODES + 1:
                self._document.fault(place, "the file is too large or nested too deeply")
                self._count = MAX_NODES + 1
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != "tag:yaml.org,2002:seq":
                self._tag(node, place)
            return [self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        return self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> dict[str, Any]:
        document = self._document
        if node.tag != "tag:yaml.org,2002:map":
            self._tag(node, self._place(node))
        built: dict[str, Any] = {}
        seen: dict[str, Place] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                document.fault(
                    place,
                    "a list or mapping stands where a key should",
                    'quote expressions, as in key: "{{ name }}"',
                )
                continue
            key = str(key_node.value)
            if key == "<<" and not key_node.style:
                document.fault(place, "merge keys (<<) are not allowed", "write the keys out")
                continue
            if not key:
                document.fault(place, "this key is empty", "write key: value")
                continue
            if key in seen:
                document.fault(
                    place,
                    f"key {key!r} is given twice; the first stands in line {seen[key].line}, "
                    f"column {seen[key].column}",
                    "keep one of them",
                )
                continue
            seen[key] = place
            document._keys[(*path, key)] = place
            built[key] = self.build(value_node, (*path, key), depth + 1)
        return built

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        text = str(node.value)
        match node.tag:
            case "tag:yaml.org,2002:null":
                return None
            case "tag:yaml.org,2002:bool":
                return text.lower() == "true"
            case "tag:yaml.org,2002:int":
                if len(text) > 300:
                    self._document.fault(place, "this number is too long")
                    return None
                return int(text)
            case "tag:yaml.org,2002:float":
                number = float(text)
                if not math.isfinite(number):
                    self._document.fault(place, f"{text} is no finite number")
                    return None
                return number
            case "tag:yaml.org,2002:str":
                return text
        self._tag(node, place)
        return text

    def _tag(self, node: yaml.Node, place: Place) -> None:
        self._document.fault(
            place, f"tag {node.tag!r} is not allowed", "write the value without a tag"
        )


def _similar_file(path: Path) -> str | None:
    import difflib

    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml")]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, n=1)
    return str(path.parent / near[0]) if near else None


def lookup(value: Any, path: KeyPath) -> Any:
    """The value at that path. :raises LookupError: when there is none."""
    for key in path:
        if isinstance(value, Mapping):
            value = value[str(key)]
        elif isinstance(value, list) and isinstance(key, int):
            value = value[key]
        else:
            raise LookupError(path)
    return value
