"""Errors as clients see them: OpenAI's shape, ``{"error": {"message", "type", "param", "code"}}``.

One exception carries all of them; functions below name the kinds. A message tells what was wrong and what to do, and
never repeats prompt text. ``retryable`` marks failures after which the same request may simply be sent again.
"""

from typing import Any

from pydantic import ValidationError

RETRY_AFTER_SECONDS = 1


class RequestError(Exception):
    """A request that ends with an error document and an HTTP status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retryable = retryable

    def document(self) -> dict[str, Any]:
        """The JSON body; ``retryable`` is our extension, which OpenAI's clients ignore."""
        error: dict[str, Any] = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        if self.retryable:
            error["retryable"] = True
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """Headers beside the body: clients that see Retry-After send the request again by themselves."""
        return {"retry-after": str(RETRY_AFTER_SECONDS)} if self.status == 503 else {}


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> RequestError:
    """400: the request itself is wrong; sending it again will not help."""
    return RequestError(400, message, param=param, code=code)


def unsupported(param: str, message: str) -> RequestError:
    """400: a parameter that would change the answer and that this server cannot honour."""
    return RequestError(400, message, param=param, code="unsupported_parameter")


def context_too_long(limit: int, prompt: int, answer: int, *, param: str) -> RequestError:
    """400: prompt and answer (both in tokens) do not fit in the model's context."""
    return RequestError(
        400,
        f"This model's maximum context length is {limit} tokens. However, you requested {prompt + answer} tokens "
        f"({prompt} in the prompt, {answer} in the completion). Please shorten the prompt or the completion.",
        param=param,
        code="context_length_exceeded",
    )


def invalid_document(error: ValidationError) -> RequestError:
    """400: malformed JSON, or a field of the wrong type or size; names the first offending field."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return RequestError(400, f"The body is not valid JSON: {first['msg']}", code="invalid_json")
    where = ".".join(str(part) for part in first["loc"])
    message = f"{where}: {first['msg']}" if where else first["msg"]
    return RequestError(400, message, param=str(first["loc"][0]) if first["loc"] else None, code="invalid_value")


def invalid_key() -> RequestError:
    """401: no API key, or one that is not known."""
    return RequestError(
        401, "Incorrect or missing API key: send it as 'Authorization: Bearer <key>'.", code="invalid_api_key"
    )


def unknown_model(asked: str, served: str) -> RequestError:
    """404: a model that this deployment does not serve."""
    return RequestError(
        404,
        f"The model {asked[:128]!r} does not exist; this server has {served!r}.",
        param="model",
        code="model_not_found",
    )


def body_too_large(limit: int) -> RequestError:
    """413: a body of more than ``limit`` bytes."""
    return RequestError(
        413, f"The body is larger than {limit} bytes, the most this server reads.", code="body_too_large"
    )


def body_too_slow(seconds: float) -> RequestError:
    """408: a body that did not arrive within ``seconds``."""
    return RequestError(408, f"The body did not arrive within {seconds:g} seconds.", code="body_too_slow")


def internal(message: str) -> RequestError:
    """500: a defect on our side of the API."""
    return RequestError(500, message, kind="server_error", code="internal_error")


def unavailable(code: str, message: str) -> RequestError:
    """503: nobody can serve the request at this moment."""
    return RequestError(503, message, kind="server_error", code=code, retryable=True)
