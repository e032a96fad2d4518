# SPDX-License-Identifier: Apache-2.0
"""Replace names in evidence before it is given away: hosts, users, VMs, paths, serial numbers and addresses (pure).

Two passes. The first learns names where a language says what they are: a key of JSON, an element of XML, an option of
QEMU, a URI, a path. The second replaces them everywhere, in every spelling that the languages have, the same name
always by the same word. Addresses are recognised by their form.
"""

import contextlib
import html
import json
import pkgutil
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

_LISTS: dict[str, frozenset[str]] = {
    name: frozenset(words)
    for name, words in json.loads(pkgutil.get_data("virtune.dialects.text", "anonymous.json") or b"").items()
}
WORDS = _LISTS["words"]
"""Words of virtune's own documents and of those of fio, QEMU and libvirt. A name that is one of them is replaced only
where it stands for a name."""

COMPONENTS = _LISTS["components"] | {""}
"""Parts of a path that every system has."""

SYSTEM_PATH = re.compile(r"/(?:proc|sys|bin|sbin|lib|lib64|usr/(?:bin|sbin|lib\w*|libexec|share))(?:/|\Z)")
"""Paths of packages and of the kernel; names in them, such as of a control group, are replaced all the same."""

DEVICE_NODE = re.compile(
    r"(?:sd[a-z]{1,3}|[vh]d[a-z]{1,2}|xvd[a-z]|nvme\d+(?:c\d+)?(?:n\d+)?|loop\d+|md\d+|dm-\d+|nbd\d+|zram\d+"
    r"|mmcblk\d+|ram\d+)(?:p?\d+)?|\d+|tty\w*|fd"
)

OWN_COMPONENT = re.compile(
    r"virtune(?:-(?:run-)?[\d.-]*(?:[0-9a-f]{4}(?:-\d+)?)?)?(?:\.(?:raw|qcow2|sqlite|sock|log))?"
    r"|(?:agent|channel|console|qmp|monitor|serial|ring|pid|vhost)[-\d]*(?:\.(?:sock|log|pid|txt))?"
)
"""Files and directories that virtune itself names."""

ENDINGS = _LISTS["endings"]

KNOWN_HOSTS = _LISTS["hosts"]
"""Hosts in the names of schemas and sources, which are everybody's."""


_IN_QUOTES = r"""(?:\\?"((?:[^"\\<>\n]|\\(?!").)+)\\?"|'([^'<>\n]+)')"""
_BARE = r"([^\s,;'\"<>{}\\]+)"


def _value_of(keys: str) -> str:
    """Return a pattern for the value of a key in JSON, XML attributes, QEMU options and `key=value` lines."""
    return rf"""(?<![\w-])\\?["']?(?:{keys})\\?["']?\s*[:=]\s*(?:{_IN_QUOTES}|(?<==){_BARE})"""


_LEARNT: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(text, re.IGNORECASE))
    for kind, text in (
        ("vm", rf"<(?:name|title)>([^<]+)</|(?<!-)-name\s+'?(?:guest=)?{_BARE}"),
        ("vm", _value_of("guest|domain|domain_name")),
        ("host", rf"<host(?:name)?>([^<]+)</|<host\b[^<>]*\bname\s*=\s*{_IN_QUOTES}"),
        ("host", _value_of("hostname|host_name|nodename|fqdn")),
        ("user", rf"(?:/home|/media|/run/media)/([^/\s'\"<>\\,:]+)|{_value_of('user|username|login|owner')}"),
        ("serial", rf"<(?:serial|wwn|wwid)>([^<]+)</|{_value_of('serial|serial_?number|wwn|wwid|eui(?:64)?|nguid')}"),
        ("volume", rf"<source\b[^<>]*\bname\s*=\s*{_IN_QUOTES}|{_value_of('label|pool|volume|lv_name|vg_name')}"),
    )
)  # fmt: skip
"""Where a language says that a word is a name, by what it names; the groups of a pattern hold the name."""

