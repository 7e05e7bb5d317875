"""Places of stores: paths, URIs, and an object storage."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from perftest.results.folder import LocalFolder
from reports.errors import PlaceError, StoreError
from reports.store import place_errors, places, store
from reports.store.places import place_of
from reports.store.run_tables import LeftOut
from reports.store.store import Store
from tests.perftest.testing.memory_folder import MemoryFolder
from tests.reports.store.testing.small_runs import lost, publish, small_run


def test_paths_and_uris_name_the_same_place(tmp_path: Path) -> None:
    """A path with a colon is no URI."""
    made = tmp_path / "a b:c"
    for place in (made, str(made), f"file:{made}", f"file://{str(made).replace(' ', '%20')}"):
        assert place_of(place) == LocalFolder(made)
    memory = MemoryFolder()
    assert place_of(memory) is memory


@pytest.mark.parametrize(
    ("uri", "words"),
    [("ftp://host/x", "no place of this kind"), ("s3a:/x", "no place"), ("s3a://key:word@b/x", "credentials")],
)
def test_places_that_nobody_knows_are_refused(uri: str, words: str) -> None:
    """And a secret in a URI is not repeated."""
    with pytest.raises(StoreError, match=words) as caught:
        place_of(uri)
    assert "word" not in caught.value.lines()


def test_hdfs_without_a_client_is_told() -> None:
    """Three lines instead of what a loader of libraries says."""
    with pytest.raises(PlaceError, match="the place cannot be reached") as caught:
        place_of("hdfs://nowhere.invalid/x")
    assert "HADOOP_HOME" in caught.value.fix


def put(place: str, name: str, content: bytes) -> None:
    system, root = places.opened(place)
    with system.open_output_stream(f"{root.rstrip('/')}/{name}") as file:
        file.write(content)


def test_an_object_storage_keeps_the_promises_of_a_folder(bucket: str) -> None:
    """As tests/perftest/results/test_results_folder.py has them for other folders."""
    for place in (f"s3a://{bucket}/deep/place", f"s3://{bucket}"):
        folder = place_of(place)
        assert folder.where == place and folder.names("nothing") == folder.files("nothing") == []
        put(place, "a/b/c", b"first")
        put(place, "a/d", b"")
        assert (folder.names("a"), folder.names("a/b")) == (["b", "d"], ["c"])
        assert [(entry.name, entry.octets) for entry in folder.files("a")] == [("a/b/c", 5), ("a/d", 0)]
        assert folder.files("a")[0].modified_ns > 0
        with folder.open("a/b/c") as file:
            assert file.read() == b"first"
        with pytest.raises(FileNotFoundError):
            folder.open("a/b/d")


def test_a_store_in_an_object_storage(bucket: str) -> None:
    """Two writers at once both land, and a page reads what a local store would have held."""
    place = f"s3a://{bucket}/store"
    with Store.open(place).publication() as one, Store.open(place).publication() as other:
        one.add(small_run("a", 1))
        other.add(small_run("b", 2))
        other.add(LeftOut(source="runs/c", signature="c-0", reason="it is empty"))
        assert (other.land().version, one.land().version) == (1, 2)
    assert lost(place) == {"a": 1, "b": 2} and lost(place, ["a"]) == {"a": 1}
    assert Store.open(place).known() == {"runs/a": "a-1", "runs/b": "b-2", "runs/c": "c-0"}
    assert list(store.read_tables(place).ledger["lost"]) == [1, 2]


def test_a_bucket_that_is_not_there_is_told(bucket: str) -> None:
    """By reader and writer, before anything is computed."""
    place = f"s3a://no-{bucket}/store"
    with pytest.raises(StoreError, match="no such bucket") as caught:
        store.read_tables(place)
    assert caught.value.where.startswith(place)
    with pytest.raises(StoreError, match="no such bucket"), Store.open(place).publication():
        pytest.fail("the publication began")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("AccessDenied", "access denied"),
        ("ACCESS_DENIED", "access denied"),
        ("NO_SUCH_BUCKET", "no such bucket"),
        ("InvalidAccessKeyId", "credentials"),
        ("SlowDown", "in its words"),
    ],
)
def test_errors_of_the_service_become_words(code: str, words: str) -> None:
    """Of Arrow and delta-rs, which spell the codes differently."""
    assert words in str(place_errors.of_service(code, "in its words"))


class Refusing(BaseHTTPRequestHandler):
    """An object storage that refuses everything, in its own words."""

    code = "AccessDenied"

    def do_GET(self) -> None:
        body = f"<Error><Code>{self.code}</Code><Message>no</Message></Error>".encode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_DELETE = do_POST = do_GET  # noqa: N815 - the names of the library

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
        """Nothing."""


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type[BaseHTTPRequestHandler]], None]]:
    """Serves, and lets the environment lead to the service."""
    with ExitStack() as stack:

        def serve(kind: type[BaseHTTPRequestHandler]) -> None:
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), kind))
            thread = Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")

        yield serve


@pytest.fixture
def refusing(bucket: str, serving: Callable[[type[BaseHTTPRequestHandler]], None]) -> type[Refusing]:
    """The environment leads to a service that refuses everything."""
    kind = type("RefusingInTest", (Refusing,), {})
    serving(kind)
    return kind


@pytest.mark.parametrize(
    ("code", "words"), [("AccessDenied", "access denied"), ("InvalidAccessKeyId", "does not accept the credentials")]
)
def test_a_bucket_without_permission_is_told(refusing: type[Refusing], code: str, words: str) -> None:
    """By reader and writer alike, with what a person can do."""
    refusing.code = code
    place = "s3a://forbidden/store"
    with pytest.raises(StoreError, match=words) as caught:
        store.read_tables(place)
    assert caught.value.where == place and "AWS_ACCESS_KEY_ID" in caught.value.fix
    with pytest.raises(StoreError, match=words):
        publish(place, small_run("a", 1))
    with pytest.raises(PermissionError, match=r"access denied|credentials"):
        place_of(place).open("a")


def test_a_service_without_credentials_is_told(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what a person can do."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match="credentials") as caught:
        publish(f"s3a://{bucket}/x", small_run("a", 1))
    assert "AWS_ACCESS_KEY_ID" in caught.value.fix


def test_a_service_that_is_not_there_is_told(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StoreError, match="the service does not answer") as caught:
            store.read_tables(f"s3a://{bucket}/x")
        assert "AWS_ENDPOINT_URL" in caught.value.fix


class Careless(BaseHTTPRequestHandler):
    """An object storage that puts a file over another although it was asked not to (no If-None-Match)."""

    kept: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        self.kept[self._key()] = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, b"", {"ETag": '"1"'})

    def do_GET(self) -> None:
        if "list-type" in self.path:
            prefix = parse_qs(urlsplit(self.path).query, keep_blank_values=True)["prefix"][0]
            found = [key for key in self.kept if key.removeprefix("/b/").startswith(unquote(prefix))]
            self._answer(200, _listing([(key.removeprefix("/b/"), len(self.kept[key])) for key in sorted(found)]))
        elif (content := self.kept.get(self._key())) is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._answer(200, content, {"ETag": '"1"', "Last-Modified": "Mon, 30 Nov 2026 12:00:00 GMT"})

    do_HEAD = do_GET  # noqa: N815 - the name of the library

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, b"<DeleteResult></DeleteResult>")

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
        """Nothing."""


def _listing(found: list[tuple[str, int]]) -> bytes:
    when = "<LastModified>2026-11-30T12:00:00.000Z</LastModified><ETag>1</ETag>"
    keys = (f"<Contents><Key>{key}</Key><Size>{size}</Size>{when}</Contents>" for key, size in found)
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(keys)}</ListBucketResult>".encode()


def test_a_service_that_cannot_exclude_two_writers_is_refused(
    bucket: str, serving: Callable[[type[BaseHTTPRequestHandler]], None]
) -> None:
    """Two reports at once would lose runs there, weeks later and without a word."""
    serving(type("CarelessInTest", (Careless,), {"kept": {}}))
    with pytest.raises(StoreError, match="two reports at once would lose runs") as caught:
        publish("s3a://b/store", small_run("a", 1))
    assert "If-None-Match" in caught.value.fix
