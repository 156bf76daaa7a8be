"""What would become of each server, and how that is shown: a diff for people; pure.

Only what `shown_record` shows is ever in it. Where two values differ in what is hidden, the diff
says that they differ.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from supervisor.cli.ending import plain
from supervisor.config.shown import shown_record

Fate = Literal["added", "changed", "same", "kept", "refused", "skipped"]
WRITTEN: tuple[Fate, ...] = ("added", "changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One server of a plan.

    Attributes:
        name: as it is called where it goes to.
        fate: what becomes of it.
        source: the file that it comes from.
        record: what would be written, or would have been.
        old: what stands there now, or None.
        summary: the command or URL, without secrets.
        reasons: sentences' ends: why it is refused, kept or skipped; what was left out.
    """

    name: str
    fate: Fate
    source: str
    record: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    old: JsonValue = field(default=None, repr=False)
    summary: str = ""
    reasons: Sequence[str] = ()

    def as_json(self) -> dict[str, JsonValue]:
        """For `--json`; nothing secret."""
        return {
            "name": self.name,
            "fate": self.fate,
            "source": self.source,
            "record": dict(shown_record(self.record)) or None,
            "differences": list(differences(self.old, self.record)),
            "reasons": list(self.reasons),
        }


def lines_of(steps: Iterable[Step], title: str) -> Iterator[str]:
    """The plan for people, the servers of each file together and in their order."""
    file = None
    for step in steps:
        if step.source != file:
            file = step.source
            yield f"{title}, {plain(file)}:"
        yield f"  {step.fate:<7}  {plain(step.name)}  {plain(step.summary)}".rstrip()
        if step.fate in ("changed", "kept"):
            yield from (
                f"             {plain(line)}" for line in differences(step.old, step.record)
            )
        yield from (f"             {plain(reason)}" for reason in step.reasons)


def differences(old: JsonValue, new: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield `- key: value` and `+ key: value` for whatever differs; nothing without an old one."""
    if not isinstance(old, dict):
        return
    before, after = _flat(old), _flat(new)
    shown_before, shown_after = _flat(shown_record(old)), _flat(shown_record(new))
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) == after.get(key):
            continue
        first, last = shown_before.get(key), shown_after.get(key)
        if key in before and key in after and first == last:
            yield f"~ {key}: differs in what is not shown"
            continue
        if key in before:
            yield f"- {key}: {first if key in shown_before else 'not shown'}"
        if key in after:
            yield f"+ {key}: {last if key in shown_after else 'not shown'}"


def _flat(record: Mapping[str, JsonValue], prefix: str = "") -> dict[str, str]:
    """Each value as JSON by its dotted key; null is no value."""
    flat = dict[str, str]()
    for key, value in record.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = json.dumps(value, ensure_ascii=False)
    return flat
