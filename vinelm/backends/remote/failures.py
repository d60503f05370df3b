"""Classifies failed calls: the kind of failure, whether the call may be billed, and whether to retry.

The input is an exception of a chat model, or the way in which an answer ended. SDKs wrap each other's exceptions. So an
exception is classified by the HTTP status, body, code and headers in the chain of its causes, rather than by its type. Of a
server's message only a code of plain lower-case letters is repeated; the rest is inspected and dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from vinelm.backends.remote.retry import AttemptFailed, retry_after_s, status_may_be_billed, was_sent
from vinelm.errors import FailureKind, VineLMError
from vinelm.foreign_code import answered

NORMAL_ENDS = frozenset(
    {
        "stop", "tool_calls", "function_call", "end_turn", "stop_sequence", "tool_use", "completed", "STOP", "complete",
        "eos", "eos_token", "COMPLETE", "pause_turn", "unload", "load", "FINISH_REASON_STOP", "done",
    }
)  # fmt: skip
"""Finish reasons of whole answers, as providers and LangChain's packages spell them. Any other reason is a failure."""
_ENDS: Mapping[str, FailureKind] = MappingProxyType(
    {
        "length": "truncated",
        "max_tokens": "truncated",
        "MAX_TOKENS": "truncated",
        "max_output_tokens": "truncated",
        "model_length": "truncated",
        "model_context_window_exceeded": "context_length",
        "content_filter": "content_filter",
        "content_filtered": "content_filter",
        "guardrail_intervened": "content_filter",
        "refusal": "content_filter",
        "SAFETY": "content_filter",
        "PROHIBITED_CONTENT": "content_filter",
        "RECITATION": "content_filter",
        "BLOCKLIST": "content_filter",
        "SPII": "content_filter",
        "IMAGE_SAFETY": "content_filter",
        "LANGUAGE": "content_filter",
        "BLOCKED": "content_filter",
        "MALFORMED_FUNCTION_CALL": "malformed",
        "MALFORMED_RESPONSE": "malformed",
        "UNEXPECTED_TOOL_CALL": "malformed",
        "TOO_MANY_TOOL_CALLS": "malformed",
        "MISSING_THOUGHT_SIGNATURE": "malformed",
        "malformed_model_output": "malformed",
        "malformed_tool_use": "malformed",
    }
)
_BY_STATUS: Mapping[int, FailureKind] = MappingProxyType(
    {
        401: "auth",
        402: "rate_limit",
        403: "auth",
        408: "timeout",
        409: "server",
        413: "context_length",
        424: "server",
        429: "rate_limit",
        504: "timeout",
    }
)
_BY_CODE: Mapping[str, FailureKind] = MappingProxyType(
    {
        "context_length_exceeded": "context_length",
        "string_above_max_length": "context_length",
        "exceed_context_size_error": "context_length",
        "request_too_large": "context_length",
        "content_filter": "content_filter",
        "content_policy_violation": "content_filter",
        "invalid_prompt": "content_filter",
        "invalid_api_key": "auth",
        "authentication_error": "auth",
        "permission_error": "auth",
        "rate_limit_exceeded": "rate_limit",
        "rate_limit_error": "rate_limit",
        "insufficient_quota": "rate_limit",
        "billing_error": "rate_limit",
        "overloaded_error": "server",
        "api_error": "server",
        "timeout_error": "timeout",
        "ThrottlingException": "rate_limit",
        "ServiceQuotaExceededException": "rate_limit",
        "AccessDeniedException": "auth",
        "UnrecognizedClientException": "auth",
        "ExpiredTokenException": "auth",
        "ModelTimeoutException": "timeout",
        "ModelNotReadyException": "server",
        "ModelStreamErrorException": "server",
    }
)
_TOO_LONG = re.compile(
    r"context[ _]?(length|window|size)|contextwindow|maximum (context|model|sequence|input|prompt) (length|len)"
    r"|(prompt|input|request|messages?) (is|are) too (long|large)|too many (input |total )?tokens"
    r"|exceed(s|ed)? (the )?(model('s)? )?(maximum (number of )?)?(context|token|input)"
    r"|token count .{0,40}exceeds|maximum prompt length"
    r"|input is too long|token limit",
    re.I,
)
_FILTERED = re.compile(
    r"content (filter|management policy)|safety (system|policy)|flagged|moderation|usage polic(y|ies)|guardrail", re.I
)
_NO_CREDIT = re.compile(r"credit balance|insufficient (balance|quota|credit|funds)|billing|exceeded your current quota", re.I)
_TOO_LARGE_A_REQUEST = re.compile(r"request too large", re.I)
_BAD_KEY = re.compile(r"api[ _]key|credentials|unauthenticated|permission denied", re.I)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}")
_SETTING = re.compile(
    r"(?:unsupported|unknown|unrecognized|unexpected|invalid|extra|deprecated)[^`'\"]{0,60}[`'\"](\w+)[`'\"]"
    r"|[`'\"](\w+)[`'\"][^.]{0,60}"
    r"(?:not supported|unsupported|deprecated|not permitted|not allowed|does not support|is not available)"
    r"|(\w+): Extra inputs are not permitted|argument(?: supplied)?: (\w+)",
    re.I,
)
DROPPED = frozenset(
    {
        "temperature", "top_p", "top_k", "stop", "stop_sequences", "presence_penalty", "frequency_penalty", "seed",
        "stream_options", "parallel_tool_calls", "logprobs", "top_logprobs", "logit_bias", "user", "service_tier",
    }
)  # fmt: skip
"""Settings that an application gives to all of its models, and that may be left out without changing the question."""
_CONTENT = re.compile(
    r"(image|audio|video|document|file|pdf|media|modalit|multimodal)[^.]{0,80}"
    r"(not supported|unsupported|not support|invalid|cannot)"
    r"|(not support|unsupported|no endpoints found that support)[^.]{0,60}(image|audio|video|document|file|pdf|media|modalit)",
    re.I,
)
NO_ANSWER = (NotImplementedError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)
"""Exceptions of packages for answers, contents or arguments that they do not accept."""
_MOST_LINKS = 32


