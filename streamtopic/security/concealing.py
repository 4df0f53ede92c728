"""Passwords stay out of output, logs and errors.

`shown_address` is for an address that is a setting. `conceal` is for text that may hold addresses or named passwords.
"""

import re

__all__ = ["HIDDEN", "clear_address", "conceal", "shown_address"]

HIDDEN = "***"
# An address that can be read in one way only. A reserved character in a password must be percent-encoded. If it is
# not, nobody can say at which "/", "?" or "@" the password ends.
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]*)?"
_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:(?P<user>[^/?#\s]*)@)?"
    rf"(?P<server>(?:{_HOST}(?:,{_HOST})*)?)"
    r"(?P<path>/[^?#@\s]*)?"
    r"(?P<query>\?[^#@\s]*)?"
)
# The path of these addresses is the number of a database, so other text there is part of a password.
_NUMBERED = ("redis", "rediss", "redis+cluster", "rediss+cluster")
_NUMBER = re.compile(r"(?:/[0-9]*)?")
# With sentinels it is the name of a service, perhaps with a number.
_SERVED = ("redis+sentinel", "rediss+sentinel")
_SERVICE = re.compile(r"/[A-Za-z0-9._-]+(?:/[0-9]+)?")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_NAMED = re.compile(
    r"""(?ix) (?P<name> [\w.-]* (?: password | passwd | secret | sasl\.jaas\.config ) [\w.-]* ["']? \s* [=:] \s* )
    (?P<value> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;)}&]+ )"""
)


def clear_address(url: str) -> re.Match[str] | None:
    """Return the parts of an address (scheme, user, server, path, query); None unless there is one way to read it."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        return None
    path = _NUMBER if found["scheme"] in _NUMBERED else _SERVICE if found["scheme"] in _SERVED else None
    return found if path is None or path.fullmatch(found["path"] or "") else None


def shown_address(url: str) -> str:
    """Return an address without its password and without values of its query; the scheme alone if it is malformed."""
    found = clear_address(url)
    if found is None:
        scheme, mark, _ = url.partition("://")
        return f"{scheme}://{HIDDEN}" if mark else HIDDEN
    login = _shown_login(found["user"])
    path = found["path"] or ""
    query = f"?{HIDDEN}" if found["query"] else ""
    return f"{found['scheme']}://{login}{found['server']}{path}{query}"


def _shown_login(login: str | None) -> str:
    """Return the part of an address up to "@", without its password; "" without a login."""
    if login is None:
        return ""
    user, colon, _ = login.partition(":")
    # A user without a password may be a password without a user.
    if not colon:
        return f"{HIDDEN}@"
    named = user if _PLAIN_NAME.fullmatch(user) else HIDDEN
    return f"{named}:{HIDDEN}@"


def conceal(text: str) -> str:
    """Return text with passwords in addresses hidden, and values of settings whose name says password or secret."""
    if "://" in text:
        text = _URL.sub(lambda found: _concealed(found[0]), text)
    return _NAMED.sub(lambda found: found["name"] + HIDDEN, text)


def _concealed(url: str) -> str:
    """Return an address as `shown_address` does; the address of a page of documentation stays."""
    # Pages of documentation have neither a login nor a query.
    page = url.startswith(("http://", "https://")) and not {"@", "?"} & set(url)
    return url if page else shown_address(url)
