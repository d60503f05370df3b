"""A provider on loopback with the batch APIs of OpenAI, Anthropic and Gemini, and their calls that are answered at once.

It keeps what it sold: ``bought`` counts calls in batches by what was asked, ``at_once`` the others. A batch ends ``delay_s``
after it came, or when :meth:`BatchProvider.end` says so. ``spoil`` decides how a call of a batch ends: "expired", "errored",
"lost", "garbled" (a line that is no JSON), "odd" (one that is no result), an
answer in the provider's own format, or None where it is answered. ``says_also``
returns what is said of a call beside that, as pairs of a name and how it ends.
"""

import json
import re
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS_IN, TOKENS_OUT, TOKENS_CACHED = 100, 10, 40
FULL = {"code": "token_limit_exceeded", "message": "s3cret"}
EXPIRED = {"code": "batch_expired", "message": "This request could not be executed before the completion window expired."}


def iso(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class BatchProvider:
    """``answer(model, prompt)`` returns the text; ``prompt`` is the text of the last message."""

    def __init__(self, answer, *, delay_s=0.0, spoil=lambda model, prompt: None):
        self.answer, self.delay_s, self.spoil = answer, delay_s, spoil
        self.bought, self.at_once = Counter(), Counter()
        self.batches, self.files = {}, {}
        self.refuse = None  # (status, body) of each submission, while it is set
        self.cut = 0  # so many submissions are taken, and their connection is cut before the answer
        self.status = None  # of OpenAI's batches and Gemini's, in place of the good one
        self.completed = None  # the calls that OpenAI's and Anthropic's batches say that they have completed
        self.says_also = lambda custom_id, model, prompt: ()
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                outer.serve(self, "GET", b"")

            def do_POST(self):
                outer.serve(self, "POST", self.rfile.read(int(self.headers.get("content-length", 0))))

            def log_message(self, *args):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def end(self):
        """All batches end now."""
        for batch in self.batches.values():
            batch["ends_s"] = 0.0

    @property
    def calls_per_batch(self):
        return [len(batch["calls"]) for batch in self.batches.values()]

    # -- the wire ------------------------------------------------------------------------------------------------

    def serve(self, handler, verb, body):
        path = handler.path.partition("?")[0]
        for method, pattern, reply in ROUTES:
            found = re.fullmatch(pattern, path)
            if method == verb and found:
                try:
                    status, content = reply(self, body, *found.groups())
                except KeyError:
                    status, content = 404, {"error": {"message": "unknown", "type": "not_found_error", "code": 404}}
                break
        else:
            reply, status, content = None, 404, {"error": {"message": f"no {path}"}}
        if self.cut and reply in SUBMISSIONS:
            self.cut -= 1
            handler.close_connection = True
            handler.connection.close()
            return
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        try:
            handler.send_response(status)
            handler.send_header("content-type", kind)
            handler.send_header("content-length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except ConnectionError:
            pass  # the client was killed

    def submitted(self, kind, calls, **more):
        """``calls``: (custom id, model, prompt) of each."""
        if self.refuse is not None:
            return None
        with self.lock:
            number = len(self.batches) + 1
            now_s = time.time()
            batch = {
                "id": f"{kind}_{number}",
                "kind": kind,
                "calls": calls,
                "at_s": now_s,
                "ends_s": now_s + self.delay_s,
                **more,
            }
            self.batches[batch["id"]] = batch
            self.bought.update((model, prompt) for _, model, prompt in calls)
        return batch

    def has_ended(self, batch):
        return time.time() >= batch["ends_s"]

    def said(self, calls):
        """Of each call, and of what is said beside it: name, model, prompt and how it ended."""
        for custom_id, model, prompt in calls:
            yield custom_id, model, prompt, self.spoil(model, prompt)
            for name, ended in self.says_also(custom_id, model, prompt):
                yield name, model, prompt, ended

    def listed(self, kind):
        return [batch for batch in reversed(self.batches.values()) if batch["kind"] == kind]


# -- OpenAI ------------------------------------------------------------------------------------------------------


def completion(text):
    usage = {
        "prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT,
        "prompt_tokens_details": {"cached_tokens": TOKENS_CACHED},
    }  # fmt: skip
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def openai_at_once(provider, body):
    asked = json.loads(body)
    prompt = asked["messages"][-1]["content"]
    provider.at_once[asked["model"], prompt] += 1
    return 200, completion(provider.answer(asked["model"], prompt))


def openai_file(provider, body):
    content = re.search(rb'filename="[^"]*"\r\n.*?\r\n\r\n(.*?)\r\n--', body, re.DOTALL)[1]
    name = f"file-{len(provider.files) + 1}"
    provider.files[name] = content
    return 200, {"id": name, "object": "file", "bytes": len(content), "created_at": 1, "filename": "f", "purpose": "batch"}


def openai_submit(provider, body):
    asked = json.loads(body)
    assert (asked["endpoint"], asked["completion_window"]) == ("/v1/chat/completions", "24h")
    lines = [json.loads(line) for line in provider.files[asked["input_file_id"]].splitlines()]
    assert all((line["method"], line["url"]) == ("POST", asked["endpoint"]) for line in lines)
    calls = [(line["custom_id"], line["body"]["model"], line["body"]["messages"][-1]["content"]) for line in lines]
    batch = provider.submitted("batch", calls, metadata=asked["metadata"])
    return provider.refuse if batch is None else (200, openai_batch(provider, batch))


def openai_batch(provider, batch):
    done = provider.has_ended(batch)
    status = (provider.status or "completed") if done else "in_progress"
    return {
        "id": batch["id"], "object": "batch", "endpoint": "/v1/chat/completions", "completion_window": "24h",
        "input_file_id": "file-1", "status": status, "created_at": int(batch["at_s"]), "metadata": batch["metadata"],
        "output_file_id": f"{batch['id']}-out" if done and status != "failed" else None,
        "error_file_id": f"{batch['id']}-err" if done and status != "failed" else None,
        "errors": {"object": "list", "data": [FULL]} if status == "failed" else None,
        "request_counts": {"total": len(batch["calls"]), "completed": provider.completed or 0, "failed": 0},
    }  # fmt: skip


def openai_list(provider, body):
    data = [openai_batch(provider, batch) for batch in provider.listed("batch")]
    return 200, {"object": "list", "data": data, "has_more": False, "first_id": None, "last_id": None}


def openai_content(provider, body, name):
    batch = provider.batches[name.rpartition("-")[0]]
    lines = []
    for custom_id, model, prompt, spoiled in provider.said(batch["calls"]):
        if (spoiled in (None, "garbled", "odd") or isinstance(spoiled, dict)) != name.endswith("-out") or spoiled == "lost":
            continue
        if spoiled == "garbled":
            lines.append('{"custom_id": ')
            continue
        line = {"id": "r", "custom_id": custom_id, "response": None, "error": None}
        if spoiled == "odd":
            lines.append(json.dumps({**line, "response": {"status_code": 200, "body": [1]}}))
            continue
        if spoiled == "expired":
            line["error"] = EXPIRED
        else:
            error = {"error": {"code": "context_length_exceeded", "message": "s3cret", "type": "invalid_request_error"}}
            is_refused = spoiled == "errored"
            answer = error if is_refused else spoiled or completion(provider.answer(model, prompt))
            line["response"] = {"status_code": 400 if is_refused else 200, "request_id": "q", "body": answer}
        lines.append(json.dumps(line))
    return 200, "\n".join(lines).encode()


# -- Anthropic -----------------------------------------------------------------------------------------------------


def message(text):
    usage = {
        "input_tokens": TOKENS_IN - TOKENS_CACHED, "cache_read_input_tokens": TOKENS_CACHED, "cache_creation_input_tokens": 0,
        "output_tokens": TOKENS_OUT,
    }  # fmt: skip
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]}
    return {**whole, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def _said(params):
    content = params["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def anthropic_at_once(provider, body):
    asked = json.loads(body)
    provider.at_once[asked["model"], _said(asked)] += 1
    return 200, message(provider.answer(asked["model"], _said(asked)))


def anthropic_submit(provider, body):
    requests = json.loads(body)["requests"]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one["custom_id"]) for one in requests)
    calls = [(one["custom_id"], one["params"]["model"], _said(one["params"])) for one in requests]
    batch = provider.submitted("msgbatch", calls)
    return provider.refuse if batch is None else (200, anthropic_batch(provider, batch))


