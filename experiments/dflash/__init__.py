"""DFlash: a block-diffusion drafter for speculative decoding, trained against a frozen target (arXiv 2602.06036)."""
