"""Private splits: what only the owner of a secret text can make, and tell from public tasks."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from wanderlust.errors import UsageError, one_line


def read_secret(file: Path) -> str:
    """The owner's secret text in a file. Raises UsageError in one line where there is none."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"the secret {file} cannot be read: {one_line(str(error))}") from None
    if not text:
        raise UsageError(f"the secret {file} is empty: write a line of random text into it")
    return text


def secret_digests(secret: str, about: str, count: int) -> list[str]:
    """`count` different digests (hexadecimal, SHA-256) that nobody can make without the secret."""
    return [
        hmac.new(secret.encode(), f"{about}/{number}".encode(), hashlib.sha256).hexdigest() for number in range(count)
    ]
