"""Sizes and choices of the small transformer; free of torch, checked when made."""

from dataclasses import dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from .config import require
from .errors import unknown


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and choices of a `Decoder`; the defaults are those of GPT-2."""

    d_vocab: int
    d_model: int
    n_layers: int
    n_heads: int
    n_ctx: int
    d_vocab_out: int | None = None
    """Number of outputs; None for one per token (1 serves regression)."""
    d_head: int | None = None
    """None for d_model / n_heads."""
    d_mlp: int | None = None
    """None for 4 d_model; 0 leaves the MLPs out."""
    positions: Literal["learned", "none"] = "learned"
    mask: Literal["causal", "none"] = "causal"
    norm: Literal["layer", "none"] = "layer"
    final_gain: Literal["trained", "none"] = "trained"
    """Whether the final LayerNorm has a gain and a bias."""
    activation: Literal["gelu_new", "gelu", "relu"] = "gelu_new"
    biases: Literal["all", "mlp", "none"] = "all"
    head: Literal["tied", "untied", "affine"] = "tied"
    """The unembedding: the embedding itself, its own matrix, or that with a bias."""
    embedding: Literal["trained", "orthonormal"] = "trained"
    """Orthonormal rows are random and frozen."""
    init_std: float | None = None
    """Standard deviation of every weight matrix; 0.02 if gamma is not given either."""
    gamma: float | None = None
    """Instead of init_std: the standard deviation is d_in ** -gamma."""
    embedding_std: float | None = None
    """Of token and position embeddings, where it differs from the other weights."""
    score_scale: float | None = None
    """Factor on query-key products; None for 1 / sqrt(d_head)."""
    key_query_identity: float = 0.0
    """Multiplier of a trained scalar a per head, from 0: W_K W_Q^T + aI; 0 for none."""
    value_output_identity: float = 0.0
    """Multiplier of a trained scalar b per head, from 0: W_V W_O^T + bI; 0 for none."""
    matching: Literal["identity", "off_diagonal", "orthogonal"] = "identity"
    """What a weighs: x x^T; that without a position's match with itself (language
    models); as a control x Q x^T for a fixed random orthogonal Q."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if get_origin(hint) is Literal and value not in get_args(hint):
                raise unknown(name, value, get_args(hint))
            if name.startswith(("d_", "n_", "init_", "embedding_")):
                valid = value is None or value > 0 or (name, value) == ("d_mlp", 0)
                require(valid, f"{name}={value}: must be positive")
        whole = self.d_head is not None or self.d_model % self.n_heads == 0
        require(whole, f"n_heads={self.n_heads}: must divide d_model={self.d_model}")
        fits = self.head != "tied" or self.output_size == self.d_vocab
        require(fits, f"d_vocab_out={self.d_vocab_out}: head must be untied or affine")
        wide = self.embedding == "trained" or self.d_model >= self.d_vocab
        require(wide, f"d_model={self.d_model}: orthonormal needs >= {self.d_vocab}")
        one = self.init_std is None or self.gamma is None
        require(one, f"init_std={self.init_std}, gamma={self.gamma}: give one of them")

    @property
    def head_size(self) -> int:
        """Width of a head: d_head, or d_model / n_heads."""
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def mlp_size(self) -> int:
        """Width of the MLP: d_mlp, or 4 d_model."""
        return 4 * self.d_model if self.d_mlp is None else self.d_mlp

    @property
    def output_size(self) -> int:
        """Number of logits: d_vocab_out, or d_vocab."""
        return self.d_vocab if self.d_vocab_out is None else self.d_vocab_out

    def std(self, d_in: int) -> float:
        """Standard deviation at initialisation of a weight matrix with d_in inputs."""
        if self.gamma is not None:
            return float(d_in**-self.gamma)
        return 0.02 if self.init_std is None else self.init_std
