// U = C V and Cᵀ (w ∘ U) in one reading of C, summed in double whatever the type of C.
#pragma once

#include "vectors.hpp"

namespace nystrom::NYSTROM_SET {

// Two columns at a time: their sums take 16 of 32 registers, or 8 of 16.
constexpr int normal_rows = NYSTROM_VECTOR_BYTES == 64 ? 8 : 4;

// `count` rows of V (columns of the product) and of out, for `rows` rows of C.
template <class T, int rows, int count>
INLINE void normal_of(Rows<T> C, Index i, const double *V, const double *weights, double *U, Index t, double *out)
{
    constexpr Index width = lanes<double>;
    const Index m = C.p;
    const T *from = C.data + i * C.stride;
    Vector<double> sums[rows][count] = {};
    Index j = 0;
    for (; j + width <= m; j += width)
        for (int a = 0; a < rows; a++) {
            Vector<double> part = load_double(from + a * C.stride + j);
            for (int c = 0; c < count; c++)
                sums[a][c] += part * load(V + c * m + j);
        }
    double factor[rows][count];
    for (int a = 0; a < rows; a++)
        for (int c = 0; c < count; c++) {
            double sum = total<double>(sums[a][c]);
            for (Index l = j; l < m; l++)
                sum += double(from[a * C.stride + l]) * V[c * m + l];
            U[(i + a) * t + c] = sum;
            factor[a][c] = weights ? weights[i + a] * sum : sum;
        }
    for (j = 0; j + width <= m; j += width) {
        Vector<double> added[count];
        for (int c = 0; c < count; c++)
            added[c] = load(out + c * m + j);
        for (int a = 0; a < rows; a++) {
            Vector<double> part = load_double(from + a * C.stride + j);
            for (int c = 0; c < count; c++)
                added[c] += part * splat(factor[a][c]);
        }
        for (int c = 0; c < count; c++)
            store(out + c * m + j, added[c]);
    }
    for (; j < m; j++)
        for (int a = 0; a < rows; a++)
            for (int c = 0; c < count; c++)
                out[c * m + j] += double(from[a * C.stride + j]) * factor[a][c];
}

template <class T, int rows>
INLINE void normal_rows_of(Rows<T> C, Index i, const double *V, Index t, const double *weights, double *U, double *out)
{
    Index c = 0;
    for (; c + 2 <= t; c += 2)
        normal_of<T, rows, 2>(C, i, V + c * C.p, weights, U + c, t, out + c * C.p);
    for (; c < t; c++)
        normal_of<T, rows, 1>(C, i, V + c * C.p, weights, U + c, t, out + c * C.p);
}

// U[i, c] = C[i] . V[c] and out[c] += sum_i weights[i] U[i, c] C[i], for the t contiguous rows of V and of out;
// null `weights` mean ones.
template <class T>
void normal(Rows<T> C, const double *V, Index t, const double *weights, double *U, double *out)
{
    Index i = 0;
    for (; i + normal_rows <= C.n; i += normal_rows)
        normal_rows_of<T, normal_rows>(C, i, V, t, weights, U, out);
    for (; i < C.n; i++)
        normal_rows_of<T, 1>(C, i, V, t, weights, U, out);
}

}  // namespace nystrom::NYSTROM_SET
