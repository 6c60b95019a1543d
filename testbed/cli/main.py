"""Entry point of the command ``testbed``: how errors become messages and exit codes.

Nothing else is imported at the top, so that Ctrl-C while libraries are still being imported is
met here too.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.cli.streams import flush_or_silence, silence
from testbed.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_USER, TestbedError

EXIT_BROKEN_PIPE = 141
"""What a shell reports for any program whose reader went away: 128 + SIGPIPE."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main() -> None:
    """Run the command line of this process; never shows a traceback without ``--debug``."""
    try:
        arguments, debug = _take_debug(sys.argv[1:])
        code = _guarded(arguments, debug)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED  # while the message of an error was being printed
    # Python would replace the code by its own when it cannot write what is left.
    flush_or_silence(sys.stdout)
    flush_or_silence(sys.stderr)
    sys.exit(code)


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """Take ``--debug`` out, wherever it stands: people add it to the end of what failed."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    ours = [text for text in arguments[:end] if text != "--debug"]
    asked = os.environ.get("TESTBED_DEBUG", "").lower() not in {"", "0", "no", "off", "false"}
    return ours + arguments[end:], asked or len(ours) < end


def _guarded(arguments: list[str], debug: bool) -> int:
    try:
        with _leaving_at_once():
            from testbed.cli.app import invoke
        code = invoke(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        silence(sys.stdout)
        return EXIT_BROKEN_PIPE
    except TestbedError as error:
        if debug:
            raise
        return _say(f"{error.kind}: {error}", error.exit_code)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.errno in _FULL:
            silence(sys.stdout)
            return _say(f"store: the output cannot be written: {error.strerror}", EXIT_USER)
        remedy = "run again with --debug and report the traceback"
        message = f"internal: a defect of the testbed: {type(error).__name__}: {error}"
        return _say(f"{message}\n  remedy: {remedy}", EXIT_INTERNAL)
    return code


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """While nothing has begun, Ctrl-C ends the process there and then.

    As an exception it could surface in a callback of the import system, which prints a traceback
    and goes on.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # ignored on purpose (a job in the background), or not ours
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(_say("interrupted", EXIT_INTERRUPTED)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _say(message: str, code: int) -> int:
    """Print on standard error, whatever its encoding, and even when nobody reads it."""
    try:
        encoding = sys.stderr.encoding or "ascii"
        sys.stderr.write(message.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)
    return code
