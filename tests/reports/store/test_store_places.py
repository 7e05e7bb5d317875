"""Places of stores: paths, URIs, and an object storage."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from perftest.results.folder import Folder, LocalFolder
from reports.errors import StoreError
from reports.store import places, store
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
    with pytest.raises(StoreError, match="HDFS cannot be reached"):
        place_of("hdfs://nowhere.invalid:1/x")


def test_an_object_storage_keeps_the_promises_of_a_folder(bucket: str) -> None:
    """As tests/perftest/results/test_results_folder.py has them for other folders."""
    for place in (f"s3a://{bucket}/deep/place", f"s3://{bucket}"):
        folder = place_of(place)
        assert folder.where == place and folder.names("nothing") == folder.files("nothing") == []
        assert folder.put_if_absent("a/b/c", b"first") and not folder.put_if_absent("a/b/c", b"second")
        assert folder.put_if_absent("a/d", b"")
        assert (folder.names("a"), folder.names("a/b")) == (["b", "d"], ["c"])
        assert [(entry.name, entry.octets) for entry in folder.files("a")] == [("a/b/c", 5), ("a/d", 0)]
        assert folder.files("a")[0].modified_ns > 0
        with folder.open("a/b/c") as file:
            assert file.read() == b"first"
        folder.delete("a/b/c")
        folder.delete("a/b/c")
        with pytest.raises(FileNotFoundError):
            folder.open("a/b/c")


def test_of_many_puts_at_once_one_wins(bucket: str) -> None:
    """The service decides (If-None-Match), not the client."""
    folders: list[Folder] = [place_of(f"s3a://{bucket}/x") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda at: folders[at].put_if_absent("name", str(at).encode()), range(8)))
    assert won.count(True) == 1
    with folders[0].open("name") as file:
        assert file.read() == str(won.index(True)).encode()


def test_a_store_in_an_object_storage(bucket: str) -> None:
    """Two writers at once both land, and a page reads what a local store would have held."""
    place = f"s3a://{bucket}/store"
    with Store.open(place).writer() as one, Store.open(place).writer() as other:
        one.add(small_run("a", 1))
        other.add(small_run("b", 2))
        other.add(LeftOut(source="runs/c", signature="c-0", reason="it is empty"))
        assert (other.publish().number, one.publish().number) == (1, 2)
    assert lost(place) == {"a": 1, "b": 2} and lost(place, ["a"]) == {"a": 1}
    assert Store.open(place).known() == {"runs/a": "a-1", "runs/b": "b-2", "runs/c": "c-0"}
    assert list(store.read_tables(place).ledger["lost"]) == [1, 2]


def test_a_bucket_that_is_not_there_is_told(bucket: str) -> None:
    """By reader and writer, before anything is computed."""
    place = f"s3a://no-{bucket}/store"
    with pytest.raises(StoreError, match="no such bucket") as caught:
        store.read_tables(place)
    assert caught.value.where.startswith(place)
    with pytest.raises(StoreError, match="no such bucket"), Store.open(place).writer():
        pytest.fail("the writer began")


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
    """Of both clients, which spell the codes differently."""
    assert words in str(places._of_service(code, "in its words"))


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
def refusing(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Refusing]]:
    """The environment leads to a service that refuses everything."""
    kind = type("RefusingInTest", (Refusing,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


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
    with pytest.raises(PermissionError, match=words):
        place_of(place).put_if_absent("a", b"")
    with pytest.raises(PermissionError, match=r"access denied|credentials"):
        place_of(place).open("a")
    with pytest.raises(PermissionError, match=words):
        place_of(place).delete("a")


def test_a_service_without_credentials_is_told(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the writer, which signs its requests."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(PermissionError, match="there are no credentials"):
        place_of(f"s3a://{bucket}/x").put_if_absent("a", b"")


def test_a_service_that_is_not_there_is_told(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StoreError, match="the service does not answer") as caught:
            store.read_tables(f"s3a://{bucket}/x")
        assert "AWS_ENDPOINT_URL" in caught.value.fix
        with pytest.raises(OSError, match="the service does not answer"):
            place_of(f"s3a://{bucket}/x").put_if_absent("a", b"")


def test_only_the_pipeline_writes_to_hdfs() -> None:
    """A reader's folder says so instead of doing it without the promise of one winner."""
    folder = places.ArrowFolder(system=None, root="/x", where="hdfs://host/x")
    with pytest.raises(StoreError, match="only the pipeline writes"):
        publish(FolderWithoutNames(folder), small_run("a", 1))


class FolderWithoutNames(MemoryFolder):
    """An empty folder that writes as another."""

    def __init__(self, writes: places.ArrowFolder) -> None:
        super().__init__()
        self.put_if_absent = writes.put_if_absent  # type: ignore[method-assign]
