"""From an HTML element to blocks of Markdown; also for formats that are turned into HTML first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag_pipeline.documents import markdown_writer

if TYPE_CHECKING:
    from lxml.html import HtmlElement

# What holds no words of the text, or words that a reader does not see.
INVISIBLE = frozenset(
    "script style template noscript svg canvas iframe object embed video audio map head title link meta"
    " input select textarea button datalist".split()
)
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark math nobr"
    " output q rp rt ruby s samp small span strike strong sub sup time tt u var wbr"
    " annotation mi mn mo mrow".split()
)
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_LANGUAGE = re.compile(r"\b(?:language|lang|highlight)-(?:source-)?([\w+#-]+)")
_HEADING_LINK = re.compile(r"\s*[¶#🔗]\s*$")
# Deeper elements are read as flat text; nobody nests that deep on purpose, and recursion has an end.
_MAX_DEPTH = 150


@dataclass(frozen=True)
class Block:
    """A block of Markdown: its kind, its text, and how many of its characters are link text."""

    kind: str
    text: str
    link_characters: int = 0


@dataclass
class _Flow:
    """Collects blocks, and the inline text of the paragraph that is being read."""

    blocks: list[Block] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    link_characters: int = 0

    def flush(self) -> None:
        lines = [markdown_writer.one_line(line) for line in "".join(self.inline).split("\x00")]
        text = "\n".join(line for line in lines if line)
        if text:
            self.add("paragraph", markdown_writer.paragraph(text), self.link_characters)
        self.inline.clear()
        self.link_characters = 0

    def add(self, kind: str, text: str, link_characters: int = 0) -> None:
        if text.strip():
            self.blocks.append(Block(kind, text, link_characters))


def blocks_of(element: HtmlElement, keep: Callable[[HtmlElement], bool] = lambda _: True) -> list[Block]:
    """Return the blocks of `element` in document order, leaving out every element that `keep` refuses.

    Headings, lists, tables and code keep their structure; scripts, styles and hidden elements never appear.
    """
    flow = _Flow()
    _Walker(keep).walk(element, flow, 0)
    flow.flush()
    return flow.blocks


def is_visible(element: HtmlElement) -> bool:
    """Return False for an element that a reader of the page does not see."""
    return not (
        element.tag in INVISIBLE
        or element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
        or _HIDDEN_STYLE.search(element.get("style") or "")
    )


def flat_text(element: HtmlElement, keep: Callable[[HtmlElement], bool]) -> str:
    """Return the words of an element in document order, a newline at both edges of everything not inline.

    Elements that `keep` refuses are left out with all they hold; the text after them is not.
    """
    pieces: list[str] = []
    # Entries to the right come first: an element to open, or text to write once what it follows is done.
    stack: list[HtmlElement | str] = [element]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            pieces.append(node)
            continue
        if node is not element:
            stack.append(node.tail or "")
        if not isinstance(node.tag, str) or not keep(node):
            continue
        edge = "" if node.tag in _INLINE else "\n"
        pieces += (edge, node.text or "")
        stack.append(edge)
        stack.extend(reversed(node))
    return "".join(pieces)


class _Walker:
    """One walk over a tree. Every method that takes a flow adds to it."""

    def __init__(self, keep: Callable[[HtmlElement], bool]) -> None:
        self._keep = keep
        self._handlers: dict[str, Callable[[HtmlElement, _Flow, int], None]] = {
            **{f"h{level}": self._heading for level in range(1, 7)},
            "pre": self._code,
            "ul": self._list,
            "ol": self._list,
            "table": self._table,
            "br": lambda element, flow, depth: flow.inline.append("\x00"),
            "hr": lambda element, flow, depth: flow.flush(),
        }

    def walk(self, element: HtmlElement, flow: _Flow, depth: int) -> None:
        if not isinstance(element.tag, str) or not is_visible(element) or not self._keep(element):
            return
        handler = self._handlers.get(element.tag)
        if handler is not None:
            handler(element, flow, depth)
        elif depth > _MAX_DEPTH:
            flow.inline.append(self._flat(element))
        elif element.tag in _INLINE:
            before = len(flow.inline)
            self._children(element, flow, depth)
            if element.tag == "a":
                flow.link_characters += sum(len(piece) for piece in flow.inline[before:])
        else:
            flow.flush()
            self._children(element, flow, depth)
            flow.flush()

    def _children(self, element: HtmlElement, flow: _Flow, depth: int) -> None:
        flow.inline.append(_clean(element.text))
        for child in element:
            self.walk(child, flow, depth + 1)
            flow.inline.append(_clean(child.tail))

    def _flat(self, element: HtmlElement) -> str:
        """Return the text of an element on one line, its blocks, items and cells set apart by spaces."""
        return markdown_writer.one_line(
            flat_text(element, lambda node: is_visible(node) and self._keep(node))
        )

    def _heading(self, element: HtmlElement, flow: _Flow, depth: int) -> None:
        flow.flush()
        title = _HEADING_LINK.sub("", self._flat(element))
        flow.add("heading", markdown_writer.heading(int(element.tag[1]), title))

    def _code(self, element: HtmlElement, flow: _Flow, depth: int) -> None:
        flow.flush()
        for line_break in element.iter("br"):
            line_break.tail = "\n" + (line_break.tail or "")
        code = "".join(element.itertext())
        classes = " ".join(node.get("class") or "" for node in (element, *element.iter("code")))
        language = _LANGUAGE.search(classes)
        flow.add("code", markdown_writer.code_block(code, language[1] if language else ""))

    def _list(self, element: HtmlElement, flow: _Flow, depth: int) -> None:
        flow.flush()
        ordered = element.tag == "ol"
        number = int(element.get("start") or 1) if (element.get("start") or "1").isdecimal() else 1
        lines: list[str] = []
        links = 0
        for child in element:
            if not isinstance(child.tag, str) or not is_visible(child) or not self._keep(child):
                continue
            item = _Flow()
            if depth > _MAX_DEPTH:
                item.inline.append(self._flat(child))
            elif child.tag == "li":
                self._children(child, item, depth + 1)
            else:
                self.walk(child, item, depth + 1)
            item.flush()
            links += sum(block.link_characters for block in item.blocks)
            text = _item_text(item.blocks)
            if not text:
                continue
            marker = f"{number}. " if ordered else "- "
            number += 1
            indent = " " * len(marker)
            first, *rest = text.split("\n")
            lines += [marker + first, *((indent + line) if line else "" for line in rest)]
        flow.add("list", "\n".join(lines), links)

    def _table(self, element: HtmlElement, flow: _Flow, depth: int) -> None:
        flow.flush()
        caption = element.find("caption")
        if caption is not None:
            flow.add("paragraph", markdown_writer.paragraph(self._flat(caption)))
        rows = [row for row in _rows(element) if is_visible(row) and self._keep(row)]
        cells = [[cell for cell in row if cell.tag in ("td", "th")] for row in rows]
        if depth > _MAX_DEPTH or _is_layout(element, cells):
            for row in cells:
                for cell in row:
                    self._children(cell, flow, depth + 1)
                    flow.flush()
            return
        grid = _grid(cells, self._flat)
        flow.add("table", markdown_writer.table(grid))


def _clean(text: str | None) -> str:
    return (text or "").replace("\x00", "")


def _item_text(blocks: list[Block]) -> str:
    text = ""
    for block in blocks:
        # A list or code below an item's own words belongs to it; two paragraphs stay two.
        gap = "\n\n" if block.kind in ("paragraph", "table", "code") and text else "\n"
        text += (gap if text else "") + block.text
    return text


def _rows(table: HtmlElement) -> Iterator[HtmlElement]:
    for child in table:
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from (row for row in child if row.tag == "tr")


def _is_layout(table: HtmlElement, cells: list[list[HtmlElement]]) -> bool:
    """Return True for a table that places blocks on the page and holds no data."""
    if table.get("role") == "presentation":
        return True
    if max((len(row) for row in cells), default=0) < 2 and not table.xpath(".//th"):
        return True
    if table.get("role") == "table":
        return False
    holds_blocks = table.xpath("boolean(.//table | .//h1 | .//h2 | .//h3 | .//article | .//section)")
    return bool(holds_blocks) and not table.xpath("boolean(./thead | ./tr/th | ./tbody/tr/th)")


def _grid(cells: list[list[HtmlElement]], text_of: Callable[[HtmlElement], str]) -> list[list[str]]:
    """Return the cells' texts in a rectangle; a merged cell's text stands in its first field alone."""
    grid: list[list[str]] = []
    open_rows: dict[int, int] = {}  # column -> rows that a cell above still covers
    for row in cells:
        line: list[str] = []

        def skip_covered(line: list[str] = line) -> None:
            while open_rows.get(len(line), 0) > 0:
                open_rows[len(line)] -= 1
                line.append("")

        for cell in row:
            skip_covered()
            width, height = _span(cell, "colspan"), _span(cell, "rowspan")
            for offset in range(width):
                if height > 1:
                    open_rows[len(line)] = height - 1
                line.append(text_of(cell) if offset == 0 else "")
        skip_covered()
        grid.append(line)
    return grid


def _span(cell: HtmlElement, attribute: str) -> int:
    value = (cell.get(attribute) or "1").strip()
    return min(max(int(value), 1), 100) if value.isdecimal() else 1