_PATH_KEYS = (
    "path", "directory", "mount_point", "filename", "file", "dev", "dir", "source", "socket", "target", "scratch",
    "image", "nvram",
)  # fmt: skip
_PATH_VALUE = re.compile(_value_of("|".join(_PATH_KEYS)))
_URI = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,30}://(?:([^\s/@:\"'<>]+)(?::[^\s/@\"'<>]*)?@)?(\[[0-9a-f:.]+\]|[^\s/:\"'<>?#,\\@]+)"
    r"(/[^\s\"'<>?#,\\]*)?",
    re.IGNORECASE,
)
_REMOTE = re.compile(r"(?<![\w./-])(?:([\w.-]+)@)?([A-Za-z][\w.-]*[A-Za-z0-9]):(/(?!/)[\w./@%+-]*)")
_PATH = re.compile(r"(?<![\w.<~/:-])/(?:[\w.@%+=:~\\#-]+/)*[\w.@%+=:~\\#-]*|(?<=:///)[\w./@%+=:~#-]+")
_PATH_AFTER_COLON = re.compile(r"(?<=:)/(?:[\w.@%+=~#-]+/)*[\w.@%+=~#-]+")

_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])|\b[0-9a-f]{32}\b", re.IGNORECASE
)
_MAC = re.compile(r"(?<![0-9a-f:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![0-9a-f:])", re.IGNORECASE)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6})"
                   r"(?![\w:.])", re.IGNORECASE)  # fmt: skip
_NOBODYS_ADDRESS = re.compile(r"127\.|0\.0\.0\.0|255\.")

_POOL = re.compile(r"[A-Za-z][\w.-]*(?:/[\w.@-]+)+")
"""A dataset or an image of a pool, as ZFS and Ceph name it."""

_DEVICE_NUMBER = re.compile(r"\d+(?::\d+)?")

_GLOBAL_MIN = 3
"""A shorter name is replaced only where it is known to be one: elsewhere it is more often part of a word."""

_UNBOUNDED_MIN = 6
"""A name of so many characters is replaced within longer words too (`billing` in `billing2`)."""

_SHORT_DOMAIN = 20
"""libvirt shortens a domain's name to so many characters in names of directories (virDomainObjGetShortName)."""


