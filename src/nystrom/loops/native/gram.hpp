// The Gram matrix of dense rows, summed in double.
#pragma once

#include "product.hpp"

namespace nystrom::NYSTROM_SET {

// Rows of the Gram matrix per tile: they divide a vector, and their sums fill the registers.
template <class T>
constexpr int gram_rows = tile_rows >= 8 && lanes<T> % 8 == 0 ? 8 : lanes<T> % 4 == 0 ? 4 : 2;

// Number of rows whose products are summed as T.
constexpr Index gram_chain = 256;

// Add the numbers of a vector to as many doubles.
INLINE void add_to(double *to, Vector<double> values) { store(to, load(to) + values); }

INLINE void add_to(double *to, Vector<float> values)
{
    typedef float Half __attribute__((vector_size(NYSTROM_VECTOR_BYTES / 2)));
    Half parts[2];
    __builtin_memcpy(parts, &values, sizeof values);
    for (int h = 0; h < 2; h++) {
        double *half = to + h * lanes<double>;
        store(half, load(half) + __builtin_convertvector(parts[h], Vector<double>));
    }
}

template <class T>
INLINE void add_part(double *to, Vector<T> values, Index count)
{
    if (count >= lanes<T>) {
        add_to(to, values);
        return;
    }
    T part[lanes<T>];
    store(part, values);
    for (Index l = 0; l < count; l++)
        to[l] += double(part[l]);
}

// out[a, c] += sum_k A[k, a] B[k, c] for one tile of gram_rows by `vectors` vectors, of which only `rows` and `columns`
// exist. A and B are stored as columns of vectors, each gram_chain long, of which n are filled.
template <class T, int vectors>
INLINE void gram_tile(const T *A, const T *B, Index n, Index rows, Index columns, double *out, Index stride)
{
    constexpr int count = gram_rows<T>;
    for (Index a = 0; a < rows; a++)
        for (Index c = 0; c < columns; c += line<double>)
            __builtin_prefetch(out + a * stride + c, 1);
    Vector<T> sums[count][vectors] = {};
    for (Index k = 0; k < n; k++)
        add_step<T, count, vectors>(A + k * lanes<T>, 1, B + k * lanes<T>, gram_chain * lanes<T>, sums);
#pragma GCC unroll 16
    for (int a = 0; a < count; a++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            if (a < rows && v * lanes<T> < columns)
                add_part<T>(out + a * stride + v * lanes<T>, sums[a][v], columns - v * lanes<T>);
}

// The same for `wanted` vectors.
template <class T, int vectors = tile_vectors>
INLINE void gram_tile_of(Index wanted, const T *A, const T *B, Index n, Index rows, Index columns, double *out,
                         Index stride)
{
    if constexpr (vectors > 1)
        if (wanted < vectors)
            return gram_tile_of<T, vectors - 1>(wanted, A, B, n, rows, columns, out, stride);
    gram_tile<T, vectors>(A, B, n, rows, columns, out, stride);
}

// The first `count` numbers of a vector, converted to T; the others are zero.
template <class T, class S>
INLINE Vector<T> load_as(const S *from, Index count)
{
    if constexpr (sizeof(T) == sizeof(S))
        return load_part(from, count);
    else if (count >= lanes<T>)
        return load_double(from);
    T part[lanes<T>] = {};
    for (Index l = 0; l < count && l < lanes<T>; l++)
        part[l] = T(from[l]);
    return load(part);
}

// out[i, j] += sum_k F[k, i] F[k, j] for i <= j, and for some i > j. Products of `gram_chain` rows are summed as T,
// and these sums as doubles; so are the sums of the columns in `totals`, unless it is null. `space` holds `gram_chain`
// rows, padded to whole vectors.
template <class T, class S>
void gram(Rows<S> F, T *space, double *out, Index stride, double *totals)
{
    const Index m = F.p;
    for (Index from = 0; from < F.n; from += gram_chain) {
        const Index n = F.n - from < gram_chain ? F.n - from : gram_chain;
        for (Index k = 0; k < n; k++)
            for (Index j = 0; j < m; j += lanes<T>)
                store(space + j * gram_chain + k * lanes<T>, load_as<T>(F.data + (from + k) * F.stride + j, m - j));
        for (Index j = 0; totals && j < m; j += lanes<T>) {
            Vector<T> sum = {};
            for (Index k = 0; k < n; k++)
                sum += load(space + j * gram_chain + k * lanes<T>);
            add_part<T>(totals + j, sum, m - j);
        }
        for (Index j = 0; j < m; j += panel<T>) {
            const Index columns = m - j < panel<T> ? m - j : panel<T>, vectors = (columns + lanes<T> - 1) / lanes<T>;
            for (Index i = 0; i < j + columns; i += gram_rows<T>) {
                const Index rows = m - i < gram_rows<T> ? m - i : gram_rows<T>;
                // Skip vectors that lie entirely below the diagonal.
                const Index skipped = i < j ? 0 : (i - j) / lanes<T>, first = skipped * lanes<T>;
                const T *A = space + i / lanes<T> * lanes<T> * gram_chain + i % lanes<T>;
                gram_tile_of<T>(vectors - skipped, A, space + (j + first) * gram_chain, n, rows, columns - first,
                                out + i * stride + j + first, stride);
            }
        }
    }
}

}  // namespace nystrom::NYSTROM_SET
