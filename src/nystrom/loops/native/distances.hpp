// Kernels of distance in a p-norm, 0 < p <= 2: exp(-(gamma |x - z|_p)^q), while the sums are in registers.
//
// All terms are positive, so the relative error of a sum is a few units however far the rows are from the origin.
#pragma once

#include "product.hpp"

namespace nystrom::NYSTROM_SET {

// Number of rows that stay in the cache while they are compared with all panels.
constexpr Index distance_chunk_rows = 96;
// A power takes many registers, so its tile has one row. The sums need none for products, and four rows hide the
// latency of their additions.
template <bool powered>
constexpr Index distance_rows = powered ? 1 : 4;

// The sum plus the term of one column. With gamma it is a multiply-add, for which some processors have other units
// than for the difference.
template <class T, bool powered>
INLINE Vector<T> distance_sum(Vector<T> sum, Vector<T> difference, const NormKernel<T> &kernel)
{
    constexpr typename Bits<T>::type sign = typename Bits<T>::type(1) << (8 * sizeof(T) - 1);
    Vector<T> size = (Vector<T>)((Unsigned<T>)difference & ~sign);
    if constexpr (powered)
        return sum + power<T>(size * splat(kernel.gamma), kernel.power[0], kernel.power[1]);
    return sum + size * splat(kernel.gamma);
}

template <class T, bool rooted>
INLINE Vector<T> distance_value(Vector<T> sum, const NormKernel<T> &kernel)
{
    if constexpr (rooted)
        sum = power<T>(sum, kernel.root[0], kernel.root[1]);
    return exponential<T>(-sum);
}

// The sums of the columns from `begin` to `end`.
template <class T, bool powered, int rows>
INLINE void distance_sums(const T *X, Index stride, const T *table, Index begin, Index end, const NormKernel<T> &kernel,
                          Vector<T> (*sums)[tile_vectors])
{
    Vector<T> kept[rows][tile_vectors] = {};
    for (Index k = begin; k < end; k++) {
        Vector<T> z[tile_vectors];
#pragma GCC unroll 4
        for (int v = 0; v < tile_vectors; v++)
            z[v] = load(table + k * panel<T> + v * lanes<T>);
#pragma GCC unroll 16
        for (int a = 0; a < rows; a++) {
            const Vector<T> x = splat(X[a * stride + k]);
#pragma GCC unroll 4
            for (int v = 0; v < tile_vectors; v++)
                kept[a][v] = distance_sum<T, powered>(kept[a][v], x - z[v], kernel);
        }
    }
#pragma GCC unroll 16
    for (int a = 0; a < rows; a++)
#pragma GCC unroll 4
        for (int v = 0; v < tile_vectors; v++)
            sums[a][v] = begin ? sums[a][v] + kept[a][v] : kept[a][v];
}

template <class T, bool powered, bool rooted, int rows>
INLINE void distance_tile(const T *X, Index stride, const T *table, Index p, const NormKernel<T> &kernel, T *out,
                          Index out_stride, Index columns)
{
    Vector<T> sums[rows][tile_vectors];
    // The first chain needs no sums of zero, which would cost as much as ten columns.
    distance_sums<T, powered, rows>(X, stride, table, 0, p < chain ? p : chain, kernel, sums);
    for (Index begin = chain; begin < p; begin += chain)
        distance_sums<T, powered, rows>(X, stride, table, begin, p - begin < chain ? p : begin + chain, kernel, sums);
    for (int a = 0; a < rows; a++)
        for (Index v = 0; v * lanes<T> < columns; v++)
            store_part<T>(out + a * out_stride + v * lanes<T>, distance_value<T, rooted>(sums[a][v], kernel),
                          columns - v * lanes<T>);
}

template <class T, bool powered, bool rooted>
void norm_kernel_of(Rows<T> X, const T *table, Index m, const NormKernel<T> &kernel, T *out, Index out_stride)
{
    constexpr Index rows = distance_rows<powered>;
    for (Index from = 0; from < X.n; from += distance_chunk_rows) {
        const Index upto = from + distance_chunk_rows < X.n ? from + distance_chunk_rows : X.n;
        for (Index j = 0; j < m; j += panel<T>) {
            const Index columns = m - j < panel<T> ? m - j : panel<T>;
            const T *part = table + j * X.p;
            Index i = from;
            for (; i + rows <= upto; i += rows) {
                fetch_for_writing(out + i * out_stride + j, out_stride, rows, columns);
                distance_tile<T, powered, rooted, int(rows)>(X.data + i * X.stride, X.stride, part, X.p, kernel,
                                                             out + i * out_stride + j, out_stride, columns);
            }
            for (; i < upto; i++)
                distance_tile<T, powered, rooted, 1>(X.data + i * X.stride, X.stride, part, X.p, kernel,
                                                     out + i * out_stride + j, out_stride, columns);
        }
    }
}

// out[i, j] = exp(-(gamma |X[i] - table[:, j]|_p)^q). `table` is in panels of columns.
template <class T>
void norm_kernel(Rows<T> X, const T *table, Index m, NormKernel<T> kernel, T *out, Index out_stride)
{
    if (kernel.powered && kernel.rooted)
        return norm_kernel_of<T, true, true>(X, table, m, kernel, out, out_stride);
    if (kernel.powered)
        return norm_kernel_of<T, true, false>(X, table, m, kernel, out, out_stride);
    if (kernel.rooted)
        return norm_kernel_of<T, false, true>(X, table, m, kernel, out, out_stride);
    return norm_kernel_of<T, false, false>(X, table, m, kernel, out, out_stride);
}

}  // namespace nystrom::NYSTROM_SET
