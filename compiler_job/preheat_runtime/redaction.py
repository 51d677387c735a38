"""Takes secrets out of words before anybody reads them.

Why it exists: verdicts, reports and logs, of Jobs and of pods, quote exceptions of users' code, and those quote what they were given: a URL with
its password, the token that was refused. What is quoted is rarely as it stands in the environment: it is folded into one
line, written as a literal, cut. So whoever folds or cuts words has to redact them first; the usual forms of a secret are
looked for all the same, because others fold and cut before us.
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NAME = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|(^|_)KEY($|_)|APIKEY|DSN", re.IGNORECASE)
#: Shorter values are words that stand in any text (`true`, `0`).
_SHORTEST = 6
#: A line of a secret of several lines is one, too, but for those that are the same in all (`-----BEGIN KEY-----`, `{`).
_SHORTEST_LINE = 12
#: What is left of a secret that somebody has cut is taken out where it is this long.
_SHORTEST_PIECE = 8
#: One URL up to the next space or URL: users write `:`, `/`, `@` and quotes into passwords as they are.
_URL = re.compile(
    r"(?P<before>['\"]?)(?P<scheme>\b[A-Za-z][\w+.-]{0,30}://)(?P<rest>(?:(?!\b[A-Za-z][\w+.-]{0,30}://)\S)*)"
)
_AUTHORITY = re.compile(r"[^/?#]*")
#: What is a host for sure, and no user: `https://example.org/model@v1` has none.
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|localhost|[\w-]+(\.[\w-]+)+", re.ASCII)
#: What follows these is a place and no host, which has users.
_PLACES = frozenset({"s3://", "gs://", "hf://", "az://", "file://"})
#: What follows a URL in a sentence, and is no part of it.
_AFTER = re.compile(r"[)\]}>,.;:'\"`]*$")
_CUT = re.compile(r"\s{0,9}(?:\.\.\.|…|\[\.\.\.\]|$)")
_GOES_ON = re.compile(r"(?:\.\.\.|…)\s*")

#: Code of the user's may take a secret out of the environment once it has read it.
_AT_FIRST = dict(os.environ)


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` without users, queries and fragments of URLs, and without values of environment variables that look secret.

    Also without what UTF-8 cannot hold (undecodable file names), which is escaped: everything that is redacted is
    written somewhere. `environment` is by default this process's own, as it was when this module was imported (in a compile Job at
    the start of the process, in a pod at the first error) and as it is now.
    """
    return redactor(environment)(text)


def redactor(environment: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """`redact` for many texts in the same environment."""
    values = [*_AT_FIRST.items(), *os.environ.items()] if environment is None else environment.items()
    secrets = _forms(tuple(sorted({(name, value) for name, value in values if _NAME.search(name)})))

    def of(text: str) -> str:
        # Secrets first: what is left of a URL is none of their forms any more.
        for form, name in secrets:
            text = text.replace(form, name)
        for form, name in secrets:
            text = _without_pieces(text, form, name)
        return printable(_URL.sub(_without_user, text))

    return of


def redacted(value: Any, of: Callable[[str], str]) -> Any:
    """What will be written as JSON, with each text in it put through `of`; names of fields are nobody's words."""
    if isinstance(value, str):
        return of(value)
    if isinstance(value, dict):
        return {printable(str(key)): redacted(item, of) for key, item in value.items()}
    return [redacted(item, of) for item in value] if isinstance(value, (list, tuple)) else value


def printable(text: str) -> str:
    """`text` with what UTF-8 cannot hold as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@lru_cache(maxsize=8)
def _forms(named: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Each form of each secret with what is written in its place; longer ones first, since one may hold another."""
    forms: dict[str, str] = {}
    for name, value in named:
        stripped = value.strip()
        if len(stripped) < _SHORTEST:
            continue
        lines = [line.strip() for line in stripped.splitlines()]
        long = [line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----")]
        for text in [stripped, " ".join(stripped.split()), *(long if len(lines) > 1 else [])]:
            for form in _written(text):
                forms.setdefault(form, f"<{name}>")
    return tuple(sorted(forms.items(), key=lambda item: -len(item[0])))


def _written(text: str) -> list[str]:
    """`text` as it is, as Python and JSON write it (also within what is written so in turn), and as URLs do."""
    literal = repr(text)[1:-1]
    # Between quotes of the other kind than repr chooses for it alone.
    quoted = [literal, literal.replace("'", "\\'"), literal.replace('"', '\\"')]
    json_text = [json.dumps(text, ensure_ascii=ascii_)[1:-1] for ascii_ in (True, False)]
    twice = [repr(each)[1:-1] for each in (literal, *json_text)]
    urls = [form(text, safe=safe, errors="replace") for form in (quote, quote_plus) for safe in ("", "/")]
    return [text, *quoted, *json_text, *twice, *urls]


def _without_pieces(text: str, form: str, name: str) -> str:
    """`text` without a beginning of `form` that ends in dots or at the end, and without an end of it that dots precede."""
    if len(form) <= _SHORTEST_PIECE:
        return text
    sizes = range(len(form) - 1, _SHORTEST_PIECE - 1, -1)
    if form[:_SHORTEST_PIECE] in text:
        for start in [cut.start() for cut in _CUT.finditer(text)][::-1]:
            kept = next((size for size in sizes if text.endswith(form[:size], 0, start)), 0)
            if kept:
                text = text[: start - kept] + name + text[start:]
    if form[-_SHORTEST_PIECE:] in text:
        for end in [dots.end() for dots in _GOES_ON.finditer(text)][::-1]:
            kept = next((size for size in sizes if text.startswith(form[-size:], end)), 0)
            if kept:
                text = text[:end] + name + text[end + kept :]
    return text


def _without_user(found: re.Match[str]) -> str:
    before, scheme, rest = found["before"], found["scheme"], found["rest"]
    authority = _AUTHORITY.match(rest)
    first = authority[0] if authority else ""
    if "@" in rest and (re.search(r"[:@]", first) or not (scheme in _PLACES or not first or _HOST.fullmatch(first))):
        rest = rest.rpartition("@")[2]
    start = re.search(r"[?#]", rest)
    if start is not None:
        query = rest[start.start() :]
        # Of a URL in quotes the query ends with them; else what a sentence has after it stays.
        end = query.find(before) if before else -1
        rest = rest[: start.start()] + (query[end:] if end >= 0 else _AFTER.search(query)[0])  # type: ignore[index]
    return f"{before}{scheme}{rest}"
