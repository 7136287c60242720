// The nearest centre of each row, and the sums of the rows of each cluster.
#pragma once

#include "product.hpp"

namespace nystrom::NYSTROM_SET {

// The nearest centre of one row that is not finite, of whose scores some may be NaN; 0 if all are.
template <class T>
Index nearest_of_row(const T *x, Index p, const T *table, const T *half, Index m)
{
    T highest = T(-__builtin_inf());
    Index found = 0;
    for (Index j = 0; j < m; j++) {
        const T *column = table + j / panel<T> * panel<T> * p + j % panel<T>;
        T score = -half[j];
        for (Index k = 0; k < p; k++)
            score += x[k] * column[k * panel<T>];
        if (score > highest) {
            highest = score;
            found = j;
        }
    }
    return found;
}

// labels[i] = the first j with the largest (X[i] - shift) . table[:, j] - half[j]; what is NaN is never the largest.
// `half` is filled up with infinity; `space` holds tile_rows * p numbers.
template <class T>
void nearest(Rows<T> X, const T *shift, const T *table, const T *half, Index m, T *space, std::int32_t *labels)
{
    using Number = decltype(Mask<T>{}[0] + 0);
    for (Index i = 0; i < X.n; i += tile_rows) {
        Index rows = X.n - i < tile_rows ? X.n - i : tile_rows;
        Vector<T> best[tile_rows];
        Mask<T> place[tile_rows];
        for (Index a = 0; a < tile_rows; a++) {
            // Rows that are not there are the last one again.
            const T *x = X.data + (a < rows ? i + a : X.n - 1) * X.stride;
            for (Index k = 0; k < X.p; k++)
                space[a * X.p + k] = x[k] - shift[k];
            best[a] = splat(T(-__builtin_inf()));
            place[a] = Mask<T>{};
        }
        for (Index j = 0; j < m; j += panel<T>) {
            Vector<T> sums[tile_rows][tile_vectors];
            for (int v = 0; v < tile_vectors; v++)
                for (int a = 0; a < tile_rows; a++)
                    sums[a][v] = -load(half + j + v * lanes<T>);
            const T *columns = table + j * X.p;
            for (Index k = 0; k < X.p; k++) {
                Vector<T> column[tile_vectors];
#pragma GCC unroll 4
                for (int v = 0; v < tile_vectors; v++)
                    column[v] = load(columns + k * panel<T> + v * lanes<T>);
#pragma GCC unroll 16
                for (int a = 0; a < tile_rows; a++) {
                    Vector<T> x = splat(space[a * X.p + k]);
#pragma GCC unroll 4
                    for (int v = 0; v < tile_vectors; v++)
                        sums[a][v] += x * column[v];
                }
            }
#pragma GCC unroll 16
            for (int a = 0; a < tile_rows; a++)
#pragma GCC unroll 4
                for (int v = 0; v < tile_vectors; v++) {
                    auto better = sums[a][v] > best[a];
                    best[a] = better ? sums[a][v] : best[a];
                    place[a] = better ? Mask<T>{} + Number(j + v * lanes<T>) : place[a];
                }
        }
        for (Index a = 0; a < rows; a++) {
            T parts[lanes<T>], highest = T(-__builtin_inf());
            Number numbers[lanes<T>];
            store(parts, best[a]);
            store(numbers, place[a]);
            for (Index l = 0; l < lanes<T>; l++)
                highest = parts[l] > highest ? parts[l] : highest;
            Index found = 0x7fffffff;
            for (Index l = 0; l < lanes<T>; l++) {
                Index number = parts[l] == highest ? Index(numbers[l]) + l : found;
                found = number < found ? number : found;
            }
            if (!(highest - highest == 0))
                found = nearest_of_row(space + a * X.p, X.p, table, half, m);
            labels[i + a] = std::int32_t(found);
        }
    }
}

// sums[labels[i]] += X[i] - shift and counts[labels[i]] += 1; returns sum |X[i] - shift|^2.
// Without a shift (null) squares are not summed.
template <class T>
double sums(Rows<T> X, const T *shift, const std::int32_t *labels, double *sums, std::int64_t *counts)
{
    double squares = 0;
    for (Index i = 0; i < X.n; i++) {
        const T *__restrict x = X.data + i * X.stride;
        double *__restrict sum = sums + Index(labels[i]) * X.p;
        counts[labels[i]]++;
        if (!shift) {
            for (Index k = 0; k < X.p; k++)
                sum[k] += double(x[k]);
            continue;
        }
        double parts[4] = {0, 0, 0, 0};
        Index k = 0;
        for (; k + 4 <= X.p; k += 4)
            for (int l = 0; l < 4; l++) {
                double value = double(x[k + l]) - double(shift[k + l]);
                sum[k + l] += value;
                parts[l] += value * value;
            }
        for (; k < X.p; k++) {
            double value = double(x[k]) - double(shift[k]);
            sum[k] += value;
            parts[0] += value * value;
        }
        squares += (parts[0] + parts[1]) + (parts[2] + parts[3]);
    }
    return squares;
}

}  // namespace nystrom::NYSTROM_SET
