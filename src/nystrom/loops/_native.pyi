from nystrom.types import Array

class InstructionSet:
    """The loops for one instruction set. Arrays are float32 or float64, all of one dtype unless said otherwise."""

    @property
    def name(self) -> str: ...
    def suits_product(self, p: int, m: int, itemsize: int, exp: bool) -> bool: ...
    def pack(self, columns: Array) -> Array: ...
    def product(
        self, X: Array, panels: Array, out: Array, gamma: float = 0.0, norms: Array | None = None, exp: bool = False
    ) -> None: ...
    def sparse_product(
        self,
        indptr: Array,
        indices: Array,
        data: Array,
        panels: Array,
        out: Array,
        row_norms: Array | None = None,
        norms: Array | None = None,
        exp: bool = False,
    ) -> None: ...
    def sparse_sparse_product(
        self,
        indptr: Array,
        indices: Array,
        data: Array,
        Z_indptr: Array,
        Z_indices: Array,
        Z_data: Array,
        n_columns: int,
        out: Array,
        row_norms: Array | None = None,
        norms: Array | None = None,
        exp: bool = False,
    ) -> None: ...
    def nearest(self, X: Array, panels: Array, half: Array, shift: Array, labels: Array) -> None: ...
    def cluster_sums(self, X: Array, labels: Array, shift: Array | None, sums: Array, counts: Array) -> float: ...
    def seed(self, A: Array, squares: Array, uniform: Array, chosen: Array) -> int: ...
    def normal_product(self, C: Array, V: Array, weights: Array | None, U: Array, out: Array) -> None: ...

def instruction_sets() -> list[InstructionSet]: ...
