"""Lexical retrieval: tokenizers, BM25 statistics and the scorer."""

from rag_pipeline.lexical.bm25 import BM25, BM25_VERSION
from rag_pipeline.lexical.statistics import BM25Statistics, candidates, score
from rag_pipeline.lexical.tokenizer import TOKENIZERS, Tokenizer, get_tokenizer

__all__ = [
    "BM25",
    "BM25_VERSION",
    "TOKENIZERS",
    "BM25Statistics",
    "Tokenizer",
    "candidates",
    "get_tokenizer",
    "score",
]
