"""What works as it stands and could bite later: secrets in files, clients of container engines."""

from collections.abc import Iterable, Iterator

from supervisor.cli.doctor.finding import Finding
from supervisor.config.advice import docker_like, literal_secrets, missing_run_options
from supervisor.config.document import Document
from supervisor.core.launch import LaunchSpec

_WHAT_FOR = {
    "-i": "without -i the server never hears that its input has ended",
    "--rm": "without --rm each stop leaves a container behind",
}


def check_secrets(documents: Iterable[Document], name: str | None) -> Iterator[Finding]:
    """Secrets that stand in a configuration file; their places, never their values.

    Args:
        documents: the files.
        name: the one server of interest, or None for all.
    """
    for document in documents:
        for found in literal_secrets(document):
            if name in {None, found.server}:
                yield Finding(
                    level="warning",
                    check="secrets",
                    server=found.server,
                    message=f"{found.field} looks like a secret that stands in {document.file}",
                    hint=_instead(found.field),
                )


def check_container(server: str, launch: LaunchSpec) -> Iterator[Finding]:
    """What to know of a server that runs in a container."""
    missing = missing_run_options(launch)
    if missing:
        message = f"its `run` lacks {' and '.join(missing)}"
        why = "; ".join(_WHAT_FOR[option] for option in missing)
        hint = f"Add {' and '.join(missing)} before the image: {why}."
        yield Finding(level="warning", check="launch", server=server, message=message, hint=hint)
    elif docker_like(launch):
        message = (
            "is the client of a container engine: a stop confirms the client's end, and the "
            "container is the engine's to end"
        )
        yield Finding(level="ok", check="launch", server=server, message=message)


def _instead(field: str) -> str:
    """What to write there: a reference to a variable that is named like the old one."""
    variable = field.removeprefix("env.")
    if variable == field or not variable.isidentifier():
        return 'Write a reference such as "${NAME}", a variable of the daemon\'s environment.'
    return (
        f'Write "${{{variable}}}", a variable of the daemon\'s environment, or move it to a file '
        "of mode 0600 that envFile names."
    )
