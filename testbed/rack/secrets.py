"""Secrets by reference. A rack file names where a secret is, never the secret itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from testbed.errors import RackError

SCHEMES = ("env", "file", "keyring")
ALLOWED = "env:NAME, file:PATH or keyring:SERVICE/USER"


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret is. Its text and repr show the reference only."""

    scheme: str
    location: str

    def __str__(self) -> str:
        return f"{self.scheme}:{self.location}"

    @classmethod
    def parse(cls, text: Any) -> SecretRef:
        """Read a reference. The message never repeats what was given: it may be the secret.

        :raises ValueError: for anything that is no reference.
        """
        if isinstance(text, SecretRef):
            return text
        scheme, colon, location = str(text).partition(":")
        if scheme not in SCHEMES or not colon or not location:
            raise ValueError(f"a secret is given by reference only: {ALLOWED}")
        return cls(scheme, location)

    def resolve(self) -> str:
        """Fetch the secret. :raises RackError: naming the reference when it leads nowhere."""
        match self.scheme:
            case "env":
                value = os.environ.get(self.location)
                if value is None:
                    raise RackError(
                        f"secret {self}: this environment variable is not set",
                        remedy=f"export {self.location}=…",
                    )
                return value
            case "file":
                try:
                    return Path(self.location).expanduser().read_text().rstrip("\n")
                except OSError as error:
                    raise RackError(f"secret {self}: {error.strerror}") from None
        return _from_keyring(self)


def _from_keyring(reference: SecretRef) -> str:
    service, _, user = reference.location.partition("/")
    try:
        import keyring  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise RackError(
            f"secret {reference}: the package keyring is not installed",
            remedy="pip install keyring, or use env: or file:",
        ) from None
    value = keyring.get_password(service, user)
    if value is None:
        raise RackError(f"secret {reference}: the keyring has no such entry")
    return str(value)


Secret = Annotated[
    SecretRef,
    BeforeValidator(SecretRef.parse),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": "^(env|file|keyring):.+"}),
]
"""Type of a driver option that is a secret."""

_NAMES = frozenset(
    {"password", "passwd", "passphrase", "secret", "token", "community", "private_key", "api_key"}
)
"""Names of keys that must hold references, whatever the driver thinks of them."""


def is_literal_secret(key: str, value: Any) -> bool:
    """Whether this entry of a rack file holds a secret itself."""
    if key.lower() not in _NAMES or value is None or isinstance(value, dict | list):
        return False
    return str(value).partition(":")[0] not in SCHEMES
