"""Text that came from a file or a name, made fit for a terminal.

A terminal obeys what it is sent: an escape sequence in the name of a class can rewrite what was printed, and
a mark of writing direction can turn a line around. Half of a surrogate pair cannot be sent at all.
"""

from __future__ import annotations

import unicodedata

_HARMLESS = {"\n", "\t"}


def printable(text: str) -> str:
    """The text with control characters, marks of direction and lone surrogates written out.

    >>> printable("dog\\x1b[2J\\u202egod")
    'dog\\\\x1b[2J\\\\u202egod'
    """
    # One check for the common case: text of letters, digits and signs is returned as it is.
    return text if text.isprintable() else "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    kind = unicodedata.category(character)
    if character in _HARMLESS or kind not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode("ascii")
