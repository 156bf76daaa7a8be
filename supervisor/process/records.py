"""What a daemon leaves for the next one: a record of each instance, and its relay's receipt.

`instances/<id>.json` is written before the spawn and completed at `hello`; `<id>.receipt` is
empty until a relay that ends its family without a daemon writes its last word there. Both are
removed when the family is confirmed gone. Pids mean nothing in another boot or pid namespace, so
both are in the record.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from supervisor.core.attribution import Identity
from supervisor.core.ids import InstanceId, ServerName, SessionKey, is_instance_id
from supervisor.linux.processes import boot_id, pid_namespace

RECORD_SUFFIX: Final = ".json"
RECEIPT_SUFFIX: Final = ".receipt"
VERSION: Final = 1

RECORD_BYTES: Final = 1024
"""Each record is padded with blanks, so that the complete one covers the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One instance as the next start finds it; pids and starts are None before `hello`."""

    version: int = VERSION
    instance: str
    server: str
    session: str | None
    boot_id: str
    pid_namespace: int
    daemon_pid: int
    deadline_s: float
    kill_after_s: float
    relay: tuple[int, int] | None = None
    anchor: tuple[int, int] | None = None
    process: tuple[int, int] | None = None

    def identities(self) -> dict[str, Identity]:
        """Role to identity, as far as the record is complete."""
        roles = {"relay": self.relay, "anchor": self.anchor, "server": self.process}
        return {role: Identity(*pair) for role, pair in roles.items() if pair is not None}

    @property
    def here(self) -> bool:
        """Whether its pids mean anything in this boot and pid namespace."""
        return (self.boot_id, self.pid_namespace) == (boot_id(), pid_namespace())


class Records:
    """The directory of records; blocking calls on small files, 0.05 ms each."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._boot_id = boot_id()
        self._pid_namespace = pid_namespace()

    def create(
        self,
        instance: InstanceId,
        server: ServerName,
        session: SessionKey | None,
        *,
        deadline_s: float,
        kill_after_s: float,
    ) -> tuple[Record, int]:
        """Write the record of a spawn that is about to happen.

        Returns:
            The record, and a descriptor of the receipt's file for the relay.

        Raises:
            OSError: the runtime directory cannot be written.
        """
        record = Record(
            instance=instance,
            server=server,
            session=session,
            boot_id=self._boot_id,
            pid_namespace=self._pid_namespace,
            daemon_pid=os.getpid(),
            deadline_s=deadline_s,
            kill_after_s=kill_after_s,
        )
        # a cleaner of temporary directories may have taken it while the daemon ran
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write(record)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return record, os.open(self._path(instance, RECEIPT_SUFFIX), flags, 0o600)

    def write(self, record: Record) -> None:
        """Write a record in one system call: a killed daemon leaves the old or the new one."""
        content = json.dumps(asdict(record)).encode().ljust(RECORD_BYTES)
        path = self._path(InstanceId(record.instance), RECORD_SUFFIX)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.pwrite(fd, content, 0)
        finally:
            os.close(fd)

    def remove(self, instance: InstanceId) -> None:
        """Forget an instance; nothing of it is left, or an operator gave it up."""
        for suffix in (RECORD_SUFFIX, RECEIPT_SUFFIX):
            self._path(instance, suffix).unlink(missing_ok=True)

    def read_all(self) -> tuple[Record, ...]:
        """All records that can be read, by id; what cannot be read is not ours to guess about."""
        records = []
        for path in sorted(self._directory.glob("*" + RECORD_SUFFIX)):
            record = self._read(path)
            if record is not None:
                records.append(record)
        return tuple(records)

    def receipt(self, instance: InstanceId) -> bytes:
        """The relay's last word, or nothing."""
        try:
            return self._path(instance, RECEIPT_SUFFIX).read_bytes()
        except OSError:
            return b""

    @staticmethod
    def _read(path: Path) -> Record | None:
        try:
            fields = json.loads(path.read_bytes())
            for role in ("relay", "anchor", "process"):
                pair = fields[role]
                fields[role] = None if pair is None else (int(pair[0]), int(pair[1]))
            record = Record(**fields)
            ours = is_instance_id(record.instance) and record.version == VERSION
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            return None
        return record if ours else None

    def _path(self, instance: InstanceId, suffix: str) -> Path:
        return self._directory / (instance + suffix)
