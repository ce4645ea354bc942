"""An S3 server for tests, which records all requests. The server itself is moto's."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from pyarrow.fs import S3FileSystem

BUCKET = "captures"


class Asked(NamedTuple):
    """One request.

    first, last: the range of bytes that was requested; None for the whole object.
    """

    method: str
    path: str
    first: int | None
    last: int | None


class ObjectStore:
    """A server that listens on a port from the beginning, and answers from the first `put` onward.

    Attributes:
        asked: all requests, in order.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._system: Any = None
        self._server: Any = None

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
        self._socket.close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which tools find the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "something",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def put(self, name: str, content: bytes) -> str:
        """Store an object. Return its URI."""
        if self._server is None:
            self._start()
        with self._system.open_output_stream(f"{BUCKET}/{name}") as stream:
            stream.write(content)
        return f"s3://{BUCKET}/{name}"

    def _start(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        answer: Any = DomainDispatcherApplication(create_backend_app)

        def noting(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
            first, _, last = environ.get("HTTP_RANGE", "").removeprefix("bytes=").partition("-")
            places = (int(first), int(last)) if last else (None, None)
            self.asked.append(Asked(environ["REQUEST_METHOD"], environ["PATH_INFO"], *places))
            return answer(environ, start)

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        host, port = self._socket.getsockname()
        self._server = make_server(host, port, noting, threaded=True, fd=self._socket.fileno())
        threading.Thread(target=self._server.serve_forever, name="S3", daemon=True).start()
        self._system = S3FileSystem(
            endpoint_override=self.address,
            scheme="http",
            region="us-east-1",
            access_key="somebody",
            secret_key="something",
            allow_bucket_creation=True,
        )
        self._system.create_dir(BUCKET)