def anthropic_batch(provider, batch):
    done, n = provider.has_ended(batch), len(batch["calls"])
    failed = sum(provider.spoil(model, prompt) in ("expired", "errored") for _, model, prompt in batch["calls"])
    succeeded = n - failed if provider.completed is None else provider.completed
    ended = {"processing": 0, "succeeded": succeeded, "errored": n - succeeded, "canceled": 0, "expired": 0}
    counts = ended if done else {**dict.fromkeys(ended, 0), "processing": n}
    where = f"{provider.url}/v1/messages/batches/{batch['id']}/results"
    return {
        "id": batch["id"], "type": "message_batch", "processing_status": "ended" if done else "in_progress",
        "request_counts": counts, "created_at": iso(batch["at_s"]), "archived_at": None,
        "expires_at": iso(batch["at_s"] + 86_400),
        "cancel_initiated_at": None, "ended_at": iso(time.time()) if done else None, "results_url": where if done else None,
    }  # fmt: skip


def anthropic_list(provider, body):
    data = [anthropic_batch(provider, batch) for batch in provider.listed("msgbatch")]
    return 200, {"data": data, "has_more": False, "first_id": None, "last_id": None}


def anthropic_results(provider, body, name):
    lines = []
    for custom_id, model, prompt, spoiled in reversed([*provider.said(provider.batches[name]["calls"])]):  # in any order
        said = spoiled if isinstance(spoiled, dict) else message(provider.answer(model, prompt))
        result = {"type": "succeeded", "message": said}
        if spoiled == "odd":
            result = {"type": "succeeded", "message": 7}
        elif spoiled == "expired":
            result = {"type": "expired"}
        elif spoiled == "errored":
            error = {"type": "invalid_request_error", "message": "prompt is too long: s3cret"}
            result = {"type": "errored", "error": {"type": "error", "error": error, "request_id": "r"}}
        if spoiled != "lost":
            line = json.dumps({"custom_id": custom_id, "result": result})
            lines.append('{"custom_id": ' if spoiled == "garbled" else line)
    return 200, "\n".join(lines).encode() + b"\n"


