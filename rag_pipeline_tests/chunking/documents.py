"""Documents for property tests, built from parts so that the places of their words are known beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Built:
    """A canonical text, its title, and its bodies: (section title, start, end) in order."""

    text: str
    title: str
    bodies: tuple[tuple[str, int, int], ...]

    def body_offsets(self) -> list[int]:
        """Offsets of every non-blank character that is content."""
        return [
            offset
            for _, start, end in self.bodies
            for offset in range(start, end)
            if not self.text[offset].isspace()
        ]


_words = st.text(alphabet="abcé漢😀.!? \t", min_size=0, max_size=40)
# No line of a body may be a section's heading or the title's; these look like headings and are none.
_lines = st.one_of(
    _words, st.sampled_from(["### deeper", "##tight", "#", "  ## indented", "| a | b |", "", ""])
)
_fences = st.sampled_from(["```\n## code\n# code\n```", "~~~~ py\n## code\n~~~\n\n# more\n~~~~~"])
_bodies = st.lists(st.one_of(_lines, _lines, _lines, _fences), max_size=8).map("\n".join)
_titles = st.text(alphabet="Tü x", max_size=6)


@st.composite
def built_documents(draw: st.DrawFn) -> Built:
    text = ""
    bodies: list[tuple[str, int, int]] = []

    def add_body(title: str) -> None:
        nonlocal text
        start = len(text)
        text += draw(_bodies)
        bodies.append((title, start, len(text)))
        if text and not text.endswith("\n"):
            text += "\n"

    title = draw(_titles)
    add_body("")
    if draw(st.booleans()):
        text += f"# {title}\n"
        add_body("")
    for _ in range(draw(st.integers(0, 3))):
        section = draw(_titles)
        text += f"## {section}\n"
        add_body(section.strip())
    if draw(st.booleans()):
        text = text.removesuffix("\n")
        bodies = [(name, min(start, len(text)), min(end, len(text))) for name, start, end in bodies]
    return Built(text, title, tuple(bodies))
