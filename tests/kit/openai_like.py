"""A chat model with the name and the settings of LangChain's for OpenAI, over HTTP, and a server that counts its requests."""

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field


class ChatOpenAI(BaseChatModel):
    """Calls the server of OPENAI_BASE_URL."""

    model_config = ConfigDict(populate_by_name=True)
    model_name: str = Field(default="gpt-4o-mini", alias="model")
    temperature: float | None = None
    max_retries: int | None = None
    streaming: bool = False
    top_p: float | None = None
    model_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "openai-chat"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Return the model with tools."""
        return self.bind(tools=list(tools), **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(url, data=b"{}")) as reply:
            text = json.loads(reply.read())["text"]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


@contextmanager
def counting_server() -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the paths of the requests that it was sent, as long as the block runs."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            content = b'{"text": "4"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
