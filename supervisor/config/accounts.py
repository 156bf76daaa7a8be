"""Who a server runs as: users and groups from the passwd and group databases."""

import grp
import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from supervisor.config.records import MAX_ID

FALLBACK_HOME: Final = "/"
FALLBACK_SHELL: Final = "/bin/sh"
"""For a user id without a passwd entry, as container runtimes do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A passwd entry; without one, `name` and `gid` are None."""

    name: str | None
    uid: int
    gid: int | None
    home: str
    login_shell: str


class Accounts(Protocol):
    """The machine's user and group databases."""

    def user(self, user: int | str) -> Account | None:
        """The entry of a user, or None."""

    def group(self, name: str) -> int | None:
        """The id of a group, or None."""

    def groups_of(self, name: str, gid: int) -> tuple[int, ...]:
        """All groups of a user, with `gid` among them."""


class SystemAccounts:
    """The databases of this machine, through NSS. Blocks where NSS asks a network."""

    def user(self, user: int | str) -> Account | None:
        """See `Accounts`."""
        try:
            entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
        except KeyError:
            return None
        return Account(
            name=entry.pw_name,
            uid=entry.pw_uid,
            gid=entry.pw_gid,
            home=entry.pw_dir or FALLBACK_HOME,
            login_shell=entry.pw_shell or FALLBACK_SHELL,
        )

    def group(self, name: str) -> int | None:
        """See `Accounts`."""
        try:
            return grp.getgrnam(name).gr_gid
        except KeyError:
            return None

    def groups_of(self, name: str, gid: int) -> tuple[int, ...]:
        """See `Accounts`."""
        return tuple(sorted(os.getgrouplist(name, gid)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who one server runs as; `uid` and `gid` are None where nothing has to be changed."""

    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    account: Account


Complain = Callable[[Literal["uid", "gid"], str], None]
"""Takes a field and a sentence that says what is wrong with it."""


def account_of(accounts: Accounts, uid: int) -> Account:
    """The entry of `uid`, or what stands for it where it has none."""
    stand_in = Account(name=None, uid=uid, gid=None, home=FALLBACK_HOME, login_shell=FALLBACK_SHELL)
    return accounts.user(uid) or stand_in


def resolve_identity(
    accounts: Accounts,
    daemon: Account,
    uid: int | str | None,
    gid: int | str | None,
    complain: Complain,
) -> Identity:
    """Find user, group and supplementary groups.

    Args:
        accounts: where names are looked up.
        daemon: the daemon's account, with its effective uid and gid.
        uid: number, name, or None for the daemon's own.
        gid: number, name, or None for the user's primary group.
        complain: told what is wrong; the identity is then of no use.
    """
    if uid is None and gid is None:
        return Identity(account=daemon)
    account = daemon if uid is None else _find_user(accounts, uid)
    if account is None:
        complain("uid", "no user of this machine has this name.")
        return Identity(account=daemon)
    if uid is None or (account.uid == daemon.uid != 0):
        account = daemon
    group = account.gid if gid is None else _find_group(accounts, gid)
    if group is None and gid is None:
        complain("gid", f"the user {account.uid} has no passwd entry; name its group here.")
    elif group is None:
        complain("gid", "no group of this machine has this name.")
    if daemon.uid != 0:
        _complain_of_change("uid", account.uid, daemon.uid, complain)
        if group is not None and account.uid == daemon.uid:
            _complain_of_change("gid", group, daemon.gid, complain)
        return Identity(account=account)
    if group is None:
        return Identity(account=account)
    groups = (group,) if account.name is None else accounts.groups_of(account.name, group)
    return Identity(
        uid=None if uid is None else account.uid, gid=group, groups=groups, account=account
    )


def _complain_of_change(
    field: Literal["uid", "gid"], wanted: int, own: int | None, complain: Complain
) -> None:
    if wanted != own:
        complain(
            field,
            f"{wanted} is not the daemon's own ({own}), and only a daemon that runs as root can "
            f"change it; run it as root, or take {field} out.",
        )


def _find_user(accounts: Accounts, user: int | str) -> Account | None:
    number = _number(user)
    return accounts.user(str(user)) if number is None else account_of(accounts, number)


def _find_group(accounts: Accounts, group: int | str) -> int | None:
    number = _number(group)
    return accounts.group(str(group)) if number is None else number


def _number(text: int | str) -> int | None:
    """The id that `text` is, also in digits (as a reference makes them); None for a name."""
    if isinstance(text, int):
        return text
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None  # noqa: PLR2004 - digits of 32 bits
    return number if number is not None and number <= MAX_ID else None