class SettingRefused(AttemptFailed):
    """The model refused one optional setting, such as the temperature, that can be left out (see :data:`DROPPED`).

    A refusal comes before any work, so nothing is billed.
    """

    def __init__(self, setting: str, detail: str) -> None:
        super().__init__("malformed", detail, is_final=True, may_be_billed=False)
        self.setting = setting


def end_failure(reason: str) -> FailureKind | None:
    """Return the kind of failure that a finish reason stands for; None if the answer ended normally.

    An unknown reason counts as a failure of the server, because half an answer must not count as a whole answer.
    """
    if reason in NORMAL_ENDS:
        return None
    return _ENDS.get(reason, "server")


def failed(error: Exception, *, has_begun: bool) -> AttemptFailed:
    """Return the failure that a chat model's exception stands for.

    Args:
        error: the exception; not one of this project's own.
        has_begun: whether part of the answer had arrived, since a server may bill an unfinished answer.
    """
    chain = list(_chain(error))
    own = next((link for link in chain if isinstance(link, AttemptFailed)), None)
    if own is not None:
        return own
    status, body, is_inside = _stated(chain)
    if status is not None or body:
        return _refused(chain, status, body, is_inside=is_inside, has_begun=has_begun)
    return _by_name(error, chain, has_begun=has_begun)


