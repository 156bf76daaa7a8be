"""Who a server runs as, decided from made-up databases; a few facts of the real ones."""

import grp
import os
import pwd
from dataclasses import replace
from typing import Literal

import pytest

from supervisor.config.accounts import (
    Account,
    Identity,
    SystemAccounts,
    account_of,
    resolve_identity,
)

ROOT = Account(name="root", uid=0, gid=0, home="/root", login_shell="/bin/bash")
APP = Account(name="app", uid=1000, gid=100, home="/home/app", login_shell="/bin/sh")
GROUPS = {"staff": 50, "users": 100}


class FakeAccounts:
    """Two users and two groups; `app` is in group 7 as well."""

    def user(self, user: int | str) -> Account | None:
        """See `Accounts`."""
        return next((entry for entry in (ROOT, APP) if user in (entry.uid, entry.name)), None)

    def group(self, name: str) -> int | None:
        """See `Accounts`."""
        return GROUPS.get(name)

    def groups_of(self, name: str, gid: int) -> tuple[int, ...]:
        """See `Accounts`."""
        return (7, gid) if name == "app" else (gid,)


def resolve(
    daemon: Account, uid: int | str | None, gid: int | str | None
) -> tuple[Identity, list[tuple[str, str]]]:
    """The identity and the complaints."""
    complaints = list[tuple[str, str]]()

    def complain(field: Literal["uid", "gid"], text: str) -> None:
        complaints.append((field, text))

    return resolve_identity(FakeAccounts(), daemon, uid, gid, complain), complaints


def test_without_uid_and_gid_nothing_is_changed() -> None:
    """A server then runs as the daemon does."""
    assert resolve(APP, None, None) == (Identity(account=APP), [])


@pytest.mark.parametrize("user", ["app", 1000, "1000"])
def test_a_user_brings_its_group_its_groups_and_its_home(user: int | str) -> None:
    """The daemon's own supplementary groups must not stay, or they are more than was asked."""
    identity, complaints = resolve(ROOT, user, None)

    assert identity == Identity(uid=1000, gid=100, groups=(7, 100), account=APP)
    assert complaints == []


@pytest.mark.parametrize("group", ["staff", 50, "50"])
def test_a_group_replaces_the_primary_one(group: int | str) -> None:
    """By name or by number; a number needs no entry."""
    assert resolve(ROOT, "app", group)[0].gid == 50
    assert resolve(ROOT, "app", group)[0].groups == (7, 50)


def test_a_group_alone_leaves_the_user() -> None:
    """Of the daemon's supplementary groups, those of its user remain."""
    assert resolve(ROOT, None, 50)[0] == Identity(uid=None, gid=50, groups=(50,), account=ROOT)


def test_a_number_without_an_entry_needs_its_group_named() -> None:
    """Keeping the daemon's group would give away more than was asked."""
    assert [field for field, _ in resolve(ROOT, 4242, None)[1]] == ["gid"]
    identity, complaints = resolve(ROOT, 4242, 4243)

    assert complaints == []
    assert (identity.uid, identity.gid, identity.groups) == (4242, 4243, (4243,))
    assert (identity.account.home, identity.account.name) == ("/", None)


@pytest.mark.parametrize(
    ("uid", "gid", "field"),
    [
        ("nobdy", None, "uid"),
        ("app", "stuff", "gid"),
        (None, "stuff", "gid"),
        (str(2**32), None, "uid"),
    ],
)
def test_an_unknown_name_is_told_by_its_field(uid: str | None, gid: str | None, field: str) -> None:
    """Not with a KeyError at the start, and never as root instead."""
    assert [complaint[0] for complaint in resolve(ROOT, uid, gid)[1]] == [field]


@pytest.mark.parametrize(
    ("uid", "gid", "fields"),
    [
        (1000, None, []),
        ("app", "users", []),
        (None, 100, []),
        (0, None, ["uid"]),
        (None, 50, ["gid"]),
        ("app", 50, ["gid"]),
        (0, 50, ["uid"]),
    ],
)
def test_only_a_root_daemon_can_change_its_identity(
    uid: int | str | None, gid: int | str | None, fields: list[str]
) -> None:
    """Naming the daemon's own identity is fine, and then there is nothing to change."""
    identity, complaints = resolve(APP, uid, gid)

    assert [field for field, _ in complaints] == fields
    assert (identity.uid, identity.gid, identity.groups) == (None, None, ())


def test_the_daemon_s_own_user_has_the_daemon_s_home() -> None:
    """Naming a user must not move `~` away from where it is without the name."""
    daemon = replace(APP, home="/elsewhere")

    assert resolve(daemon, "app", None)[0].account.home == "/elsewhere"


def test_the_databases_of_this_machine_answer() -> None:
    """Every Linux has a user 0; names that cannot exist are None and no error."""
    accounts, root = SystemAccounts(), pwd.getpwuid(0)

    by_number, by_name = accounts.user(0), accounts.user(root.pw_name)

    assert by_number is not None
    assert by_number == by_name
    assert (by_number.home, by_number.gid) == (root.pw_dir, root.pw_gid)
    assert accounts.groups_of(root.pw_name, 0) == tuple(sorted(os.getgrouplist(root.pw_name, 0)))
    assert accounts.group(grp.getgrgid(0).gr_name) == 0
    assert accounts.user("no:such:user") is None
    assert accounts.group("no:such:group") is None
    assert account_of(accounts, 2**32 - 2).home == "/"
