"""Builds HTML as a tree of elements, so that a text can never become markup.

Everything on the page goes through `element`: what is a text there is a text in the tree, and the standard library's
serialiser escapes it. There is no way to put a piece of HTML into a page as a string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, tostring

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Child = Element | str | None
_DOCTYPE: Final = "<!DOCTYPE html>\n"


def element(tag: str, *children: Child | Iterable[Child], **attributes: str) -> Element:
    """An element of texts and elements; None is left out. `class_` stands for class, `data_x` for data-x."""
    made = Element(tag, {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()})
    for child in children:
        if child is None or isinstance(child, Element | str):
            _append(made, child)
        else:
            for each in child:
                _append(made, each)
    return made


def rows(
    head: Sequence[str], body: Iterable[Sequence[Child]], *, numbers: frozenset[int] = frozenset()
) -> Element | None:
    """A table; the columns in `numbers` are set to the right. None when there is no row."""
    lines = [
        element(
            "tr", (element("td", cell, **({"class_": "number"} if i in numbers else {})) for i, cell in enumerate(line))
        )
        for line in body
    ]
    if not lines:
        return None
    titles = (
        element("th", title, scope="col", **({"class_": "number"} if i in numbers else {}))
        for i, title in enumerate(head)
    )
    table = element("table", element("thead", element("tr", titles)), element("tbody", lines))
    return element("div", table, class_="scroll")


def document(root: Element) -> str:
    """The page as text."""
    return _DOCTYPE + tostring(root, encoding="unicode", method="html") + "\n"


def _append(made: Element, child: Child) -> None:
    if child is None:
        return
    if isinstance(child, Element):
        made.append(child)
    elif len(made):
        made[-1].tail = (made[-1].tail or "") + child
    else:
        made.text = (made.text or "") + child
