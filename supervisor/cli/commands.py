"""The group `mcpctl`: its options, its commands, and the help that a stranger reads first."""

import click

from supervisor.cli import shim
from supervisor.cli.configure.commands import add, list_servers, set_server, show, unset
from supervisor.cli.configure.exchange import export_servers, import_servers
from supervisor.cli.diagnose import doctor
from supervisor.cli.lifecycle import release, restart, shutdown, start, stop
from supervisor.cli.options import Given, examples, take_places
from supervisor.cli.reloading import reload
from supervisor.cli.show import events, instances, logs, reports, status
from supervisor.cli.using import call, probe, sessions, tools


@click.group(
    help="""Talk to mcp-supervisord, the daemon that starts, stops and watches MCP servers.

    The three folder options stand before or after the command; both programs know them.
    """,
    epilog=examples(
        "mcp-supervisord start      start the daemon",
        "mcpctl status              what runs, and what does not and why",
        "mcpctl connect git         what an MCP client runs instead of the server",
        "mcpctl tools               what all of them can do",
        "mcpctl stop git            stop it, and prove that it is gone",
        "mcpctl doctor              find out why something does not start",
    )
    + "\n\n\b\n"
    + "\n".join(
        (
            "Exit codes:",
            "  0  done                          1    the operation failed",
            "  2  usage                         3    a cleanup is unconfirmed",
            "  4  the daemon does not answer    100  the configuration is wrong",
            "  101  a bug of ours               111  the operating system refused",
            "  130  interrupted while waiting",
        )
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@take_places(hidden=False)
def group() -> None:
    """Collect the options; the commands do the rest."""


@click.command(
    short_help="What an MCP client runs instead of the server.",
    help="""Connect standard input and output to an instance of server NAME.

    For the configuration of an MCP client, in place of the server's own command. The daemon starts
    the server, and stops it when the client leaves; the server's stderr comes out here too.

    With --session the server belongs to that session: it stays when the client leaves, serves
    the next one at once, and is started again if it dies, until nobody has used it for the idle
    time.
    """,
    epilog=examples(
        "mcpctl connect git",
        "mcpctl connect git --session work",
        '{"mcpServers": {"git": {"command": "mcpctl", "args": ["connect", "git"]}}}',
    ),
)
@click.argument("name")
@click.option("--session", metavar="KEY", help="Use and keep the instance of this session.")
@take_places(hidden=True)
@click.pass_obj
def connect(given: Given, name: str, session: str | None) -> int:
    """Run the shim for spellings that it does not read itself, such as `connect -- NAME`."""
    return shim.run(shim.Given(name, given.options(), session))


@click.command(
    short_help="Be one MCP server with all servers of a session.",
    help="""Connect standard input and output to a whole session, as one MCP server.

    Its tools are those of all configured servers, each named SERVER__TOOL. A server is started by
    its first use, and stays with the session when the client leaves, until nobody has used it for
    the idle time. `mcpctl tools` shows what there is.
    """,
    epilog=examples(
        "mcpctl serve --session work",
        '{"mcpServers": {"all": {"command": "mcpctl", "args": ["serve", "--session", "work"]}}}',
    ),
)
@click.option(
    "--session", metavar="KEY", default="default", show_default=True, help="Which session."
)
@take_places(hidden=True)
@click.pass_obj
def serve(given: Given, session: str) -> int:
    """Run the shim for spellings that it does not read itself."""
    return shim.run(shim.Given(None, given.options(), session))


for _command in (
    add,
    call,
    connect,
    doctor,
    events,
    export_servers,
    import_servers,
    instances,
    list_servers,
    logs,
    probe,
    release,
    reload,
    reports,
    restart,
    serve,
    sessions,
    set_server,
    show,
    shutdown,
    start,
    status,
    stop,
    tools,
    unset,
):
    group.add_command(_command)
