// Shapley values of products: sums over backgrounds and quadrature nodes of products of all factors except one.
#pragma once

#include "vectors.hpp"

namespace nystrom::NYSTROM_SET {

// Vectors computed at a time, so that their chains of products hide each other's latency.
constexpr int coalition_vectors = NYSTROM_VECTOR_BYTES == 64 ? 2 : 4;
constexpr Index coalition_width = coalition_vectors * lanes<double>;
static_assert(coalition_width <= widest_coalition);

// sums[j] += sum_q u_q prod_{i != j} (from[i] + t_q slope[i]): prefixes, then suffixes, so that nothing is divided.
INLINE void add_coalitions(const double *from, const double *slope, Index p, const double *nodes, const double *parts,
                           Index n_nodes, double *prefix, double *sums)
{
    constexpr Index width = lanes<double>;
    for (Index q = 0; q < n_nodes; q++) {
        const Vector<double> t = splat(nodes[q]);
        Vector<double> product[coalition_vectors];
        for (int v = 0; v < coalition_vectors; v++)
            product[v] = splat(parts[q]);
        for (Index j = 0; j < p; j++)
            for (int v = 0; v < coalition_vectors; v++) {
                const Index at = j * coalition_width + v * width;
                store(prefix + at, product[v]);
                product[v] *= load(from + at) + t * load(slope + at);
            }
        for (int v = 0; v < coalition_vectors; v++)
            product[v] = splat(1.0);
        for (Index j = p; j-- > 0;)
            for (int v = 0; v < coalition_vectors; v++) {
                const Index at = j * coalition_width + v * width;
                store(sums + at, load(sums + at) + load(prefix + at) * product[v]);
                product[v] *= load(from + at) + t * load(slope + at);
            }
    }
}

// out[j, l] = sum_b w_b (x[j, l] - b[j, l]) sum_q u_q prod_{i != j} (b[i, l] + t_q (x[i, l] - b[i, l])), for p factors
// and m columns; all matrices are contiguous. `space` has room for 5 p widest_coalition numbers.
void coalitions(Coalitions c, double *space, double *out)
{
    double *x = space, *from = x + c.p * coalition_width, *slope = from + c.p * coalition_width;
    double *prefix = slope + c.p * coalition_width, *sums = prefix + c.p * coalition_width;
    for (Index begin = 0; begin < c.m; begin += coalition_width) {
        const Index count = c.m - begin < coalition_width ? c.m - begin : coalition_width;
        for (Index j = 0; j < c.p; j++)
            for (Index l = 0; l < coalition_width; l++)
                x[j * coalition_width + l] = l < count ? c.x[j * c.m + begin + l] : 0.0;
        for (Index b = 0; b < c.n_background; b++) {
            for (Index j = 0; j < c.p; j++)
                for (Index l = 0; l < coalition_width; l++) {
                    const Index at = j * coalition_width + l;
                    from[at] = l < count ? c.background[(b * c.p + j) * c.m + begin + l] : 0.0;
                    slope[at] = x[at] - from[at];
                    sums[at] = 0.0;
                }
            add_coalitions(from, slope, c.p, c.nodes, c.parts, c.n_nodes, prefix, sums);
            for (Index j = 0; j < c.p; j++)
                for (Index l = 0; l < count; l++)
                    out[j * c.m + begin + l] += c.weights[b] * slope[j * coalition_width + l] * sums[j * coalition_width + l];
        }
    }
}

}  // namespace nystrom::NYSTROM_SET
