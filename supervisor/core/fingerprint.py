"""What tells one connection from another: a digest of all that its process or handshake sees.

Equal fingerprints mean that a running instance may be kept, with its pid and its handshake. Time
limits, filters, restart and stop policy are not in it: they apply to what is running.

A fingerprint is shown to people and kept in files. Values of arguments and variables therefore
enter through a keyed hash: without the key, nobody can try guesses of a secret against it.
Source: design section 10.
"""

import hmac
import json
from hashlib import sha256

from supervisor.core.launch import LaunchSpec


def connection_fingerprint(
    launch: LaunchSpec, protocol: str, key: bytes, *, scope: str = "session"
) -> str:
    """The fingerprint of the connection that `launch` would make.

    Args:
        launch: how the server is started; with the client's working directory in it where the
            record names none, since the process sees that one.
        protocol: which revisions are offered: `auto`, `legacy` or `modern`.
        scope: whether one session has it or all share it; one cannot become the other.
        key: random bytes of this installation, 32 of them; another key, other fingerprints.

    Returns:
        64 lower-case hexadecimal digits: SHA-256 over canonical JSON.
    """

    def hidden(value: str) -> str:
        # what is no UTF-8 in the daemon's environment comes as lone surrogates
        return hmac.digest(key, value.encode("utf-8", "surrogatepass"), sha256).hex()

    seen = {
        "argv": [hidden(word) for word in launch.argv],
        "cwd": launch.cwd,
        "env": {name: hidden(value) for name, value in launch.env.items()},
        "gid": launch.gid,
        "groups": sorted(set(launch.groups)),
        "no_new_privileges": launch.no_new_privileges,
        "protocol": protocol,
        "uid": launch.uid,
    }
    if scope != "session":
        seen["scope"] = scope  # only here, so that what was known before keeps its fingerprint
    return sha256(canonical(seen)).hexdigest()


def canonical(value: object) -> bytes:
    """Canonical JSON of plain values: equal bytes for equal meaning, in any order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
