"""Lines and pairs from files, the tokenizer, and batches of token ids."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3  # token ids of the special pieces, the same in every vocabulary
