// Products of sparse rows with dense or sparse landmarks, and their exponential.
#pragma once

#include "product.hpp"

namespace nystrom::NYSTROM_SET {

// Entries of a sparse row whose place in the panel is fetched before it is needed.
constexpr Index entries_ahead = 16;

// One sparse row by one panel.
template <class T, class I, int vectors>
INLINE void sparse_row(const I *indices, const T *data, Index count, const T *table, Vector<T> *sums)
{
    Vector<T> parts[4][2] = {};
    Index k = 0;
    for (; k + 4 <= count; k += 4) {
        if (k + entries_ahead < count)
            for (int a = 0; a < 4; a++)
                __builtin_prefetch(table + Index(indices[k + entries_ahead - 4 + a]) * panel<T>);
#pragma GCC unroll 4
        for (int a = 0; a < 4; a++) {
            Vector<T> x = splat(data[k + a]);
            const T *row = table + Index(indices[k + a]) * panel<T>;
            for (int v = 0; v < vectors; v++)
                parts[a][v] += x * load(row + v * lanes<T>);
        }
    }
    for (; k < count; k++) {
        Vector<T> x = splat(data[k]);
        for (int v = 0; v < vectors; v++)
            parts[0][v] += x * load(table + Index(indices[k]) * panel<T> + v * lanes<T>);
    }
    for (int v = 0; v < vectors; v++)
        sums[v] = (parts[0][v] + parts[1][v]) + (parts[2][v] + parts[3][v]);
}

template <class T, class I, Finish finish>
INLINE void sparse_panel(SparseRows<T, I> X, const T *table, Index columns, T *out, Index m, const T *row_norms,
                         const T *norms)
{
    for (Index i = 0; i < X.n; i++) {
        Vector<T> sums[2];
        Index begin = Index(X.ends[i]), count = Index(X.ends[i + 1]) - begin;
        if (columns > lanes<T>)
            sparse_row<T, I, 2>(X.indices + begin, X.data + begin, count, table, sums);
        else
            sparse_row<T, I, 1>(X.indices + begin, X.data + begin, count, table, sums);
        store_tile<T, finish, false>(&sums, 1, columns, false, out + i * m, m, finish == Finish::product ? nullptr : row_norms + i,
                              norms);
    }
}

// The same as `product` for sparse rows X, whose row_norms, times gamma, are given; out is contiguous.
//
// The columns are `table`, in panels, or where that is null the m sparse rows Z, which are spread into one panel after
// the other: `space` then holds p * panel zeros, and does so again afterwards.
template <class T, class I>
void sparse_product(SparseRows<T, I> X, const T *table, SparseRows<T, I> Z, T *space, Index m, T *out, const T *row_norms,
                    const T *norms, Finish finish)
{
    for (Index j = 0; j < m; j += panel<T>) {
        Index columns = m - j < panel<T> ? m - j : panel<T>;
        if (!table)
            for (Index c = 0; c < columns; c++)
                for (Index k = Index(Z.ends[j + c]); k < Index(Z.ends[j + c + 1]); k++)
                    space[Index(Z.indices[k]) * panel<T> + c] += Z.data[k];
        const T *part = table ? table + j * X.p : space;
        if (finish == Finish::product)
            sparse_panel<T, I, Finish::product>(X, part, columns, out + j, m, nullptr, nullptr);
        else if (finish == Finish::exponents)
            sparse_panel<T, I, Finish::exponents>(X, part, columns, out + j, m, row_norms, norms + j);
        else
            sparse_panel<T, I, Finish::exponential>(X, part, columns, out + j, m, row_norms, norms + j);
        if (!table)
            for (Index k = Index(Z.ends[j]); k < Index(Z.ends[j + columns]); k++)
                __builtin_memset(space + Index(Z.indices[k]) * panel<T>, 0, panel<T> * sizeof(T));
    }
}

}  // namespace nystrom::NYSTROM_SET
