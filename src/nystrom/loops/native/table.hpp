// What the loops of one instruction set offer: plain pointers and sizes, no inline functions.
//
// This header is read by sources that are compiled for different processors. An inline function here would be compiled
// for each of them under one name, and the linker would keep any one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nystrom {

using Index = std::ptrdiff_t;

// What becomes of a product before it is stored.
enum class Finish { product, exponents, exponential };

// n rows of p numbers; each row is contiguous, and the next one begins `stride` numbers later.
template <class T>
struct Rows {
    const T *data;
    Index stride, n, p;
};

// CSR rows: those of row i are the entries from ends[i] to ends[i + 1].
template <class T, class I>
struct SparseRows {
    const I *ends;
    const I *indices;
    const T *data;
    Index n, p;
};

template <class T>
struct Seeds {
    const T *points;        // p × width; width is a multiple of `stretch`, and columns from n on are zeros
    Index n, width, p;
    const T *squares;       // width
    const double *uniform;  // (wanted - 1) × n_candidates, in [0, 1)
    Index wanted, n_candidates;
    std::int64_t *chosen;      // wanted; chosen[0] is given
    std::int64_t *candidates;  // room for n_candidates or 1
    double *totals;            // the same
    T *closest;                // width: infinity for points, 0 beyond them
    T *nearer;                 // max(n_candidates, 1) × width
    T *space;                  // tile_rows × p
    double *ends;              // width / stretch
};

template <class T>
struct Loops {
    Index panel;      // columns of a panel
    Index tile_rows;  // rows of a tile
    Index stretch;    // weights that a draw looks at as one
    void (*product)(Rows<T> X, const T *table, Index m, T *out, Index out_stride, T gamma, const T *norms, Finish);
    void (*nearest)(Rows<T> X, const T *shift, const T *table, const T *half, Index m, T *space, std::int32_t *labels);
    double (*sums)(Rows<T> X, const T *shift, const std::int32_t *labels, double *sums, std::int64_t *counts);
    Index (*seed)(Seeds<T>);
    void (*normal)(Rows<T> C, const double *V, Index t, const double *weights, double *U, double *out);
    void (*sparse_product32)(SparseRows<T, std::int32_t> X, const T *table, SparseRows<T, std::int32_t> Z, T *space,
                             Index m, T *out, const T *row_norms, const T *norms, Finish);
    void (*sparse_product64)(SparseRows<T, std::int64_t> X, const T *table, SparseRows<T, std::int64_t> Z, T *space,
                             Index m, T *out, const T *row_norms, const T *norms, Finish);
};

struct InstructionSet {
    const char *name;
    // Up to this many columns a product is faster here than by BLAS; and with the exponential, up to these.
    Index widest_product, widest_exponential;
    Loops<float> float32;
    Loops<double> float64;
};

extern const InstructionSet baseline;
#ifdef NYSTROM_X86
extern const InstructionSet avx2, avx512;
#endif

// Whether this processor, and the system on it, can run code for AVX2 with FMA, and for AVX-512.
bool runs_avx2();
bool runs_avx512();

}  // namespace nystrom
