"""Reading requirements.lock with the standard library: which packages, which versions, and what is missing."""

import importlib.metadata
import os
import re
import sys

from . import LOCK, ROOT

PYPROJECT = os.path.join(ROOT, "pyproject.toml")

# name==version, then at most one marker of the three forms that the lock uses
_LINE = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)"
    r'(?:\s*;\s*(?P<key>sys_platform|python_version)\s*(?P<op>==|!=|<)\s*"(?P<value>[^"]+)")?$'
)


def normal(name):
    """A package's name as indexes compare it: lower case, one dash for any run of `-_.`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def release(version):
    """`2.13.0+cpu` -> `2.13.0`: the local part says how it was built, not what it is."""
    return version.split("+")[0]


def numbers(version):
    """`2.9.1` -> (2, 9, 1), for comparing releases; stops at the first part that is not a number."""
    parts = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in parts.group().split(".")) if parts else ()


def _applies(key, op, value):
    if key is None:
        return True
    if key == "sys_platform":
        return (sys.platform == value) == (op == "==")
    return sys.version_info[:2] < numbers(value)


def pins(path=LOCK):
    """{normal name: version} of the lines of the lock that apply to this system and Python.

    Raises ValueError naming the first line that is not `name==version` with a known marker.
    """
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.split("#")[0].strip()
            if not line:
                continue
            match = _LINE.match(line)
            if not match or (match["key"] == "python_version") != (match["op"] == "<"):
                raise ValueError(f"{path}: can't read {line!r}; write name==version, or a marker as in the others")
            if _applies(match["key"], match["op"], match["value"]):
                found[normal(match["name"])] = match["version"]
    return found


def installed(path=None):
    """{normal name: version} of what this Python can import (or of the folders `path`); the first one found counts."""
    found = {}
    for dist in importlib.metadata.distributions(**({} if path is None else {"path": path})):
        name = dist.metadata["Name"]
        if name:
            found.setdefault(normal(name), dist.version)
    return found


def differences(wanted, present):
    """What of `wanted` is not `present`: [(name, wanted version, present version or None)], sorted."""
    return [
        (name, version, present.get(name))
        for name, version in sorted(wanted.items())
        if name not in present or release(present[name]) != release(version)
    ]


def accepts(name, version, pyproject=PYPROJECT):
    """Whether pyproject.toml's range for package `name` admits `version` (plain releases and >=, <, == only)."""
    with open(pyproject, encoding="utf-8") as file:
        match = re.search(rf'"{re.escape(name)}((?:[<>=]=?[\d.]+,?)+)"', file.read())
    if not match:
        return False
    have = numbers(version)
    compare = {
        ">=": lambda limit: have >= limit,
        "<": lambda limit: have < limit,
        "==": lambda limit: have == limit,
        "<=": lambda limit: have <= limit,
        ">": lambda limit: have > limit,
    }
    return all(compare[op](numbers(limit)) for op, limit in re.findall(r"([<>=]=?)([\d.]+)", match[1]))
