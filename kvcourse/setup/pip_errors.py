"""What pip printed, as one sentence and one command."""

import re

from . import call

_UNREACHABLE = re.compile(
    r"Temporary failure in name resolution|Name or service not known|nodename nor servname|getaddrinfo failed"
    r"|NewConnectionError|Failed to establish a new connection|Connection refused|Network is unreachable"
    r"|ConnectTimeout|ReadTimeout|Read timed out|connection (?:broken|timed out)|Max retries exceeded|ProxyError"
    r"|RemoteDisconnected|ConnectionResetError",
    re.IGNORECASE,
)


def explain(log, again="lab", python=""):
    """(sentence, command) for the output `log` of a failed pip; `again` is the command of ours to repeat.

    `python` describes the Python that pip looked for, for the case that an index has no build for it.
    """
    if re.search(r"No space left on device|Errno 28|not enough space on the disk", log):
        return "the disk is full; nothing unfinished is used: make room, then run again:", call(again)
    if re.search(r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError", log):
        return (
            "the package index answers with a certificate that pip does not trust (often a company proxy); give pip "
            "the proxy's certificate, then run again:",
            "pip config set global.cert FILE",
        )
    if re.search(r"DO NOT MATCH THE HASHES|incomplete-download|BadZipFile|is not a zip file|invalid wheel", log, re.I):
        return "a download came damaged and was thrown away; empty pip's store and run again:", "pip cache purge"
    lacking = re.search(r"(?:No matching distribution found for|satisfies the requirement) ([^\s(]+)", log)
    if _UNREACHABLE.search(log):
        return _unreachable(again)
    if lacking and re.search(r"from versions: none", log):
        sentence, command = _unreachable(again)
        what = lacking[1] + (" for " + python if python else "")
        return f"the index offers no version at all of {what}: most likely {sentence}", command
    if lacking:
        return (
            f"the package index in use (a mirror?) lacks {lacking[1]}; point pip at a complete one and run again:",
            "pip config set global.index-url ADDRESS-OF-THE-INDEX",
        )
    if re.search(r"ResolutionImpossible|conflicting dependencies|The user requested \(constraint\)", log):
        return (
            "pip is told elsewhere on this machine to use versions that contradict the lock (a configuration or "
            "PIP_CONSTRAINT); look at what it is told:",
            "pip config list",
        )
    if re.search(r"Permission denied|Errno 13|Access is denied", log):
        return (
            "pip may not write into .venv (made by another user, or in use by a running JupyterLab); close that, or "
            "remove the folder .venv, then run again:",
            call(again),
        )
    errors = [line for line in log.splitlines() if re.match(r"\s*(ERROR|error):", line)]
    last = errors[-1].split(":", 1)[1].strip() if errors else "it gave no reason"
    return f"pip failed: {last}; the whole output is in .venv/kvcourse-pip.log; to try again:", call(again)


def _unreachable(again):
    return "the package index can't be reached; check the network or the proxy (HTTPS_PROXY), then run again:", call(
        again
    )
