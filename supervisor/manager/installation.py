"""The secret of one installation: what makes its fingerprints, which are shown to people.

Kept in the state directory, so that a fingerprint is the same after a restart of the daemon.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from supervisor.core.errors import KernelError

KEY_BYTES: Final = 32
FILE: Final = "fingerprint.key"


def installation_key(state_dir: str) -> bytes:
    """The key of this installation, made at its first start.

    Raises:
        KernelError: it can be neither read nor written.
    """
    path = Path(state_dir) / FILE
    try:
        with suppress(FileNotFoundError):
            key = path.read_bytes()
            if len(key) == KEY_BYTES:
                return key
        key = secrets.token_bytes(KEY_BYTES)
        fresh = path.with_name(f"{FILE}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
        fresh.replace(path)
    except OSError as error:
        text = f"The key in {path} cannot be used: {error.strerror}."
        raise KernelError(text) from error
    return key