class Anonymous:
    """Words for names: first `learn` every text, then `cleaned` replaces their names."""

    def __init__(self, given: Iterable[tuple[str, str]] = (), *, ours: Iterable[str] = ()) -> None:
        self._known: dict[str, str] = {}
        self._made: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._ours = WORDS | {one.lower() for one in ours}
        self._everywhere: dict[str, str] = {}
        self._pattern: tuple[tuple[str, re.Pattern[str], str], ...] | None = None
        self.left: set[str] = set()
        for kind, name in given:
            self._learn(kind, name)

    def learn(self, text: str) -> None:
        """Learn the names in a text of any language."""
        for kind, pattern in _LEARNT:
            for found in pattern.finditer(text):
                for raw in filter(None, found.groups()):
                    self._learn(kind, raw)
        for found in _URI.finditer(text):
            self._learn_host(found[2])
            self._learn("user", found[1] or "")
        for found in _REMOTE.finditer(text):
            self._learn_host(found[2])
            self._learn("user", found[1] or "")
        for found in _PATH_VALUE.finditer(text):
            for raw in filter(None, found.groups()):
                if _plain(raw).startswith("/"):
                    self._path(_plain(raw))
        for pattern in (_PATH, _PATH_AFTER_COLON):
            for found in pattern.finditer(text):
                self._path(found[0])

    def cleaned(self, text: str) -> str:
        """Return a text with its names replaced."""
        text = _UUID.sub(lambda found: self._address("uuid", found[0]), text)
        text = _MAC.sub(lambda found: self._address("mac", found[0]), text)
        text = _IPV4.sub(lambda found: self._address("ipv4", found[0]), text)
        text = _IPV6.sub(lambda found: self._address("ipv6", found[0]), text)
        for kind, pattern in _LEARNT:
            text = pattern.sub(lambda found, kind=kind: self._in_place(kind, found), text)  # type: ignore[misc]
        text = _PATH_VALUE.sub(self._path_in_place, text)
        text = self._names_replaced(text)
        text = _URI.sub(self._uri_in_place, text)
        text = _PATH.sub(lambda found: self._path(found[0]), text)
        return _PATH_AFTER_COLON.sub(lambda found: self._path(found[0]), text)

    def cleaned_value(self, value: Any, key: str = "") -> Any:
        """Return a value of a JSON document with the names in its texts replaced."""
        if isinstance(value, dict):
            return {self._names_replaced(name): self.cleaned_value(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.cleaned_value(one, _key_at(value, at, key)) for at, one in enumerate(value)]
        if not isinstance(value, str):
            return value
        if key in _PATH_KEYS and (value.startswith("/") or _POOL.fullmatch(value)):
            return self._path(value)
        # the words around a value say what it is
        written = self.cleaned(f'"{key}": {json.dumps(value, ensure_ascii=False)}')
        try:
            return json.loads(f"{{{written}}}").popitem()[1]
        except ValueError:
            return self.cleaned(value)

    def learn_value(self, value: Any, key: str = "") -> None:
        """Learn the names in a value of a JSON document."""
        if isinstance(value, dict):
            for name, one in value.items():
                self.learn_value(one, name)
            if "born_ns" in value:  # what identifies an image: its device's persistent name
                for word in str(value.get("device", "")).split():
                    if not word.startswith("/") and not _DEVICE_NUMBER.fullmatch(word):
                        self._learn("serial", word)
        elif isinstance(value, list):
            for at, one in enumerate(value):
                self.learn_value(one, _key_at(value, at, key))
        elif isinstance(value, str):
            self.learn(f'"{key}": {json.dumps(value, ensure_ascii=False)}')
            self.learn(value)

    def _learn(self, kind: str, raw: str) -> None:
        name = _plain(raw).strip()
        if _is_name(name) and not name.startswith("/"):
            self._word(kind, name)

    def _learn_host(self, host: str) -> None:
        if host.startswith("[") or host.lower() in KNOWN_HOSTS or _IPV4.fullmatch(host):
            return
        self._learn("host", host)
        first, dot, domain = host.partition(".")
        if dot:  # the host is called by its first name too
            self._everywhere.setdefault(first, self._word("host", host))
            self._learn("network", domain)

    def _word(self, kind: str, name: str) -> str:
        """Return the word for a name, a new one where it has none, and let it be replaced everywhere if it can be."""
        known = self._known.get(name.lower())
        if known is not None:
            return known
        self._counts[kind] += 1
        word = self._known[name.lower()] = f"{kind}-{self._counts[kind]}"
        self._made.add(word)
        if len(name) < (_UNBOUNDED_MIN if name.isdigit() else _GLOBAL_MIN) or name.lower() in self._ours:
            if kind != "name":  # a part of a path is replaced in every path
                self.left.add(name)
        else:
            self._everywhere[name] = word
            if len(name) > _SHORT_DOMAIN and kind == "vm":
                self._everywhere[name[:_SHORT_DOMAIN]] = word
            self._pattern = None
        return word

    def _address(self, kind: str, text: str) -> str:
        """Return an address of the same form that nobody has (RFC 5737, RFC 3849)."""
        if kind == "ipv4" and (_NOBODYS_ADDRESS.match(text) or any(int(one) > 255 for one in text.split("."))):
            return text
        if text.startswith(("52:54:00:00:00:", "00000000-0000-4000-8000-", "192.0.2.", "2001:db8::")):
            return text
        plain = text.replace("-", "").lower() if kind == "uuid" else text.lower()
        if plain not in self._known:
            self._counts[kind] += 1
            number = self._counts[kind]
            self._known[plain] = {
                "uuid": f"00000000-0000-4000-8000-{number:012d}",
                "mac": f"52:54:00:00:{number // 256 % 256:02x}:{number % 256:02x}",
                "ipv4": f"192.0.2.{number}" if number < 255 else f"198.51.{100 + number // 255 % 100}.{number % 255}",
                "ipv6": f"2001:db8::{number:x}",
            }[kind]
        return self._known[plain]

    def _in_place(self, kind: str, found: re.Match[str]) -> str:
        number = next((at for at in range(1, len(found.groups()) + 1) if found[at]), 0)
        name = _plain(found[number] or "").strip()
        if not number or not _is_name(name) or name.startswith("/"):
            return found[0]
        if name in self._made:
            return found[0]
        start, end = found.start(number) - found.start(), found.end(number) - found.start()
        return found[0][:start] + self._word(kind, name) + found[0][end:]

    def _path_in_place(self, found: re.Match[str]) -> str:
        number = next((at for at in range(1, len(found.groups()) + 1) if found[at]), 0)
        raw = found[number] if number else ""
        if not raw or not _plain(raw).startswith("/"):
            return found[0]
        start, end = found.start(number) - found.start(), found.end(number) - found.start()
        return found[0][:start] + self._path(_plain(raw)) + found[0][end:]

    def _uri_in_place(self, found: re.Match[str]) -> str:
        if not found[3] or found[2].lower() in KNOWN_HOSTS:
            return found[0]
        return found[0][: found.start(3) - found.start()] + self._path(found[3])

    def _path(self, path: str) -> str:
        """Return a path with what is not a system's own replaced, part by part."""
        if SYSTEM_PATH.match(path):
            return path
        parts = path.split("/")
        return "/".join(self._part(one, parts[at - 1] if at else "") for at, one in enumerate(parts))

    def _part(self, part: str, above: str) -> str:
        if part.lower() in COMPONENTS or DEVICE_NODE.fullmatch(part) or OWN_COMPONENT.fullmatch(part):
            return part
        stem, dot, ending = part.rpartition(".")
        if not dot or ending.lower() not in ENDINGS:
            stem, ending = part, ""
        if stem in self._made or stem.lower() in COMPONENTS:
            return part
        word = self._word("user" if above in ("home", "media") else "name", stem)
        return f"{word}.{ending}" if ending else word

    def _names_replaced(self, text: str) -> str:
        if self._pattern is None:
            self._pattern = tuple(_patterns(self._everywhere))
        lowered = text.lower()
        for spelled, pattern, word in self._pattern:
            if spelled in lowered:
                text = pattern.sub(word, text)
                lowered = text.lower()
        return text


def _patterns(names: dict[str, str]) -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Yield each spelling of each name, its pattern and its word; the longest first: one may be in another."""
    spellings = {spelled: (name, word) for name, word in names.items() for spelled in _spellings(name)}
    for spelled in sorted(spellings, key=lambda one: (-len(one), one)):
        name, word = spellings[spelled]
        bounded = len(name) < _UNBOUNDED_MIN or name.isdigit()
        before, after = (r"(?<![^\W_])", r"(?![^\W_])") if bounded else ("", "")
        yield spelled.lower(), re.compile(before + re.escape(spelled) + after, re.IGNORECASE), word


def _spellings(name: str) -> set[str]:
    """Return a name as JSON, JSON in JSON, XML, HTML, URIs, shells, fio, systemd and the kernel's tables write it."""
    as_json = {json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1]}
    octal = re.sub(r"[ \t\n\\#]", lambda found: f"\\{ord(found[0]):03o}", name)
    systemd = "".join(c if c.isascii() and (c.isalnum() or c in ":_.") else _hexed(c) for c in name)
    found = {
        name, *as_json, *(json.dumps(one)[1:-1] for one in as_json), html.escape(name),
        html.escape(name, quote=False), name.encode("ascii", "xmlcharrefreplace").decode(),
        quote(name, safe="", errors="replace"), quote(name, errors="replace"), name.replace("'", "'\"'\"'"),
        name.replace(":", "\\:"), name.replace(",", ",,"),
        octal, octal.replace("\\", "\\\\"), systemd, systemd.replace("\\", "\\\\"),
    }  # fmt: skip
    return {one for one in found if one}


def _key_at(values: list[Any], at: int, key: str) -> str:
    """Return the key of a value in a list: the word before it where the list is a pair of a name and its value."""
    if at == 1 and len(values) == 2 and isinstance(values[0], str):
        return values[0].rpartition(".")[2]
    return key


def _hexed(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def _plain(raw: str) -> str:
    """Return a name without the escapes of JSON, XML and URIs."""
    if "\\" in raw:
        with contextlib.suppress(ValueError):
            raw = str(json.loads(f'"{raw}"'))
    raw = html.unescape(raw) if "&" in raw else raw
    return unquote(raw) if re.search(r"%[0-9a-f]{2}", raw, re.IGNORECASE) else raw


def _is_name(text: str) -> bool:
    return bool(text) and text.lower() not in ("null", "none", "true", "false", "localhost", "root", "unix")
