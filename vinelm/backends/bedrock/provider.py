"""Amazon Bedrock's Converse API through langchain-aws."""

from __future__ import annotations

import os
from typing import Any

from langchain_core.language_models import BaseChatModel

from vinelm.backends.making import check_base, check_options, keep_quiet, made, split_options
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.remote.marks import PointMarks
from vinelm.backends.remote.provider import Provider
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import required_extra

BEARER = "AWS_BEARER_TOKEN_BEDROCK"
CONNECTIONS = 256
"""Connections per client; further calls wait for each other."""


class BedrockProvider(Provider):
    """Creates ``ChatBedrockConverse`` models. Credentials come from boto3's usual sources, or from a Bedrock API key in the
    environment variable ``AWS_BEARER_TOKEN_BEDROCK``.

    A catalog entry's option ``region`` sets the region (default: the environment's), ``api_base`` another endpoint. Other
    options are settings of ``ChatBedrockConverse``, or request fields that are specific to the model.
    """

    marks = PointMarks()

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the model's region, its key or the package is missing."""
        region_of(model)
        with required_extra("bedrock", f"model {model.name!r}: Bedrock"):
            import langchain_aws  # noqa: F401

    def make(self, model: Model) -> BaseChatModel:
        """Create the chat model of the catalog entry ``model``; see :meth:`Provider.make`."""
        self.check(model)
        keep_quiet("botocore.endpoint", "botocore.auth", "botocore.httpsession", "botocore.hooks", "botocore.parsers")
        from botocore.config import Config
        from langchain_aws import ChatBedrockConverse

        options = {key: value for key, value in model.options.items() if key != "region"}
        renamed: dict[str, Any] = {"topP": "top_p", "stop": "stop_sequences"}
        options = {renamed.get(key, key): value for key, value in options.items()}
        settings, fields = split_options(options, ChatBedrockConverse)
        if fields:
            settings["additional_model_request_fields"] = {**fields, **(settings.get("additional_model_request_fields") or {})}
        config = Config(
            retries={"total_max_attempts": 1},
            max_pool_connections=CONNECTIONS,
            connect_timeout=model.timeout_s,
            read_timeout=model.timeout_s,
        )
        return made(
            model,
            ChatBedrockConverse,
            **settings,
            model=model.model_id,
            region_name=region_of(model),
            endpoint_url=model.api_base,
            max_tokens=model.max_tokens,
            config=config,
        )


def region_of(model: Model) -> str:
    """Return the model's region. Raise :class:`ConfigError` if no region is set, or if boto3 does not read the environment
    variable that the entry names for its key.
    """
    if model.api_key_env not in (None, BEARER):
        raise ConfigError(f"model {model.name!r}: api_key_env is {model.api_key_env}: Bedrock's API key is read from {BEARER}")
    if model.api_key_env is not None and not os.environ.get(BEARER, "").strip():
        raise ConfigError(f"model {model.name!r}: environment variable {BEARER} is not set: put the API key there")
    region = model.options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(f'model {model.name!r}: no AWS region: add options = {{ region = "us-east-1" }} or set AWS_REGION')
    return str(region)


def create(settings: ProviderSettings) -> RemoteBackend:
    """Create the backend of the catalog's Bedrock models. Makes no call. Raises :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, "system", "toolConfig", "messages")
        check_base(model)
    return RemoteBackend(settings, BedrockProvider())