def _refused(
    chain: list[Any], status: int | None, body: Mapping[str, Any], *, is_inside: bool, has_begun: bool
) -> AttemptFailed:
    """Return the failure for an error that a server has reported.

    ``is_inside`` states whether the server sent the error in the place of the answer, in a successful HTTP response; otherwise
    it is an HTTP error. ``chain`` has the exception and its causes. ``has_begun`` states whether part of the answer had
    arrived.
    """
    codes = [
        code for value in (body.get("code"), body.get("type"), body.get("status"), body.get("Code")) if (code := _code(value))
    ]
    text = " ".join(str(part) for part in (body.get("message"), body.get("Message"), body.get("detail")) if part)
    text = f"{text} {' '.join(str(link) for link in chain)}"[:4000]
    names = {base.__name__ for link in chain for base in type(link).__mro__}
    kind = next((_BY_CODE[code] for code in codes if code in _BY_CODE), None)
    is_out_of_credit = status == 402 or bool(_NO_CREDIT.search(text)) or "insufficient_quota" in codes
    if "ContextOverflowError" in names or (_may_be_too_long(status) and _TOO_LONG.search(text) and kind != "rate_limit"):
        kind = "context_length"
    elif status in (400, 403, 422) and kind is None and _FILTERED.search(text):
        kind = "content_filter"
    elif is_out_of_credit:
        kind = "rate_limit"
    elif status == 400 and _BAD_KEY.search(text) and kind is None:
        kind = "auth"
    kind = kind or _BY_STATUS.get(status or 0) or ("malformed" if status is not None and 400 <= status < 500 else "server")
    code = next(iter(codes), "")
    said = f" ({code})" if code else ""
    where = f"the server answered HTTP {status}{said}" if not is_inside else f"the server reported an error{said}"
    if status is not None and 300 <= status < 400:
        return AttemptFailed("malformed", f"{where}, a redirect: is api_base right?", is_final=True, may_be_billed=False)
    is_refusal = status is not None and 400 <= status < 500
    if kind == "malformed" and is_refusal and not has_begun:
        setting = _setting(body, text)
        if setting is not None:
            return SettingRefused(setting, f"{where}: it does not take {setting}")
    hint = {
        "auth": ": is the key in api_key_env right?",
        "malformed": ": does it have that model, and does it know the entry's options?",
    }.get(kind, "")
    if kind == "malformed" and _CONTENT.search(text):
        hint = ": it cannot take an attachment of this prompt"
    if has_begun or _counts_tokens(chain):
        billed = True
    elif is_inside:
        billed = not is_refusal  # the server refused the call, in the form of an answer
    else:
        is_api_error = bool(body) or any(hasattr(link, "operation_name") for link in chain)
        billed = status_may_be_billed(status, is_api_error=is_api_error) and "overloaded_error" not in codes
    is_final = kind == "malformed" or is_out_of_credit or bool(kind == "rate_limit" and _TOO_LARGE_A_REQUEST.search(text))
    return AttemptFailed(kind, where + hint, retry_after_s=_wait_s(chain, body), is_final=is_final, may_be_billed=billed)


def _counts_tokens(chain: list[Any]) -> bool:
    """Return whether an error states token counts. A server that counts tokens bills them, whatever the HTTP status."""
    for link in chain:
        whole = getattr(link, "body", None)
        response: Any = getattr(link, "response", None)
        whole = answered(lambda: [whole, response.json()], whole)  # noqa: B023 - called here; not read yet, or no JSON
        for one in whole if isinstance(whole, list) else [whole]:
            if isinstance(one, Mapping) and any(one.get(name) for name in ("usage", "usageMetadata")):
                return True
    return False


def _may_be_too_long(status: int | None) -> bool:
    return status is None or status in (400, 413, 422, 500)


def _by_name(error: Exception, chain: list[Any], *, has_begun: bool) -> AttemptFailed:
    """Return the failure for an error without an HTTP status, such as a failed connection or an answer that cannot be parsed.

    The name of the error's type decides. ``chain`` has the error and its causes.
    """
    names = " ".join(base.__name__ for link in chain for base in type(link).__mro__)
    sent = was_sent(error) or has_begun
    if re.search(r"\b(NewConnectionError|EndpointConnectionError|ConnectionRefusedError|gaierror)\b", names):
        # urllib3's is also a kind of timeout
        return AttemptFailed("server", "the connection failed or broke off", may_be_billed=has_begun)
    if "InvalidEndpointConfigurationError" in names:
        return AttemptFailed("auth", "an API key is sent over https only: see api_base", is_final=True, may_be_billed=False)
    if isinstance(error, UnicodeEncodeError):
        detail = "the prompt has half of a surrogate pair, which cannot be sent: encode and decode it with errors='replace'"
        return AttemptFailed("malformed", detail, is_final=True, may_be_billed=has_begun)
    if "Timeout" in names:
        return AttemptFailed("timeout", "the server took too long", may_be_billed=sent)
    if (
        "GoogleAuthError" in names
        or "NoCredentialsError" in names
        or "PartialCredentialsError" in names
        or "TokenRetrievalError" in names
    ):
        return AttemptFailed("auth", "there are no valid credentials: set them in the environment", may_be_billed=False)
    if "ParamValidationError" in names:
        return AttemptFailed("malformed", "the entry's options do not fit its API", is_final=True, may_be_billed=False)
    if "RateLimit" in names or "ResourceExhausted" in names:
        return AttemptFailed("rate_limit", "the server asks to slow down", may_be_billed=has_begun)
    if any(isinstance(link, OSError) for link in chain) or re.search(
        r"Connect|NetworkError|ProtocolError|HTTP(Client)?Error|IncompleteRead|ClientPayload|ServerDisconnected", names
    ):
        return AttemptFailed("server", "the connection failed or broke off", may_be_billed=sent)
    if re.search(r"APIError|EventStreamError|ResponseStreaming", names):
        return AttemptFailed("server", "the server reported an error in the stream")
    if isinstance(error, NO_ANSWER) or re.search(r"ValidationError|ParserError|JSONDecode|UnicodeDecode", names):
        return AttemptFailed("malformed", f"the server's answer cannot be parsed ({type(error).__name__})")
    name = type(error).__name__
    return AttemptFailed("unknown", f"the chat model raised {name}: call it directly to see why", is_final=True)


