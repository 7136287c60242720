// U = C V and Cᵀ (w ∘ U) in one reading of C, summed in double whatever the type of C.
#pragma once

#include "vectors.hpp"

namespace nystrom::NYSTROM_SET {

constexpr int normal_rows = 4;

// As many numbers as a vector of doubles has, as doubles.
INLINE Vector<double> load_double(const double *from) { return load(from); }

INLINE Vector<double> load_double(const float *from)
{
    typedef float Half __attribute__((vector_size(NYSTROM_VECTOR_BYTES / 2)));
    Half half;
    __builtin_memcpy(&half, from, sizeof half);
    return __builtin_convertvector(half, Vector<double>);
}

// One column v of V, and one of out, for `rows` rows.
template <class T, int rows>
INLINE void normal_of(const T *C, Index stride, Index m, const double *v, const double *weights, double *U, Index t,
                      double *out)
{
    constexpr Index width = lanes<double>;
    Vector<double> sums[rows][2] = {};
    Index j = 0;
    for (; j + 2 * width <= m; j += 2 * width)
        for (int a = 0; a < rows; a++)
            for (int h = 0; h < 2; h++)
                sums[a][h] += load_double(C + a * stride + j + h * width) * load(v + j + h * width);
    double factor[rows];
    for (int a = 0; a < rows; a++) {
        double sum = total<double>(sums[a][0] + sums[a][1]);
        for (Index l = j; l < m; l++)
            sum += double(C[a * stride + l]) * v[l];
        U[a * t] = sum;
        factor[a] = weights ? weights[a] * sum : sum;
    }
    for (j = 0; j + width <= m; j += width) {
        Vector<double> sum = load(out + j);
        for (int a = 0; a < rows; a++)
            sum += load_double(C + a * stride + j) * splat(factor[a]);
        store(out + j, sum);
    }
    for (; j < m; j++)
        for (int a = 0; a < rows; a++)
            out[j] += double(C[a * stride + j]) * factor[a];
}

// U[i, c] = C[i] . V[c] and out[c] += sum_i weights[i] U[i, c] C[i], for the t rows of V and of out, which are
// contiguous; `weights` null for ones.
template <class T>
void normal(Rows<T> C, const double *V, Index t, const double *weights, double *U, double *out)
{
    Index i = 0;
    for (; i + normal_rows <= C.n; i += normal_rows)
        for (Index c = 0; c < t; c++)
            normal_of<T, normal_rows>(C.data + i * C.stride, C.stride, C.p, V + c * C.p, weights ? weights + i : nullptr,
                                      U + i * t + c, t, out + c * C.p);
    for (; i < C.n; i++)
        for (Index c = 0; c < t; c++)
            normal_of<T, 1>(C.data + i * C.stride, C.stride, C.p, V + c * C.p, weights ? weights + i : nullptr,
                            U + i * t + c, t, out + c * C.p);
}

}  // namespace nystrom::NYSTROM_SET
