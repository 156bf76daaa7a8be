"""Reads the texts of a configuration: the main file and the drop-ins beside it.

Drop-ins are the regular files `*.json` in the directory `config.d` beside the main file, without
hidden ones, sorted by name. Each has the shape of the main file. A name that no terminal should
print, or a fifo that would hold up the start, is a problem and no drop-in.
Source: design section 11.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A thousand servers take less than one MiB; this is for /dev/zero and swapped arguments."""

DROP_IN_FOLDER: Final = "config.d"


@dataclass(frozen=True, slots=True)
class Texts:
    """What could be read, by path and in order, and a sentence for each file that could not.

    A main file that does not exist is `missing` and no problem.
    """

    of: Mapping[str, str] = field(repr=False)
    problems: tuple[str, ...]
    missing: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a file has no text: the rest of a sentence that begins with its path."""

    rest: str
    missing: bool = False


def read_texts(file: str) -> Texts:
    """Read the main file, which may be missing, and its drop-ins.

    Args:
        file: path of the main file; it need not be a regular one.
    """
    texts, missing = dict[str, str](), False
    drop_ins, problems = _drop_ins(Path(file).parent / DROP_IN_FOLDER)
    for path in (file, *drop_ins):
        text = read_text(path, MAX_FILE_BYTES, regular=path != file)
        if isinstance(text, str):
            texts[path] = text
        elif not text.missing:
            problems.append(f"{path}{text.rest}")
        elif path == file:
            missing = True
        else:
            # the folder lists it: a link to nothing, or a file that went while we looked
            problems.append(f"{path}{text.rest}; mend the link, or take it out.")
    return Texts(texts, tuple(problems), missing)


def read_text(file: str, max_bytes: int, *, regular: bool) -> str | Unreadable:
    """Read a file in UTF-8.

    Args:
        file: its path.
        max_bytes: a larger one is not read.
        regular: whether fifos, devices and the like are refused; else a fifo is waited for.
    """

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | (os.O_NONBLOCK if regular else 0))

    try:
        with open(file, "rb", opener=opener) as stream:
            if regular and not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return Unreadable(" is no regular file; name one, or take this one out.")
            content = stream.read(max_bytes + 1)
    except FileNotFoundError:
        return Unreadable(" does not exist", missing=True)
    except (OSError, ValueError) as error:
        return Unreadable(f" cannot be read: {_reason(error)}.")
    if len(content) > max_bytes:
        return Unreadable(
            f" is larger than {max_bytes >> 20} MiB, so it is not what it is taken for."
        )
    try:
        return content.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Unreadable(f", line {line}: this is no UTF-8; save the file in that encoding.")


def _drop_ins(folder: Path) -> tuple[list[str], list[str]]:
    """The paths of the drop-ins, and what is wrong with the folder."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names, also those that are no UTF-8
    except FileNotFoundError:
        return [], []
    except (OSError, ValueError) as error:
        return [], [f"{folder} cannot be read: {_reason(error)}."]
    names = [name for name in names if name.endswith(".json") and not name.startswith(".")]
    problems = [
        f"{folder} holds {name!a}, a name that cannot be shown; rename that file."
        for name in names
        if not name.isprintable()
    ]
    return [str(folder / name) for name in names if name.isprintable()], problems


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
