"""The YAML dialect: plain values, and the place of every key and value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.source.places import FileFaults, Place
from testbed.source.reader import MAX_BYTES, Document, lookup, parse, read_text


def _value(text: str) -> Any:
    document = parse(text, "file.yaml")
    assert not document.faults
    return document.value


def _fault(text: str) -> str:
    document = parse(text, "file.yaml")
    assert document.faults, "no fault was found"
    return str(document.faults[0])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("1:30.5", "1:30.5"),
        ("0755", "0755"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("2026-12-01", "2026-12-01"),
        (".inf", ".inf"),
        ("1e", "1e"),
        ("+", "+"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("0", 0),
        ("-17", -17),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-2.5E-3", -0.0025),
        ("'true'", "true"),
        ('"12"', "12"),
    ],
)
def test_scalars_are_what_they_look_like(written: str, meant: object) -> None:
    """TC47: `on`, `no`, `12:30` and `0755` never turn into something else."""
    value = _value(f"key: {written}")["key"]
    assert value == meant
    assert type(value) is type(meant)


def test_every_key_and_value_has_its_place() -> None:
    document = parse("tasks:\n  - wait: 2 s\n    name: pause\n", "a.yaml")
    assert document.place(("tasks", 0, "wait")) == Place("a.yaml", 2, 11)
    assert document.key_place(("tasks", 0, "name")) == Place("a.yaml", 3, 5)
    assert document.place(("tasks", 0)) == Place("a.yaml", 2, 5)
    # What is not there is reported where it should be.
    assert document.place(("tasks", 0, "until")) == Place("a.yaml", 2, 5)


def test_duplicate_keys_name_both_places() -> None:
    """TC46."""
    assert "given twice; the first stands in line 1, column 1" in _fault("a: 1\nb: 2\na: 3\n")


def test_all_faults_are_found_not_only_the_first() -> None:
    document = parse("a: 1\na: 2\n'': 3\nb: !!int 4\n? [x]\n: 5\n", "file.yaml")
    assert [fault.place.line for fault in document.faults] == [2, 3, 5]


def test_aliases_are_values_at_the_place_of_the_alias() -> None:
    document = parse("a: &ring [host0, host1]\nb: *ring\n", "file.yaml")
    assert document.value["b"] == ["host0", "host1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n---\nb: 2\n", "second document"),
        ("a:\n\t- b\n", "tab in the indentation"),
        ("<<: {a: 1}\n", "merge keys"),
        ("a: !!python/name:os.system x\n", "tag"),
        ("a: !mine x\n", "tag"),
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("a: b: c\n", "colon"),
        ("a: [1, 2\nb: 3\n", "not closed"),
        ("a: 'open\n", "never closed"),
        ("a: \x01\n", "character"),
        ("a: @host\n", "cannot begin"),
        ("a: 1e999\n", "finite"),
        ("[a, b]: c\n", "where a key should"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    assert words in _fault(text)


def test_aliases_cannot_make_a_small_file_large() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for n in range(1, 8):
        lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]")
    assert "too large" in _fault("\n".join(lines))


def test_an_alias_of_itself_ends() -> None:
    assert "too large or nested too deeply" in _fault("a: &a [*a]\n")


def test_depth_is_limited() -> None:
    assert "nested too deeply" in _fault("a: " + "[" * 90 + "]" * 90)
    assert "nested too deeply" in _fault("[" * 20_000)


def test_hidden_texts_are_shown_nowhere() -> None:
    document = parse("password: hunter2\n", "file.yaml")
    document.hidden.add("hunter2")
    document.fault(document.place(("password",)), "'hunter2' is no good")
    assert "hunter2" not in str(document.faults[0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: path.mkdir(), "folder"),
        (lambda path: path.write_bytes(b"a: \xff\n"), "not UTF-8"),
        (lambda path: path.write_bytes(b"#" * (MAX_BYTES + 1)), "larger than 4 MiB"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, make: Any, words: str) -> None:
    path = tmp_path / "file.yaml"
    make(path)
    with pytest.raises(FileFaults, match=words) as caught:
        read_text(path)
    assert caught.value.diagnostics[0].place.file == str(path)


def test_a_misspelt_file_name_has_a_hint(tmp_path: Path) -> None:
    (tmp_path / "failover.yaml").write_text("a: 1")
    with pytest.raises(FileFaults, match=r"did you mean .*failover\.yaml"):
        read_text(tmp_path / "failovr.yaml")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert parse(read_text(path), str(path)).value == {"a": 1}


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("ab:-[]{}\"'#&*!|>%@`,? \n\t<0.1~\\")), max_size=60))
def test_any_text_gives_values_or_faults(text: str) -> None:
    document = parse(text, "fuzz.yaml")
    _is_whole(document, text)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_give_values_or_faults(tmp_path_factory: Any, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(raw)
    try:
        document = parse(read_text(path), str(path))
    except FileFaults:
        return
    _is_whole(document, document.text)


def _is_whole(document: Document, text: str) -> None:
    """Faults have places in the file; without faults, every value has a place of its own."""
    lines = text.count("\n") + 1 + sum(text.count(c) for c in "\r\x85\u2028\u2029")
    for fault in document.faults:
        assert 1 <= fault.place.line <= lines + 1
        assert str(fault)
    if not document.faults:
        _has_places(document, document.value, ())


def _has_places(document: Document, value: Any, path: tuple[str | int, ...]) -> None:
    assert lookup(document.value, path) is value or path == ()
    assert document.place(path).line >= 1
    children: Any = ()
    if isinstance(value, dict | list):
        children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in children:
        _has_places(document, item, (*path, key))
