"""Language models of transformers as they come, small, with weights from a fixed seed; they return ModelOutputs."""

from __future__ import annotations

import torch
import transformers
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache


def bert() -> torch.nn.Module:
    """An encoder; called with an attention mask by keyword."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=4000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    return transformers.BertModel(config).eval()


def t5() -> torch.nn.Module:
    """An encoder and a decoder, without a cache."""
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=2000, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, use_cache=False,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5Model(config).eval()


def _llama(*, use_cache: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=2000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, use_cache=use_cache,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def llama() -> torch.nn.Module:
    """A decoder that reads a whole prompt."""
    return _llama(use_cache=False)


def llama_static_cache() -> torch.nn.Module:
    """One step of decoding into a static cache, as transformers makes it exportable: each call writes to buffers."""
    model = _llama(use_cache=True)
    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    return TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=64).eval()
