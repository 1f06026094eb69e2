"""Tokenizers of every kind behind one interface: encode, streaming decode, chat template, conversion."""