# -- Gemini --------------------------------------------------------------------------------------------------------


def generated(text):
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
    usage = {
        "promptTokenCount": TOKENS_IN, "candidatesTokenCount": TOKENS_OUT, "totalTokenCount": TOKENS_IN + TOKENS_OUT,
        "cachedContentTokenCount": TOKENS_CACHED,
    }  # fmt: skip
    return {"candidates": [candidate], "modelVersion": "m", "responseId": "r", "usageMetadata": usage}


def _asked(request):
    return request["contents"][-1]["parts"][-1]["text"]


def gemini_at_once(provider, body, model):
    prompt = _asked(json.loads(body))
    provider.at_once[model, prompt] += 1
    return 200, generated(provider.answer(model, prompt))


def gemini_submit(provider, body, model):
    asked = json.loads(body)["batch"]
    requests = asked["inputConfig"]["requests"]["requests"]
    calls = [(one["metadata"]["key"], model, _asked(one["request"])) for one in requests]
    batch = provider.submitted("gemini", calls, name=asked["displayName"])
    return provider.refuse if batch is None else (200, gemini_batch(provider, batch))


def gemini_batch(provider, batch):
    done = provider.has_ended(batch)
    state = (provider.status or "SUCCEEDED") if done else "RUNNING"
    plain = {
        "displayName": batch["name"], "createTime": iso(batch["at_s"]).replace("+00:00", "Z"), "state": f"BATCH_STATE_{state}"
    }  # fmt: skip
    if state == "SUCCEEDED":
        plain["output"] = {
            "inlinedResponses": {"inlinedResponses": [_inlined(provider, *call) for call in provider.said(batch["calls"])]}
        }
    return {"name": f"batches/{batch['id']}", "metadata": plain}


def _inlined(provider, custom_id, model, prompt, spoiled):
    answer = {"response": spoiled if isinstance(spoiled, dict) else generated(provider.answer(model, prompt))}
    if isinstance(spoiled, str):
        said = "the input token count exceeds the maximum number of tokens: s3cret"
        answer = {"error": {"code": 4, "message": "s3cret"} if spoiled == "expired" else {"code": 3, "message": said}}
    return {"metadata": {"key": "" if spoiled == "lost" else custom_id}, **answer}


def gemini_list(provider, body):
    return 200, {"operations": [gemini_batch(provider, batch) for batch in provider.listed("gemini")]}


ROUTES = (
    ("POST", "/v1/chat/completions", openai_at_once),
    ("POST", "/v1/files", openai_file),
    ("POST", "/v1/batches", openai_submit),
    ("GET", "/v1/batches", openai_list),
    ("GET", "/v1/batches/([^/]+)", lambda provider, body, name: (200, openai_batch(provider, provider.batches[name]))),
    ("GET", "/v1/files/([^/]+)/content", openai_content),
    ("POST", "/v1/messages", anthropic_at_once),
    ("POST", "/v1/messages/batches", anthropic_submit),
    ("GET", "/v1/messages/batches", anthropic_list),
    (
        "GET",
        "/v1/messages/batches/([^/]+)",
        lambda provider, body, name: (200, anthropic_batch(provider, provider.batches[name])),
    ),
    ("GET", "/v1/messages/batches/([^/]+)/results", anthropic_results),
    ("POST", "/gemini/v1(?:beta)?/models/([^/]+):generateContent", gemini_at_once),
    ("POST", "/gemini/v1(?:beta)?/models/([^/]+):batchGenerateContent", gemini_submit),
    ("GET", "/gemini/v1(?:beta)?/batches", gemini_list),
    (
        "GET",
        "/gemini/v1(?:beta)?/batches/([^/]+)",
        lambda provider, body, name: (200, gemini_batch(provider, provider.batches[name])),
    ),
)
SUBMISSIONS = (openai_submit, anthropic_submit, gemini_submit)
