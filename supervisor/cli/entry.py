"""The program `mcpctl`: hands `connect` to the shim before anything heavy is loaded."""

import sys


def main() -> int:
    """Run one command line; the caller exits with what comes back. Exit codes: `cli/exits.py`."""
    from supervisor.cli import shim  # noqa: PLC0415 - loaded in here so that ^C finds a handler

    words = sys.argv[1:]
    try:
        given = shim.read_words(words)
        if given is not None:
            return shim.run(given)
        from supervisor.cli.failures import run  # noqa: PLC0415 - click and the rest, not for shims

        return run(words)
    except KeyboardInterrupt:
        # before or after the command proper; while it waits, the command itself says more
        return 130


if __name__ == "__main__":
    sys.exit(main())
