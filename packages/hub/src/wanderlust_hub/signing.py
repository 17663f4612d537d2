"""SSH signatures, made and checked by `ssh-keygen -Y` in a process of its own.

Not covered: whether a key belongs to the person who shows it. Compare fingerprints over another channel.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from wanderlust.errors import UsageError, one_line
from wanderlust_hub.entry import HubError

RECORD, INDEX = "wanderlust-record", "wanderlust-index"
"""Namespaces: a signature of one kind is none of the other."""
SIGNER = "signer"
BEGIN, END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
ARMOR_COLUMNS = 70
MAX_SECONDS = 120
"""Wall-clock seconds for a signature: a person may have to type a passphrase or touch a device."""


def _ssh_keygen(*words: str, body: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *words], input=body, capture_output=True, check=False, timeout=MAX_SECONDS)
    except FileNotFoundError:
        raise HubError("ssh-keygen is not on this machine: install OpenSSH's client (openssh-client)") from None
    except subprocess.TimeoutExpired:
        raise HubError(f"ssh-keygen gave no answer within {MAX_SECONDS} s") from None


def public_key(key: Path) -> str:
    """Type and body of a key, without its comment; `key` is a private key or its `.pub` file."""
    beside = key if key.suffix == ".pub" else key.with_name(key.name + ".pub")
    if not key.is_file():
        raise UsageError(f"there is no key {key}: make one with `ssh-keygen -t ed25519 -f {key}`")
    if beside.is_file():
        text = beside.read_text(encoding="utf-8", errors="replace")
    else:
        done = _ssh_keygen("-y", "-f", str(key))
        text = done.stdout.decode(errors="replace")
    words = text.split()
    if len(words) < 2 or not re.fullmatch(r"[A-Za-z0-9+/]{40,}={0,2}", words[1]):
        raise UsageError(f"{key} is no SSH key that can be read")
    return " ".join(words[:2])


def fingerprint(key: str) -> str:
    """`SHA256:…` of a public key, as `ssh-keygen -l` prints it."""
    try:
        body = base64.b64decode(key.split()[1], validate=True)
    except (ValueError, IndexError):
        raise HubError("a public key of the hub is damaged") from None
    return "SHA256:" + base64.b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")


def sign(body: bytes, key: Path, *, namespace: str) -> str:
    """Sign bytes; returns the signature in base64, without the lines around it."""
    with TemporaryDirectory(prefix="wander-sign-") as folder:
        file = Path(folder) / "body"
        file.write_bytes(body)
        done = _ssh_keygen("-Y", "sign", "-f", str(key), "-n", namespace, str(file))
        signature = file.with_name("body.sig")
        if done.returncode or not signature.is_file():
            why = one_line(done.stderr.decode(errors="replace"), 200)
            raise UsageError(f"{key} cannot sign: {why or 'ssh-keygen failed'}")
        text = signature.read_text()
    return "".join(text.replace(BEGIN, "").replace(END, "").split())


def is_signed(body: bytes, signature: str, *, key: str, namespace: str) -> bool:
    """Whether the holder of a public key signed these bytes. Other spellings of the base64 are refused."""
    try:
        if base64.b64encode(base64.b64decode(signature, validate=True)).decode() != signature:
            return False
    except ValueError:
        return False
    lines = [signature[at : at + ARMOR_COLUMNS] for at in range(0, len(signature), ARMOR_COLUMNS)]
    with TemporaryDirectory(prefix="wander-verify-") as folder:
        signers, file = Path(folder) / "signers", Path(folder) / "signature"
        signers.write_text(f'{SIGNER} namespaces="{namespace}" {key}\n')
        file.write_text("\n".join([BEGIN, *lines, END, ""]))
        words = ("-Y", "verify", "-f", str(signers), "-I", SIGNER, "-n", namespace, "-s", str(file))
        return _ssh_keygen(*words, body=body).returncode == 0
