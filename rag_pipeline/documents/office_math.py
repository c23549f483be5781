"""Formulas of Word documents (OMML) on one line: fractions with a slash, powers with `^`, indices with `_`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag_pipeline.documents.office_package import local_name

if TYPE_CHECKING:
    from lxml.etree import _Element

_MAX_DEPTH = 60
_ACCENTS = frozenset("acc bar box borderBox groupChr phant".split())


def linear(element: _Element, depth: int = 0) -> str:
    """Return the formula in `element` (`m:oMath` or a part of one) as one line of text."""
    name = local_name(element)
    if name == "t":
        return element.text or ""
    if name.endswith("Pr") or depth > _MAX_DEPTH:
        return ""
    parts = {local_name(part): linear(part, depth + 1) for part in element}
    base = parts.get("e", "")
    if name == "f":
        return f"{_grouped(parts.get('num', ''))}/{_grouped(parts.get('den', ''))}"
    if name in ("sSup", "sSub", "sSubSup", "sPre"):
        sub = f"_{_grouped(parts['sub'])}" if parts.get("sub") else ""
        sup = f"^{_grouped(parts['sup'])}" if parts.get("sup") else ""
        return f"{sub}{sup}{base}" if name == "sPre" else f"{base}{sub}{sup}"
    if name == "rad":
        degree = parts.get("deg", "")
        return f"root({degree}, {base})" if degree else f"√({base})"
    if name == "nary":
        sub = f"_{_grouped(parts['sub'])}" if parts.get("sub") else ""
        sup = f"^{_grouped(parts['sup'])}" if parts.get("sup") else ""
        return f"{_property(element, 'chr') or '∫'}{sub}{sup} {base}"
    if name == "d":
        opening = _property(element, "begChr")
        closing = _property(element, "endChr")
        inner = ", ".join(linear(part, depth + 1) for part in element if local_name(part) == "e")
        return f"{'(' if opening is None else opening}{inner}{')' if closing is None else closing}"
    if name in ("m", "eqArr"):
        rows = [linear(part, depth + 1) for part in element if local_name(part) in ("mr", "e")]
        return "; ".join(rows)
    if name == "mr":
        return ", ".join(linear(part, depth + 1) for part in element if local_name(part) == "e")
    if name in _ACCENTS:
        return base
    return "".join(linear(part, depth + 1) for part in element)


def _grouped(text: str) -> str:
    return text if text.isalnum() else f"({text})"


def _property(element: _Element, name: str) -> str | None:
    """Return the value of a property such as the sign of a sum; None where the file leaves it to the default."""
    for properties in element:
        if local_name(properties).endswith("Pr"):
            for value in properties:
                if local_name(value) == name:
                    return next((v for key, v in value.attrib.items() if key.endswith("}val")), "")
    return None
