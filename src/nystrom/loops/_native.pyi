from nystrom.types import Array

class SparseColumns:
    """The columns of landmarks as sparse rows meet them, of one dtype and for one instruction set."""

    @property
    def nbytes(self) -> int: ...

class InstructionSet:
    """The loops for one instruction set. Arrays are float32 or float64, all of one dtype unless said otherwise."""

    @property
    def name(self) -> str: ...
    def suits_product(self, p: int, m: int, itemsize: int, exp: bool) -> bool: ...
    def pack(self, columns: Array) -> Array: ...
    def product(
        self,
        X: Array,
        panels: Array,
        out: Array,
        gamma: float = 0.0,
        norms: Array | None = None,
        exp: bool = False,
        minus: Array | None = None,
        largest: Array | None = None,
        kept: Array | None = None,
        add: bool = False,
    ) -> float: ...
    def norm_kernel(self, X: Array, panels: Array, out: Array, gamma: float, p: float, q: float) -> None: ...
    def sparse_columns(self, indptr: Array, indices: Array, data: Array, n_columns: int) -> SparseColumns: ...
    def dense_columns(self, Z: Array) -> SparseColumns: ...
    def sparse_product(
        self,
        indptr: Array,
        indices: Array,
        data: Array,
        columns: SparseColumns,
        out: Array,
        gamma: float = 0.0,
        norms: Array | None = None,
        exp: bool = False,
        minus: Array | None = None,
        largest: Array | None = None,
        kept: Array | None = None,
    ) -> float: ...
    def is_canonical(self, indptr: Array, indices: Array, data: Array, n_columns: int) -> bool: ...
    def column_sums(self, indptr: Array, indices: Array, data: Array, sums: Array) -> float: ...
    def heavy_sums(
        self,
        indptr: Array,
        indices: Array,
        data: Array,
        n_columns: int,
        labels: Array,
        weights: Array | None,
        allowed: Array,
    ) -> tuple[Array, Array, Array]: ...
    @property
    def gram_chain(self) -> int: ...
    def suits_gram(self, k: int) -> bool: ...
    def add_gram(self, F: Array, out: Array, wide: bool = False, totals: Array | None = None) -> None: ...
    def nearest(self, X: Array, panels: Array, half: Array, shift: Array, labels: Array) -> None: ...
    def cluster_sums(self, X: Array, labels: Array, shift: Array | None, sums: Array, counts: Array) -> float: ...
    def seed(self, A: Array, squares: Array, uniform: Array, chosen: Array, n_threads: int = 1) -> int: ...
    def normal_product(self, C: Array, V: Array, weights: Array | None, U: Array, out: Array) -> None: ...
    def coalitions(
        self, x: Array, background: Array, weights: Array, nodes: Array, parts: Array, out: Array
    ) -> None: ...

def instruction_sets() -> list[InstructionSet]: ...
