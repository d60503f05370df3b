"""Tells the entries of a LiteLLM ``model_list`` that are no chat models: embeddings, images, sounds, rerankers, ..."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MODES = {
    "embedding": "embedding", "image_generation": "image", "image_edit": "image", "video_generation": "video",
    "audio_transcription": "audio", "audio_speech": "audio", "realtime": "audio", "rerank": "rerank",
    "moderation": "moderation", "completion": "text completion", "batch": "batch", "ocr": "OCR", "search": "search",
    "vector_store": "search",
}  # fmt: skip
"""LiteLLM's ``mode`` of an entry, and our word for it; ``chat`` and ``responses`` are chat models."""
_NAMES = (
    (re.compile(r"text-completion-|gpt-3\.5-turbo-instruct|davinci-002|babbage-002"), "text completion"),
    (re.compile(r"rerank|ranker"), "rerank"),
    (re.compile(r"embed|(^|[/-])(bge|e5|gte|minilm|all-mpnet|voyage|jina-clip)-"), "embedding"),
    (
        re.compile(r"dall-e|gpt-image|imagen-|stable-diffusion|sdxl|(^|/)flux|-image(-|$)|recraft|nova-canvas"),
        "image",
    ),
    (re.compile(r"(^|[/-])(sora|veo)-|nova-reel"), "video"),
    (re.compile(r"whisper|(^|[/-])tts(-|$)|transcribe|realtime|elevenlabs/|deepgram/|assemblyai/|playai-"), "audio"),
    (re.compile(r"moderation|llama-guard|prompt-guard|shieldgemma"), "moderation"),
)


def other_kind(item: Mapping[str, Any]) -> str | None:
    """Return what the entry is, if it is no chat model; None if it is one.

    An entry's ``mode`` decides; without one, the name of the model does.
    """
    info, params = item.get("model_info"), item["litellm_params"]
    mode = (info.get("mode") if isinstance(info, Mapping) else None) or params.get("mode")
    if mode in ("chat", "responses"):
        return None
    if isinstance(mode, str):
        return _MODES.get(mode, mode)
    base = info.get("base_model") if isinstance(info, Mapping) else None
    names = (str(name).lower().replace(" ", "-") for name in (params.get("model"), base, item.get("model_name")) if name)
    return next((kind for name in names for pattern, kind in _NAMES if pattern.search(name)), None)
