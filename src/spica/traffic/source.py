"""Getting text lines and JSON values out of a trace file, plain or gzip, with line numbers."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from spica.errors import Problem, TraceError
from spica.traffic.collect import Gathered

_GZIP_MAGIC: Final = b"\x1f\x8b"


def _refuse(path: Path, message: str, remedy: str = "") -> TraceError:
    return TraceError(Problem(message, where=str(path), remedy=remedy))


def _open(path: Path) -> BinaryIO:
    """The file's (unpacked) bytes. TraceError when it is missing, a directory, empty or unreadable."""
    try:
        if path.is_dir():
            raise _refuse(path, "is a directory", "name one trace file")
        if path.exists() and not path.is_file():
            raise _refuse(path, "is not a regular file")
        stream = path.open("rb")
    except FileNotFoundError:
        raise _refuse(path, "no such file") from None
    except (OSError, ValueError) as error:
        raise _refuse(path, f"cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    magic = stream.read(2)
    stream.seek(0)
    if not magic:
        stream.close()
        raise _refuse(path, "is empty", "a trace holds one request per row")
    if magic == _GZIP_MAGIC:
        stream.close()
        return cast("BinaryIO", gzip.open(path, "rb"))
    return stream


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and the lines without their ends. TraceError if not UTF-8 or broken gzip."""
    number = 0
    with _open(path) as stream:
        try:
            for raw in stream:
                number += 1
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.rstrip("\r\n")
        except UnicodeDecodeError as error:
            message = f"byte {error.start + 1} of the line is not UTF-8"
            raise TraceError(Problem(message, where=f"{path}:{number}")) from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            remedy = "the file is cut short or damaged; fetch it again"
            raise _refuse(path, f"broken gzip after line {number}: {error}", remedy) from None
        except OSError as error:
            raise _refuse(path, f"cannot be read: {error.strerror or error}") from None


class _DuplicateKey(ValueError):
    pass


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise _DuplicateKey(f"key {twice!r} stands there twice")
    return made


#: JSON as traces need it: ints of any size stay exact, a duplicate key is an error.
DECODER: Final = json.JSONDecoder(object_pairs_hook=_object)


def decode_error(error: Exception) -> str:
    """What is wrong with a piece of JSON, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    if isinstance(error, RecursionError):
        return "not a row: nested too deeply"
    if isinstance(error, _DuplicateKey):
        return str(error)
    return "not JSON: a number with too many digits"


def json_rows(path: Path, gathered: Gathered) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of a JSON-lines file with their line numbers; blank lines are skipped, others noted."""
    for number, text in numbered_lines(path):
        if not text.strip():
            continue
        try:
            row = DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            gathered.add(number, decode_error(error))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            gathered.add(number, "not a JSON object", allowed="one object per line")


def json_document(path: Path, gathered: Gathered) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of a JSON list, each with the line it starts on; or the one object of the file."""
    text = "\n".join(line for _, line in numbered_lines(path))
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        yield from _single(text, at, gathered)
        return
    line, counted = 1, 0
    at = _skip(text, at + 1)
    while text[at : at + 1] not in ("]", ""):
        line, counted = line + text.count("\n", counted, at), at
        try:
            row, end = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            gathered.add(line, decode_error(error).split(" at column")[0])
            return
        if isinstance(row, dict):
            yield line, row
        else:
            gathered.add(line, "an entry of the list is not a JSON object")
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            break
    if text[at : at + 1] != "]" or _skip(text, at + 1) != len(text):
        gathered.add(1 + text.count("\n", 0, at), "the JSON list does not end properly here")


def _single(text: str, at: int, gathered: Gathered) -> Iterator[tuple[int, dict[str, object]]]:
    line = 1 + text.count("\n", 0, at)
    try:
        row, end = DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        gathered.add(line, decode_error(error))
        return
    if not isinstance(row, dict) or _skip(text, end) != len(text):
        gathered.add(line, "not a JSON object", allowed="a list of objects, or one object")
        return
    yield line, row


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
