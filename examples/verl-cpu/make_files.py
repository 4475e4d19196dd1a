"""Makes a tokenizer, a Qwen2 of 2 layers and 100 rows of arithmetic. usage: python3 make_files.py FOLDER"""

import sys
from pathlib import Path

import pandas
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model(folder):
    """Save a tokenizer of single bytes, and a model with random weights."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({each: i for i, each in enumerate([*special, *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=special[0],
        eos_token=special[2],
        additional_special_tokens=special[1:2],
        chat_template=TEMPLATE,
    )
    fast.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=fast.pad_token_id,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def make_data(file):
    """Write conversations in the form that verl reads."""
    rows = [
        [
            {"role": "user", "content": f"{n} + {n + 1}?"},
            {"role": "assistant", "content": str(2 * n + 1)},
        ]
        for n in range(100)
    ]
    pandas.DataFrame({"messages": rows}).to_parquet(file)


def main():
    """Make the files."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    make_model(folder / "model")
    make_data(folder / "train.parquet")


if __name__ == "__main__":
    main()
