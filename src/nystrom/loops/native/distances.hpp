// Distances in the 1-norm, in double: sum_k |X[i, k] - Z[j, k]|.
#pragma once

#include "vectors.hpp"

namespace nystrom::NYSTROM_SET {

// Rows that stay in the cache while they meet all panels.
constexpr Index distance_chunk_rows = 96;

template <class T, int rows>
INLINE void distance_tile(const T *X, Index stride, const double *table, Index p, double *out, Index out_stride,
                          Index columns)
{
    using Doubles = Vector<double>;
    constexpr std::uint64_t sign = std::uint64_t(1) << 63;
    Doubles sums[rows][tile_vectors] = {};
    for (Index k = 0; k < p; k++) {
        Doubles z[tile_vectors];
#pragma GCC unroll 4
        for (int v = 0; v < tile_vectors; v++)
            z[v] = load(table + k * panel<double> + v * lanes<double>);
#pragma GCC unroll 16
        for (int a = 0; a < rows; a++) {
            const Doubles x = splat(double(X[a * stride + k]));
#pragma GCC unroll 4
            for (int v = 0; v < tile_vectors; v++)
                sums[a][v] += (Doubles)((Unsigned<double>)(x - z[v]) & ~sign);
        }
    }
    for (int a = 0; a < rows; a++)
        for (Index v = 0; v * lanes<double> < columns; v++)
            store_part<double>(out + a * out_stride + v * lanes<double>, sums[a][v], columns - v * lanes<double>);
}

// out[i, j] = sum_k |X[i, k] - table[k, j]|, added up in the order of k. `table` is in panels of columns.
template <class T>
void distances(Rows<T> X, const double *table, Index m, double *out, Index out_stride)
{
    for (Index from = 0; from < X.n; from += distance_chunk_rows) {
        const Index upto = from + distance_chunk_rows < X.n ? from + distance_chunk_rows : X.n;
        for (Index j = 0; j < m; j += panel<double>) {
            const Index columns = m - j < panel<double> ? m - j : panel<double>;
            const double *part = table + j * X.p;
            Index i = from;
            for (; i + tile_rows <= upto; i += tile_rows)
                distance_tile<T, tile_rows>(X.data + i * X.stride, X.stride, part, X.p, out + i * out_stride + j,
                                            out_stride, columns);
            for (; i < upto; i++)
                distance_tile<T, 1>(X.data + i * X.stride, X.stride, part, X.p, out + i * out_stride + j, out_stride,
                                    columns);
        }
    }
}

}  // namespace nystrom::NYSTROM_SET
