"""Secrets are references until the moment of use, and nothing shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from testbed.errors import RackError
from testbed.rack.secrets import Secret, SecretRef


class Options(BaseModel):
    password: Secret


def test_a_secret_is_resolved_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = Options.model_validate({"password": "env:SWITCH_PASSWORD"})
    with pytest.raises(RackError, match=r"SWITCH_PASSWORD.*not set"):
        options.password.resolve()
    monkeypatch.setenv("SWITCH_PASSWORD", "hunter2")
    assert options.password.resolve() == "hunter2"
    file = tmp_path / "secret"
    file.write_text("hunter3\n")
    assert SecretRef.parse(f"file:{file}").resolve() == "hunter3"
    for shown in (repr(options), str(options), options.model_dump_json()):
        assert "hunter" not in shown
        assert "SWITCH_PASSWORD" in shown


def test_a_literal_is_refused_without_being_repeated() -> None:
    with pytest.raises(ValidationError) as caught:
        Options.model_validate({"password": "hunter2"})
    assert "by reference only" in caught.value.errors()[0]["msg"]
    with pytest.raises(ValueError, match="env:NAME") as parse:
        SecretRef.parse("hunter2")
    assert "hunter2" not in str(parse.value)


def test_references_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(RackError, match="No such file"):
        SecretRef.parse(f"file:{tmp_path / 'none'}").resolve()
