"""A server of this process, and what it serves: for the tests of the service."""

import contextlib
import json
import threading
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TEXTS = ["a body of salt water", "an animal that barks", "a stream of water"] * 8
TAGS = [["water"], ["animal", "dog"], ["water", "river"]] * 8
OTHER = [[f"{tag}!" for tag in tags] for tags in TAGS]


class Client:
    """Sends requests to a server."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path):
        with urlopen(self.url + path, timeout=30) as answer:
            return answer.read().decode()

    def health(self):
        return json.loads(self.get("/health"))

    def post(self, body, path="/predict"):
        """Status, body and headers of an answer."""
        headers = {"Content-Type": "application/json"}
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(self.url + path, body, headers)
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer), answer.headers
        except HTTPError as error:
            return error.code, json.load(error), error.headers

    def ask(self, samples, k=3):
        return self.answer("/predict", samples=samples, k=k)

    def answer(self, path, **body):
        status, answer, _ = self.post(body, path)
        assert status == 200, answer
        return answer


@contextlib.contextmanager
def running(app):
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Client(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
