"""YAML front matter: a block between two lines of three hyphens at the very start of a text."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

# Front matter is a few lines; a larger block is text that happens to start with a rule.
_MAX_CHARACTERS = 65_536
_BLOCK = re.compile(r"---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class FrontMatter:
    """The keys of a text's front matter (JSON values) and the offset at which its body starts."""

    values: Mapping[str, Any]
    end: int


class FrontMatterError(ValueError):
    """A block that looks like front matter cannot be read as a YAML mapping."""


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases: a few nested ones grow to gigabytes when they are written out."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read in front matter")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def parse_front_matter(text: str) -> FrontMatter | None:
    """Return the front matter of `text` (line ends `\\n`), or None where it has none.

    Raises FrontMatterError where the block is there and is not readable as `key: value` lines.
    """
    if not text.startswith("---"):
        return None
    match = _BLOCK.match(text, 0, _MAX_CHARACTERS)
    if match is None:
        return None
    if not re.search(r"^[^\s#].*:(?:\s|$)", match["yaml"], re.MULTILINE):
        # A rule above a paragraph and another below it; no key, so nobody meant metadata.
        return None
    try:
        values = yaml.load(match["yaml"], Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FrontMatterError(" ".join(str(error).split())) from error
    if not isinstance(values, dict):
        raise FrontMatterError("it is no mapping of keys to values")
    return FrontMatter(json_value(values), match.end())


def json_value(value: Any) -> Any:
    """Return `value` as JSON can hold it: dates as ISO 8601, keys as strings, the unknown as its text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        # An escape such as "\\ud800" makes half a character, which UTF-8 cannot hold.
        return value.encode("utf-8", "ignore").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, dict):
        return {json_value(str(key)): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((json_value(item) for item in value), key=str)
    return str(value)
