// The interface of the loops of one instruction set: plain pointers and sizes, no inline functions.
//
// Sources compiled for different processors include this header. An inline function here would be compiled for each of
// them under one name, and the linker would keep an arbitrary one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nystrom {

using Index = std::ptrdiff_t;

// What is done with a product before it is stored.
enum class Finish { product, exponents, exponential };

// n rows of p numbers; each row is contiguous, and the next one starts `stride` numbers later.
template <class T>
struct Rows {
    const T *data;
    Index stride, n, p;
};

// CSR rows: row i has the entries from ends[i] to ends[i + 1].
template <class T, class I>
struct SparseRows {
    const I *ends;
    const I *indices;
    const T *data;
    Index n, p;
};

// Maximum number of candidates whose distances are computed together.
constexpr Index most_at_once = 6;

// How a product ends. `kept` receives the exponentials before `minus` is subtracted, and `largest` the largest of each
// row; both may be null, and are not written without `minus`.
template <class T>
struct Ending {
    Finish finish;
    T gamma;
    const T *norms;
    const T *minus;
    T *largest;
    T *kept;
    Index kept_stride;
    bool add;  // add plain products to the existing values
};

// exp(-(gamma |x - z|_p)^q): `powered` unless p is 1, and `rooted` unless q is p. `power` is p and `root` is q / p,
// each as the sum of two numbers, the first with few digits.
template <class T>
struct NormKernel {
    T gamma;
    bool powered, rooted;
    T power[2], root[2];
};

template <class T>
struct Seeds {
    const T *points;        // width / points_panel panels of p × points_panel; width is a multiple of `stretch`; zeros from point n on
    Index n, width, p;
    const T *squares;       // width
    const double *uniform;  // (wanted - 1) × n_candidates, in [0, 1)
    Index wanted, n_candidates;
    std::int64_t *chosen;      // wanted; chosen[0] is given
    std::int64_t *candidates;  // room for n_candidates or 1
    double *totals;            // the same × width / stretch
    T *closest;                // width: infinity for points, 0 beyond them
    T *nearer;                 // max(n_candidates, 1) × width
    double *ends;              // width / stretch
};

// Entries of a list: the sums they are added to, and their values. A shorter list is padded with zeros, which go to
// idle sums after those of the landmarks; to different ones, so that additions do not wait for each other.
constexpr Index stretch_entries = 4;
constexpr Index idle_sums = 64;

template <class T>
struct Stretch {
    std::int32_t numbers[stretch_entries];
    T values[stretch_entries];
};

// A list is identified by the number of its first stretch, times this, plus its number of stretches.
constexpr Index most_stretches = 64;

// The columns of m landmarks for products with sparse rows: full ones as m numbers, padded with zeros to whole vectors,
// and the others as lists of the few landmarks that have an entry there.
template <class T>
struct ColumnTable {
    const std::int32_t *places;  // p: below 0 if no landmark has the column, the number of a full one, or n_full plus
                                 // the identifier of its list; null if all are full
    Index n_full, width;
    const T *full;  // n_full × width
    const Stretch<T> *stretches;
};

template <class T, class I>
struct SparseLoops {
    double (*product)(SparseRows<T, I> X, ColumnTable<T> Z, Index m, T *out, Index out_stride, double gamma, Ending<T>,
                      T *sums);
    double (*column_sums)(SparseRows<T, I> X, double *sums);
    Index (*heavy_sum)(SparseRows<T, I> X, const std::int64_t *numbers, Index n_rows, const double *weights, double allowed,
                       double *sums, std::int32_t *columns, double *values);
    bool (*within)(const I *indices, Index count, Index p);
    bool (*rises)(SparseRows<T, I> X);
};

template <class T>
struct Loops {
    Index panel;         // columns per panel
    Index lanes;         // numbers per vector
    Index tile_rows;     // rows per tile
    Index gram_chain;    // rows whose products are summed before the sum becomes double
    Index stretch;       // weights per stretch of a draw
    Index points_panel;  // points per panel of points
    double (*product)(Rows<T> X, const T *table, Index m, T *out, Index out_stride, Ending<T>);
    void (*norm_kernel)(Rows<T> X, const T *table, Index m, NormKernel<T> kernel, T *out, Index out_stride);
    void (*gram)(Rows<T> F, T *space, double *out, Index stride, double *totals);
    void (*wide_gram)(Rows<T> F, double *space, double *out, Index stride, double *totals);
    void (*nearest)(Rows<T> X, const T *shift, const T *table, const T *half, Index m, T *space, std::int32_t *labels);
    double (*sums)(Rows<T> X, const T *shift, const std::int32_t *labels, double *sums, std::int64_t *counts);
    void (*try_candidates)(Seeds<T>, Index tried, Index begin_stretch, Index end_stretch, T *space);
    bool (*choose)(Seeds<T>, Index tried, Index found);
    void (*normal)(Rows<T> C, const double *V, Index t, const double *weights, double *U, double *out);
    SparseLoops<T, std::int32_t> sparse32;
    SparseLoops<T, std::int64_t> sparse64;
};

// Factors of one row and of background rows with m landmarks, and the quadrature that integrates their products.
struct Coalitions {
    const double *x;           // p × m
    const double *background;  // n_background × p × m
    const double *weights;     // n_background
    const double *nodes, *parts;
    Index p, m, n_background, n_nodes;
};

// Maximum number of landmarks whose products are computed together.
constexpr Index widest_coalition = 16;

struct InstructionSet {
    const char *name;
    // Largest number of columns for which a product is faster here than in BLAS, without and with the exponential.
    Index widest_product, widest_exponential;
    Loops<float> float32;
    Loops<double> float64;
    void (*coalitions)(Coalitions, double *space, double *out);
};

extern const InstructionSet baseline;
#ifdef NYSTROM_X86
extern const InstructionSet avx2, avx512;
#endif

// Whether this processor and its operating system can run code for AVX2 with FMA, and for AVX-512.
bool runs_avx2();
bool runs_avx512();

}  // namespace nystrom
