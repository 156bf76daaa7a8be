"""The command line of `scripts/bench`."""

import sys
from pathlib import Path

import click

from scripts.benchmarks.counts import FULL, QUICK
from scripts.benchmarks.results import table, write_json
from scripts.benchmarks.running import MEASUREMENTS, run
from scripts.benchmarks.surroundings import machine
from supervisor.linux.limits import raise_descriptors

FAILED = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Few repetitions: a quarter of the time, more noise.")
@click.option("--check", is_flag=True, help="Exit with 1 when a bound is missed.")
@click.option(
    "--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write rows there."
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(sorted(MEASUREMENTS)),
    help="Take this measurement alone; may be repeated.",
)
def main(*, quick: bool, check: bool, json_file: Path | None, only: tuple[str, ...]) -> None:
    """Measure starts, stops, memory and losses beside named peers, and show one table.

    Medians of one run, ours and the peer's by turns. "compared" is ours less the peer's, or ours
    over the peer's (x); the bound is for that where it begins with + or x, else for our median.

    Exits with 1 when a measurement fails or leaves a process behind.
    """
    raise_descriptors()
    about = machine()
    click.echo(about)
    rows, failures = run(
        QUICK if quick else FULL,
        only or tuple(MEASUREMENTS),
        lambda name: click.echo(f"measuring {name} ...", err=True),
    )
    click.echo(table(rows))
    for failure in failures:
        click.echo(f"failed: {failure}", err=True)
    if json_file is not None:
        write_json(json_file, about, rows)
    missed = check and any(row.within is False for row in rows)
    sys.exit(FAILED if failures or missed else 0)


if __name__ == "__main__":
    main(prog_name="scripts/bench")