def _stated(chain: list[Any]) -> tuple[int | None, Mapping[str, Any], bool]:
    """Return an error's HTTP status, the JSON object that describes the error, and whether a successful response contained it.

    A server may send an error instead of an answer, in a successful HTTP response. This is assumed if no exception in ``chain``
    has the HTTP status of an error. The returned status is then a number in the JSON object; None if it has none. ``chain`` has
    the exception and its causes.
    """
    body = next((found for link in chain if (found := _body(link))), {})
    for link in chain:
        given = getattr(link, "response", None)
        if isinstance(given, Mapping):  # botocore
            given = given.get("ResponseMetadata", {}).get("HTTPStatusCode")
        for value in (getattr(given, "status_code", given), getattr(link, "status_code", None)):
            if type(value) is int and 300 <= value < 600:
                return value, body, False
        if type(getattr(link, "code", None)) is int and hasattr(link, "details"):  # google-genai; ``given`` is a part's
            return link.code, body, given is not None
    inside = next((number for value in (body.get("code"), body.get("status_code")) if (number := _number(value))), None)
    return inside, body, True


def _body(link: Any) -> Mapping[str, Any]:
    """Return the JSON object with which a server or an SDK describes the error ``link``, without an enclosing ``{"error":
    ...}`` or list.

    A plain text becomes ``{"message": text}``. The object is empty if the exception has no description.
    """
    for given in (getattr(link, "body", None), getattr(link, "details", None), _of_botocore(link)):
        found = given[0] if isinstance(given, list) and given else given
        if isinstance(found, str) and found:
            return {"message": found}
        if not isinstance(found, Mapping):
            continue
        inner = found.get("error", found)
        if isinstance(inner, Mapping):
            return inner
        if isinstance(inner, str):
            return {**found, "message": inner}
    return {}


def _of_botocore(link: Any) -> Any:
    response = getattr(link, "response", None)
    return response.get("Error") if isinstance(response, Mapping) else None


def _number(value: Any) -> int | None:
    if type(value) is int and 400 <= value < 600:
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"[45]\d\d", value) else None


def _code(value: Any) -> str:
    return value if isinstance(value, str) and _CODE.fullmatch(value) else ""


def _setting(body: Mapping[str, Any], text: str) -> str | None:
    """Return the name of the setting that a refusal complains about, if it is one of :data:`DROPPED` (settings that can be left
    out); None otherwise.
    """
    given = body.get("param")
    if isinstance(given, str) and given.partition(".")[0] in DROPPED:
        return given.partition(".")[0]
    detail = body.get("detail")
    for fault in detail if isinstance(detail, list) else ():  # FastAPI: vLLM, gateways
        place = fault.get("loc") if isinstance(fault, Mapping) else None
        named = [part for part in place or () if part in DROPPED]
        if named:
            return str(named[0])
    for match in _SETTING.finditer(text):
        found = next((group for group in match.groups() if group), None)
        if found in DROPPED:
            return found
    return None


def _wait_s(chain: list[Any], body: Mapping[str, Any]) -> float | None:
    """Return the number of seconds that the server asks to wait, from its headers or Google's ``RetryInfo`` in the body."""
    for link in chain:
        response = getattr(link, "response", None)
        headers = (
            response.get("ResponseMetadata", {}).get("HTTPHeaders")
            if isinstance(response, Mapping)
            else getattr(response, "headers", None)
        )
        if isinstance(headers, Mapping) and (seconds := retry_after_s(headers)) is not None:
            return seconds
    details = body.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(_MOST_LINKS):  # causes may refer to each other in a circle
        if link is None or isinstance(link, VineLMError):
            return
        yield link
        link = link.__cause__ or link.__context__
