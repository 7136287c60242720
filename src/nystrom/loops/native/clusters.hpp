// The nearest centre of each row, and the sums of the rows of each cluster.
#pragma once

#include "product.hpp"

namespace nystrom::NYSTROM_SET {

// The nearest centre of one row that is not finite and may have NaN scores; 0 if all are NaN.
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

template <class T, int count>
struct LanesOf {
    typedef T type __attribute__((vector_size(count * sizeof(T))));
};
template <class T, int count>
using Lanes = typename LanesOf<T, count>::type;

// The largest score of some lanes, and the smallest index at which it occurs.
template <class T, class Number>
struct Best {
    T score;
    Number number;
};

template <class T, class Number, int count>
INLINE Best<T, Number> best_lane(Lanes<T, count> scores, Lanes<Number, count> numbers)
{
    if constexpr (count == 1) {
        return {scores[0], numbers[0]};
    } else {
        // Compare one half with the other.
        constexpr int half = count / 2;
        Lanes<T, half> score[2];
        Lanes<Number, half> number[2];
        __builtin_memcpy(score, &scores, sizeof scores);
        __builtin_memcpy(number, &numbers, sizeof numbers);
        auto later = (score[1] > score[0]) | ((score[1] == score[0]) & (number[1] < number[0]));
        return best_lane<T, Number, half>(later ? score[1] : score[0], later ? number[1] : number[0]);
    }
}

// Scores of one tile of rows in `space` with `vectors` vectors of centres from number j on; updates the best score of
// each lane and its index.
template <class T, int vectors>
INLINE void score_tile(const T *space, Index p, const T *columns, const T *half, Index j, Vector<T> *best, Mask<T> *place)
{
    using Number = decltype(Mask<T>{}[0] + 0);
    Vector<T> sums[tile_rows][vectors];
    for (int v = 0; v < vectors; v++)
        for (int a = 0; a < tile_rows; a++)
            sums[a][v] = -load(half + j + v * lanes<T>);
    for (Index k = 0; k < p; k++)
        add_step<T, int(tile_rows), vectors>(space + k, p, columns + k * panel<T>, lanes<T>, sums);
#pragma GCC unroll 16
    for (int a = 0; a < tile_rows; a++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            auto better = sums[a][v] > best[a];
            best[a] = better ? sums[a][v] : best[a];
            place[a] = better ? Mask<T>{} + Number(j + v * lanes<T>) : place[a];
        }
}

template <class T, int vectors = tile_vectors>
INLINE void score_tile_of(Index wanted, const T *space, Index p, const T *columns, const T *half, Index j,
                          Vector<T> *best, Mask<T> *place)
{
    if constexpr (vectors > 1)
        if (wanted < vectors)
            return score_tile_of<T, vectors - 1>(wanted, space, p, columns, half, j, best, place);
    score_tile<T, vectors>(space, p, columns, half, j, best, place);
}

// labels[i] = the first j with the largest (X[i] - shift) . table[:, j] - half[j]; NaN is never the largest.
// `half` is padded with infinity; `space` holds tile_rows * p numbers.
template <class T>
void nearest(Rows<T> X, const T *shift, const T *table, const T *half, Index m, T *space, std::int32_t *labels)
{
    using Number = decltype(Mask<T>{}[0] + 0);
    Mask<T> steps;
    for (Index l = 0; l < lanes<T>; l++)
        steps[l] = Number(l);
    for (Index i = 0; i < X.n; i += tile_rows) {
        Index rows = X.n - i < tile_rows ? X.n - i : tile_rows;
        Vector<T> best[tile_rows];
        Mask<T> place[tile_rows];
        for (Index a = 0; a < tile_rows; a++) {
            // Missing rows of the last tile repeat the last row.
            const T *x = X.data + (a < rows ? i + a : X.n - 1) * X.stride;
            for (Index k = 0; k < X.p; k++)
                space[a * X.p + k] = x[k] - shift[k];
            best[a] = splat(T(-__builtin_inf()));
            place[a] = Mask<T>{};
        }
        for (Index j = 0; j < m; j += panel<T>) {
            const Index vectors = (m - j + lanes<T> - 1) / lanes<T>;
            score_tile_of<T>(vectors, space, X.p, table + j * X.p, half, j, best, place);
        }
        for (Index a = 0; a < rows; a++) {
            auto found = best_lane<T, Number, int(lanes<T>)>(best[a], place[a] + steps);
            Index label = Index(found.number);
            if (!(found.score - found.score == 0))
                label = nearest_of_row(space + a * X.p, X.p, table, half, m);
            labels[i + a] = std::int32_t(label);
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
