"""A model that is trained, by its sizes."""

from __future__ import annotations

from dataclasses import dataclass

from optmatch.model import InputError, Value, integer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransformerModel(Value):
    """A transformer, by its sizes.

    Parameters
    ----------
    layers, hidden, heads, sequence, vocabulary
        Numbers of layers, hidden units, heads, tokens of a sequence, and words.
    ffn
        Hidden units of the feed-forward part, of one expert if there are experts.
    experts, active_experts
        Experts of a layer and how many of them a token visits; 1 of a dense model.
    ffn_matrices
        Matrices of the feed-forward part: 2, or 3 where it is gated.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    ffn: int
    experts: int = 1
    active_experts: int = 1
    ffn_matrices: int = 3

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, integer(name, getattr(self, name), at_least=1))
        if self.hidden % self.heads:
            raise InputError(
                f"hidden = {self.hidden}: no multiple of {self.heads} heads", where="hidden"
            )
        if self.active_experts > self.experts:
            raise InputError(
                f"active_experts = {self.active_experts}: at most {self.experts} experts",
                where="active_experts",
            )
