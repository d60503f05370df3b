"""Every remote provider, in one table: how its entry looks, and how to speak its wire format."""

import json
from dataclasses import dataclass, field
from types import ModuleType

from kit.wire import anthropic_format, bedrock_format, gemini_format, openai_format
from kit.wire.client import KEY, Client
from kit.wire.langchain_chat import OverTheSDK
from vinelm.catalog import Catalog

ACCESS_KEY = "AKIACANARY"
TOKEN = "ya29.canary-token"
SECRETS = (KEY, ACCESS_KEY, TOKEN, "BEGIN PRIVATE KEY", "s3cret")
"""What must never be seen: keys, a token, and what a server writes into its refusals."""
AMBIENT = (
    "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "GOOGLE_API_KEY",
    "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "AZURE_OPENAI_AD_TOKEN",
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL",
)  # fmt: skip


@dataclass(frozen=True)
class Provider:
    """``sent`` is what of the caller's credentials a request carries. ``has_root``: its ``api_base`` has no ``/v1``."""

    name: str
    words: ModuleType
    sent: str
    fields: dict = field(default_factory=dict)
    has_root: bool = True

    def client(self, server, **how):
        url = server.url.removesuffix("/v1") if self.has_root else server.url
        if self.name in READY:
            return _Ready(READY[self.name], url, **how)
        return Client(url, **{"provider": self.name, **self.fields, **how})


def chat_openai(url, timeout_s):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="model-1", base_url=url, api_key=KEY, timeout=timeout_s)


def own_class(url, timeout_s):
    return OverTheSDK(url, KEY, timeout_s)


READY = {"langchain": chat_openai, "own class": own_class}
"""Chat models that the application hands in: as LangChain's package makes one, and one of the application's own class."""


class _Ready(Client):
    """A ready chat model, as the application made it: with a package's hidden retries, and without a limit of its own."""

    def __init__(self, make, url, *, settings=None, timeout_s=60.0, **fields):
        super().__init__(url, settings=settings, timeout_s=timeout_s, provider="langchain", model_id="model-1", **fields)
        self.ready = make(url, timeout_s)
        self.backend = self.made(Catalog([self.model], {"langchain": self.table}, live={"m": self.ready}))


NOVA = "amazon.nova-pro-v1:0"
"""langchain-aws streams nothing of a model whose maker it does not know."""
KEYED = {"api_key_env": "MY_KEY"}
PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("openai", openai_format, f"Bearer {KEY}", KEYED, has_root=False),
        Provider("anthropic", anthropic_format, KEY, KEYED),
        Provider("azure", openai_format, KEY, {**KEYED, "options": {"api_version": "2025-01-01"}}),
        Provider("bedrock", bedrock_format, ACCESS_KEY, {"options": {"region": "us-east-1"}, "model_id": NOVA}),
        Provider("gemini", gemini_format, KEY, KEYED),
        Provider("vertex", gemini_format, f"Bearer {TOKEN}", {"options": {"project": "p-1", "location": "europe-west4"}}),
        Provider("sglang", openai_format, f"Bearer {KEY}", KEYED),
        Provider("langchain", openai_format, f"Bearer {KEY}", has_root=False),
        Provider("own class", openai_format, f"Bearer {KEY}", has_root=False),
    )
}


def service_account(token_url):
    """A Google key file, whose token endpoint is a server of ours."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # every client reads and checks it: 2048 bits, 30 ms
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    plain = {"type": "service_account", "project_id": "p-0", "private_key_id": "1", "private_key": pem, "client_id": "1"}
    return json.dumps({**plain, "client_email": "a@b.example", "token_uri": token_url})


async def give_token(asked, out):
    await out.whole({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})
