"""The inner loops that NumPy and BLAS do not do well: the compiled extension, with a NumPy version of each loop.

Why compiled: for a product with few columns BLAS packs all of X, which takes longer than the product (a sketch of
10 columns, 30 landmarks). No library fuses a product with the exponential, or with the search for the nearest centre,
while it is in registers. None sums a Gram matrix of float32 rows in float64 without copying them.

The extension is built when the package is installed on a machine with a C++ compiler, for several instruction sets.
The best one that the processor supports is chosen at import. Without the extension, or with ``NYSTROM_COMPILED=0`` in
the environment, every function here uses NumPy, and results differ by rounding only.
"""

from nystrom.loops.clusters import NearestColumn, draw_seeds, draw_weighted, first_largest, sum_by_label
from nystrom.loops.extension import instruction_set
from nystrom.loops.products import (
    Exponentials,
    NormKernel,
    Product,
    add_gram,
    coalition_sums,
    finish,
    normal_product,
    panels,
    rows_per_sum,
)
from nystrom.loops.sparse import SparseExponentials, SparseProduct, column_sums, heavy_sums, is_canonical, row_squares

__all__ = [
    "Exponentials",
    "NearestColumn",
    "NormKernel",
    "Product",
    "SparseExponentials",
    "SparseProduct",
    "add_gram",
    "coalition_sums",
    "column_sums",
    "draw_seeds",
    "draw_weighted",
    "finish",
    "first_largest",
    "heavy_sums",
    "instruction_set",
    "is_canonical",
    "normal_product",
    "panels",
    "row_squares",
    "rows_per_sum",
    "sum_by_label",
]
