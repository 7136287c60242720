/* The inner loops that NumPy and BLAS do not do well, for float and for double; called through compiled.py.
 *
 * Why by hand: BLAS packs all of X for a product with few columns, which takes longer than the product (a sketch of
 * 10 columns, 30 landmarks); NumPy's float64 exp has no vector form without AVX-512; and no library fuses a product
 * with the exponential, or with the search for the nearest centre, while it is in registers.
 *
 * Every element of a product is a sum of chains of CHAIN multiply-adds over the columns, wherever its row stands in a
 * block: results have the same bits however rows are split. Nothing here allocates, keeps state or
 * touches Python, so all of it runs without the interpreter's lock.
 *
 * The file includes itself, once for each type.
 */
#ifndef REAL

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef _WIN32
#define API __declspec(dllexport)
#else
#define API __attribute__((visibility("default")))
#endif
#define INLINE static inline __attribute__((always_inline))
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(a) JOIN(a, SUFFIX)

/* Raised whenever a signature changes, so that a library left over from another build is not called. */
#define VERSION 1
/* Rows of a tile: with two vectors of columns they fill the registers of AVX2 and of NEON. */
#define TILE_ROWS 6
#define MOST_CHUNK_ROWS 96
/* Rows of X and of the result that go through the cache together. */
#define CHUNK_BYTES (384 * 1024)
#define BLOCK_COLUMNS 1024
/* Products that are added up in one chain before the sum goes to the others: rounding errors grow with its length. */
#define CHAIN 128
/* Weights that a draw looks at as one. */
#define STRETCH 128
/* Entries of a sparse row whose place in the panel is fetched before it is needed. */
#define AHEAD 16
#define MOST_CANDIDATES 64

enum { PRODUCT = 0, EXPONENTS = 1, EXPONENTIAL = 2 };

/* The version of the library, or 0 if this processor lacks the instructions that it was compiled for. */
API int nystrom_version(void)
{
#if defined(__x86_64__) && defined(__AVX2__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? VERSION : 0;
#else
    return VERSION;
#endif
}

/* Whether the processor has wider vectors than this library uses. */
API int nystrom_wider_vectors(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") != 0;
#else
    return 0;
#endif
}

#define REAL float
#define INT int32_t
#define SUFFIX float32
#define LANES 8
#define SPLAT(x) {x, x, x, x, x, x, x, x}
#include "compiled.c"
#undef REAL
#undef INT
#undef SUFFIX
#undef LANES
#undef SPLAT

#define REAL double
#define INT int64_t
#define SUFFIX float64
#define LANES 4
#define SPLAT(x) {x, x, x, x}
#include "compiled.c"

#else /* REAL is defined: everything below is compiled for this type. */

#define VECTOR NAME(vector)
#define LOADED NAME(loaded)
#define MASK NAME(mask)
#define PANEL (2 * LANES)

typedef REAL VECTOR __attribute__((vector_size(32)));
/* The same in memory, where it is aligned as one number is. */
typedef REAL LOADED __attribute__((vector_size(32), aligned(sizeof(REAL)), may_alias));
typedef INT MASK __attribute__((vector_size(32)));

INLINE VECTOR NAME(splat)(REAL x)
{
    VECTOR v = SPLAT(x);
    return v;
}

INLINE VECTOR NAME(load)(const REAL *from) { return *(const LOADED *)from; }

INLINE void NAME(store)(REAL *to, VECTOR v) { *(LOADED *)to = v; }

INLINE VECTOR NAME(choose)(MASK where, VECTOR yes, VECTOR no)
{
    return (VECTOR)(((MASK)yes & where) | ((MASK)no & ~where));
}

/* exp(x) for x <= 0, to about one unit in the last place; 0 where that is no normal number, NaN for NaN.
 *
 * x = n log 2 + r with |r| <= log(2)/2, a Taylor polynomial for exp(r), and n added to the exponent. Adding 1.5 * 2^52
 * (2^23 for float) rounds to an integer and leaves it in the low bits.
 */
INLINE VECTOR NAME(exponential)(VECTOR x)
{
    const int is_float = sizeof(REAL) == 4;
    const REAL lowest = is_float ? -87.0 : -708.0;
    const REAL round = is_float ? 12582912.0 : 6755399441055744.0;
    const REAL log2_high = is_float ? 0x1.63p-1 : 0x1.62e42feep-1;
    const REAL log2_low = is_float ? -0x1.bd0106p-13 : 0x1.a39ef35793c76p-33;
    MASK known = x == x;
    MASK under = x < NAME(splat)(lowest);
    VECTOR kept = NAME(choose)(under, NAME(splat)(lowest), x);
    VECTOR shifted = kept * NAME(splat)((REAL)1.4426950408889634) + NAME(splat)(round);
    VECTOR n = shifted - NAME(splat)(round);
    VECTOR r = kept - n * NAME(splat)(log2_high);
    r = r - n * NAME(splat)(log2_low);
    /* Even and odd powers apart: two chains that do not wait for each other. */
    VECTOR square = r * r, even, odd;
    if (is_float) {
        even = NAME(splat)((REAL)(1.0 / 720));
        odd = NAME(splat)((REAL)(1.0 / 5040));
    } else {
        even = NAME(splat)((REAL)(1.0 / 479001600.0));
        even = even * square + NAME(splat)((REAL)(1.0 / 3628800.0));
        even = even * square + NAME(splat)((REAL)(1.0 / 40320.0));
        even = even * square + NAME(splat)((REAL)(1.0 / 720));
        odd = NAME(splat)((REAL)(1.0 / 6227020800.0));
        odd = odd * square + NAME(splat)((REAL)(1.0 / 39916800.0));
        odd = odd * square + NAME(splat)((REAL)(1.0 / 362880.0));
        odd = odd * square + NAME(splat)((REAL)(1.0 / 5040));
    }
    even = even * square + NAME(splat)((REAL)(1.0 / 24));
    odd = odd * square + NAME(splat)((REAL)(1.0 / 120));
    even = even * square + NAME(splat)((REAL)0.5);
    odd = odd * square + NAME(splat)((REAL)(1.0 / 6));
    even = even * square + NAME(splat)((REAL)1.0);
    odd = odd * square + NAME(splat)((REAL)1.0);
    VECTOR y = odd * r + even;
    y = (VECTOR)((MASK)y + ((MASK)shifted << (is_float ? 23 : 52)));
    y = (VECTOR)((MASK)y & ~under);
    return NAME(choose)(known, y, x);
}

/* One tile: `rows` rows of X by `vectors` vectors of columns, over p columns of X; meanwhile rows that are `ahead`
 * numbers away come into the cache.
 */
INLINE void NAME(tile)(const int rows, const int vectors, const REAL *X, ptrdiff_t stride, const REAL *panel, ptrdiff_t p,
                       ptrdiff_t ahead, VECTOR sums[TILE_ROWS][2])
{
    for (ptrdiff_t begin = 0; begin == 0 || begin < p; begin += CHAIN) {
        ptrdiff_t end = begin + CHAIN < p ? begin + CHAIN : p;
        VECTOR kept[TILE_ROWS][2];
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++)
                kept[i][v] = NAME(splat)(0);
        for (ptrdiff_t from = begin; from < end; from += PANEL) {
            ptrdiff_t upto = from + PANEL < end ? from + PANEL : end;
            if (ahead)
                for (int i = 0; i < rows; i++)
                    __builtin_prefetch(X + i * stride + from + ahead);
            for (ptrdiff_t k = from; k < upto; k++) {
                VECTOR first = NAME(load)(panel + k * PANEL);
                VECTOR second = vectors > 1 ? NAME(load)(panel + k * PANEL + LANES) : first;
#pragma GCC unroll 6
                for (int i = 0; i < rows; i++) {
                    VECTOR x = NAME(splat)(X[i * stride + k]);
                    kept[i][0] += x * first;
                    if (vectors > 1)
                        kept[i][1] += x * second;
                }
            }
        }
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++)
                sums[i][v] = begin ? sums[i][v] + kept[i][v] : kept[i][v];
    }
}

INLINE void NAME(tiles)(const int vectors, const REAL *X, ptrdiff_t stride, ptrdiff_t rows, const REAL *panel,
                        ptrdiff_t p, ptrdiff_t ahead, VECTOR sums[TILE_ROWS][2])
{
    if (rows == TILE_ROWS) {
        NAME(tile)(TILE_ROWS, vectors, X, stride, panel, p, ahead, sums);
        return;
    }
    for (ptrdiff_t i = 0; i < rows; i++)
        NAME(tile)(1, vectors, X + i * stride, stride, panel, p, 0, sums + i);
}

INLINE VECTOR NAME(load_part)(const REAL *from, ptrdiff_t count)
{
    if (count >= LANES)
        return NAME(load)(from);
    REAL part[LANES] = {0};
    for (ptrdiff_t l = 0; l < count; l++)
        part[l] = from[l];
    return NAME(load)(part);
}

INLINE void NAME(store_part)(REAL *to, VECTOR v, ptrdiff_t count)
{
    if (count >= LANES) {
        NAME(store)(to, v);
        return;
    }
    REAL part[LANES];
    NAME(store)(part, v);
    for (ptrdiff_t l = 0; l < count; l++)
        to[l] = part[l];
}

INLINE REAL NAME(total)(VECTOR v)
{
    REAL lanes[LANES];
    NAME(store)(lanes, v);
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

static REAL NAME(squared_norm)(const REAL *x, ptrdiff_t p)
{
    VECTOR sums[4] = {{0}, {0}, {0}, {0}};
    ptrdiff_t k = 0;
    for (; k + 4 * LANES <= p; k += 4 * LANES)
        for (int v = 0; v < 4; v++) {
            VECTOR part = NAME(load)(x + k + v * LANES);
            sums[v] += part * part;
        }
    for (int v = 0; k < p; k += LANES, v++) {
        VECTOR part = NAME(load_part)(x + k, p - k);
        sums[v] += part * part;
    }
    return NAME(total)((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

INLINE VECTOR NAME(exponent)(VECTOR product, REAL row_norm, const REAL *norms)
{
    VECTOR value = product - NAME(splat)(row_norm) - NAME(load)(norms);
    return NAME(choose)(value > NAME(splat)(0), NAME(splat)(0), value);
}

/* out[i, j] = sum_k X[i, k] table[k, j], and with `mode`
 *   EXPONENTS    min(out[i, j] - gamma |X[i]|^2 - norms[j], 0)
 *   EXPONENTIAL  the exponential of that.
 * `table` is in panels of 2 * LANES columns, each p rows of them, filled up with zeros; `norms` is as wide.
 */
API void NAME(nystrom_product)(const REAL *X, ptrdiff_t stride, ptrdiff_t n, ptrdiff_t p, const REAL *table, ptrdiff_t m,
                               REAL *out, ptrdiff_t out_stride, REAL gamma, const REAL *norms, int mode)
{
    REAL row_norms[MOST_CHUNK_ROWS];
    ptrdiff_t chunk = CHUNK_BYTES / (ptrdiff_t)sizeof(REAL) / ((p < BLOCK_COLUMNS ? p : BLOCK_COLUMNS) + m + 1);
    chunk = chunk / TILE_ROWS * TILE_ROWS;
    chunk = chunk < TILE_ROWS ? TILE_ROWS : chunk > MOST_CHUNK_ROWS ? MOST_CHUNK_ROWS : chunk;
    /* One panel reads every row once, so that the next rows are needed at once; more come back to the whole chunk. */
    ptrdiff_t fetched = m <= PANEL ? 4 * TILE_ROWS : chunk;
    for (ptrdiff_t from = 0; from < n; from += chunk) {
        ptrdiff_t upto = from + chunk < n ? from + chunk : n;
        if (mode != PRODUCT)
            for (ptrdiff_t i = from; i < upto; i++)
                row_norms[i - from] = gamma * NAME(squared_norm)(X + i * stride, p);
        for (ptrdiff_t k = 0; k == 0 || k < p; k += BLOCK_COLUMNS) {
            ptrdiff_t width = p - k < BLOCK_COLUMNS ? p - k : BLOCK_COLUMNS;
            int finish = mode != PRODUCT && k + width == p;
            for (ptrdiff_t j = 0; j < m; j += PANEL) {
                ptrdiff_t columns = m - j < PANEL ? m - j : PANEL;
                const REAL *panel = table + j * p + k * PANEL;
                for (ptrdiff_t i = from; i < upto; i += TILE_ROWS) {
                    ptrdiff_t rows = upto - i < TILE_ROWS ? upto - i : TILE_ROWS;
                    ptrdiff_t ahead = j == 0 && i + fetched + TILE_ROWS <= n ? fetched * stride : 0;
                    VECTOR sums[TILE_ROWS][2];
                    if (columns > LANES)
                        NAME(tiles)(2, X + i * stride + k, stride, rows, panel, width, ahead, sums);
                    else
                        NAME(tiles)(1, X + i * stride + k, stride, rows, panel, width, ahead, sums);
                    for (ptrdiff_t a = 0; a < rows; a++) {
                        REAL *to = out + (i + a) * out_stride + j;
                        REAL row_norm = mode == PRODUCT ? 0 : row_norms[i + a - from];
                        if (columns == PANEL && k == 0) {
                            VECTOR first = sums[a][0], second = sums[a][1];
                            if (finish) {
                                first = NAME(exponent)(first, row_norm, norms + j);
                                second = NAME(exponent)(second, row_norm, norms + j + LANES);
                                if (mode == EXPONENTIAL) {
                                    NAME(store)(to, NAME(exponential)(first));
                                    NAME(store)(to + LANES, NAME(exponential)(second));
                                    continue;
                                }
                            }
                            NAME(store)(to, first);
                            NAME(store)(to + LANES, second);
                            continue;
                        }
                        for (int v = 0; v * LANES < columns; v++) {
                            ptrdiff_t count = columns - v * LANES;
                            VECTOR value = sums[a][v];
                            if (k)
                                value += NAME(load_part)(to + v * LANES, count);
                            if (finish)
                                value = NAME(exponent)(value, row_norm, norms + j + v * LANES);
                            if (finish && mode == EXPONENTIAL)
                                value = NAME(exponential)(value);
                            NAME(store_part)(to + v * LANES, value, count);
                        }
                    }
                }
            }
        }
    }
}

/* One sparse row by one panel. */
INLINE void NAME(sparse_row)(const int vectors, const int32_t *indices, const REAL *data, ptrdiff_t count,
                             const REAL *panel, VECTOR sums[2])
{
    VECTOR parts[4][2];
    for (int a = 0; a < 4; a++)
        for (int v = 0; v < vectors; v++)
            parts[a][v] = NAME(splat)(0);
    ptrdiff_t k = 0;
    for (; k + 4 <= count; k += 4) {
        if (k + AHEAD < count)
            for (int a = 0; a < 4; a++)
                __builtin_prefetch(panel + (ptrdiff_t)indices[k + AHEAD - 4 + a] * PANEL);
#pragma GCC unroll 4
        for (int a = 0; a < 4; a++) {
            VECTOR x = NAME(splat)(data[k + a]);
            const REAL *row = panel + (ptrdiff_t)indices[k + a] * PANEL;
            for (int v = 0; v < vectors; v++)
                parts[a][v] += x * NAME(load)(row + v * LANES);
        }
    }
    for (; k < count; k++) {
        VECTOR x = NAME(splat)(data[k]);
        for (int v = 0; v < vectors; v++)
            parts[0][v] += x * NAME(load)(panel + (ptrdiff_t)indices[k] * PANEL + v * LANES);
    }
    for (int v = 0; v < vectors; v++)
        sums[v] = (parts[0][v] + parts[1][v]) + (parts[2][v] + parts[3][v]);
}

/* The same as nystrom_product for sparse rows (CSR) X, whose row_norms, times gamma, are given.
 *
 * The columns are `table`, in panels, or where that is NULL the m sparse rows Z, which are spread into one panel after
 * the other: `space` then holds p * PANEL zeros, and does so again afterwards.
 */
API void NAME(nystrom_sparse_product)(const int64_t *ends, const int32_t *indices, const REAL *data, ptrdiff_t n,
                                      ptrdiff_t p, const REAL *table, const int64_t *Z_ends, const int32_t *Z_indices,
                                      const REAL *Z_data, REAL *space, ptrdiff_t m, REAL *out, ptrdiff_t out_stride,
                                      const REAL *row_norms, const REAL *norms, int mode)
{
    for (ptrdiff_t j = 0; j < m; j += PANEL) {
        ptrdiff_t columns = m - j < PANEL ? m - j : PANEL;
        if (!table)
            for (ptrdiff_t c = 0; c < columns; c++)
                for (int64_t k = Z_ends[j + c]; k < Z_ends[j + c + 1]; k++)
                    space[(ptrdiff_t)Z_indices[k] * PANEL + c] += Z_data[k];
        const REAL *panel = table ? table + j * p : space;
        for (ptrdiff_t i = 0; i < n; i++) {
            VECTOR sums[2];
            ptrdiff_t count = (ptrdiff_t)(ends[i + 1] - ends[i]);
            if (columns > LANES)
                NAME(sparse_row)(2, indices + ends[i], data + ends[i], count, panel, sums);
            else
                NAME(sparse_row)(1, indices + ends[i], data + ends[i], count, panel, sums);
            for (int v = 0; v * LANES < columns; v++) {
                VECTOR value = sums[v];
                if (mode != PRODUCT)
                    value = NAME(exponent)(value, row_norms[i], norms + j + v * LANES);
                if (mode == EXPONENTIAL)
                    value = NAME(exponential)(value);
                NAME(store_part)(out + i * out_stride + j + v * LANES, value, columns - v * LANES);
            }
        }
        if (!table)
            for (int64_t k = Z_ends[j]; k < Z_ends[j + columns]; k++)
                memset(space + (ptrdiff_t)Z_indices[k] * PANEL, 0, PANEL * sizeof(REAL));
    }
}

/* sums[labels[i]] += X[i] - shift, counts[labels[i]] += 1, *squares += sum |X[i] - shift|^2.
 * Without a shift (NULL) squares are not summed.
 */
API void NAME(nystrom_sums)(const REAL *X, ptrdiff_t stride, ptrdiff_t n, ptrdiff_t p, const REAL *shift,
                            const int32_t *labels, double *sums, int64_t *counts, double *squares)
{
    double total = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL *restrict x = X + i * stride;
        double *restrict sum = sums + (ptrdiff_t)labels[i] * p;
        counts[labels[i]]++;
        if (!shift) {
            for (ptrdiff_t k = 0; k < p; k++)
                sum[k] += (double)x[k];
            continue;
        }
        double lanes[4] = {0, 0, 0, 0};
        ptrdiff_t k = 0;
        for (; k + 4 <= p; k += 4)
            for (int l = 0; l < 4; l++) {
                double value = (double)x[k + l] - (double)shift[k + l];
                sum[k + l] += value;
                lanes[l] += value * value;
            }
        for (; k < p; k++) {
            double value = (double)x[k] - (double)shift[k];
            sum[k] += value;
            lanes[0] += value * value;
        }
        total += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
    *squares += total;
}

/* labels[i] = the first j with the largest (X[i] - shift) . table[:, j] - half[j].
 * `half` is filled up with infinity; `space` holds TILE_ROWS * p numbers.
 */
API void NAME(nystrom_nearest)(const REAL *X, ptrdiff_t stride, ptrdiff_t n, ptrdiff_t p, const REAL *shift,
                               const REAL *table, const REAL *half, ptrdiff_t m, REAL *space, int32_t *labels)
{
    for (ptrdiff_t i = 0; i < n; i += TILE_ROWS) {
        ptrdiff_t rows = n - i < TILE_ROWS ? n - i : TILE_ROWS;
        VECTOR best[TILE_ROWS];
        MASK place[TILE_ROWS];
        for (ptrdiff_t a = 0; a < TILE_ROWS; a++) {
            /* Rows that are not there are the last one again. */
            const REAL *x = X + (a < rows ? i + a : n - 1) * stride;
            for (ptrdiff_t k = 0; k < p; k++)
                space[a * p + k] = x[k] - shift[k];
            best[a] = NAME(splat)(-INFINITY);
            place[a] = (MASK){0};
        }
        for (ptrdiff_t j = 0; j < m; j += PANEL) {
            VECTOR sums[TILE_ROWS][2];
            NAME(tile)(TILE_ROWS, 2, space, p, table + j * p, p, 0, sums);
            VECTOR first = NAME(load)(half + j), second = NAME(load)(half + j + LANES);
            MASK here = (MASK){0} + (INT)j, there = here + (INT)LANES;
#pragma GCC unroll 6
            for (int a = 0; a < TILE_ROWS; a++) {
                VECTOR low = sums[a][0] - first, high = sums[a][1] - second;
                MASK later = high > low;
                VECTOR score = NAME(choose)(later, high, low);
                MASK better = score > best[a];
                best[a] = NAME(choose)(better, score, best[a]);
                place[a] = (((there & later) | (here & ~later)) & better) | (place[a] & ~better);
            }
        }
        for (ptrdiff_t a = 0; a < rows; a++) {
            REAL highest = best[a][0];
            INT found = place[a][0];
            for (int l = 1; l < LANES; l++) {
                REAL score = best[a][l];
                INT number = place[a][l] + l;
                if (score > highest || (score == highest && number < found)) {
                    highest = score;
                    found = number;
                }
            }
            labels[i + a] = (int32_t)found;
        }
    }
}

/* sums[k] += sum_i X[i, k] and *squares += sum |X[i]|^2. `space` holds p numbers. */
API void NAME(nystrom_moments)(const REAL *X, ptrdiff_t stride, ptrdiff_t n, ptrdiff_t p, REAL *space, double *sums,
                               double *squares)
{
    double total = 0;
    for (ptrdiff_t from = 0; from < n; from += 16) {
        ptrdiff_t upto = from + 16 < n ? from + 16 : n;
        memset(space, 0, (size_t)p * sizeof(REAL));
        for (ptrdiff_t i = from; i < upto; i++) {
            const REAL *x = X + i * stride;
            VECTOR norm = NAME(splat)(0), other = NAME(splat)(0);
            ptrdiff_t k = 0;
            for (; k + PANEL <= p; k += PANEL) {
                VECTOR a = NAME(load)(x + k), b = NAME(load)(x + k + LANES);
                NAME(store)(space + k, NAME(load)(space + k) + a);
                NAME(store)(space + k + LANES, NAME(load)(space + k + LANES) + b);
                norm += a * a;
                other += b * b;
            }
            REAL rest = 0;
            for (; k < p; k++) {
                space[k] += x[k];
                rest += x[k] * x[k];
            }
            total += (double)NAME(total)(norm + other) + (double)rest;
        }
        for (ptrdiff_t k = 0; k < p; k++)
            sums[k] += (double)space[k];
    }
    *squares += total;
}

/* For `count` candidates: nearer[c, i] = min(closest[i], |points[:, i] - points[:, candidates[c]]|^2), and totals[c]
 * its sum over i. `space` holds TILE_ROWS * p numbers.
 */
INLINE void NAME(nearer)(const int count, const REAL *points, ptrdiff_t width, ptrdiff_t p, const REAL *squares,
                         const REAL *closest, const int64_t *candidates, REAL *space, REAL *nearer, double *totals)
{
    for (int a = 0; a < count; a++) {
        totals[a] = 0;
        for (ptrdiff_t k = 0; k < p; k++)
            space[k * count + a] = points[k * width + candidates[a]];
    }
    for (ptrdiff_t from = 0; from < width; from += STRETCH) {
        VECTOR parts[TILE_ROWS];
        for (int a = 0; a < count; a++)
            parts[a] = NAME(splat)(0);
        for (ptrdiff_t i = from; i < from + STRETCH; i += PANEL) {
            VECTOR sums[TILE_ROWS][2];
            for (ptrdiff_t begin = 0; begin == 0 || begin < p; begin += CHAIN) {
                ptrdiff_t end = begin + CHAIN < p ? begin + CHAIN : p;
                VECTOR kept[TILE_ROWS][2];
                for (int a = 0; a < count; a++)
                    kept[a][0] = kept[a][1] = NAME(splat)(0);
                for (ptrdiff_t k = begin; k < end; k++) {
                    const REAL *row = points + k * width + i;
                    VECTOR first = NAME(load)(row), second = NAME(load)(row + LANES);
#pragma GCC unroll 6
                    for (int a = 0; a < count; a++) {
                        VECTOR x = NAME(splat)(space[k * count + a]);
                        kept[a][0] += x * first;
                        kept[a][1] += x * second;
                    }
                }
                for (int a = 0; a < count; a++)
                    for (int v = 0; v < 2; v++)
                        sums[a][v] = begin ? sums[a][v] + kept[a][v] : kept[a][v];
            }
#pragma GCC unroll 6
            for (int a = 0; a < count; a++) {
                VECTOR own = NAME(splat)(squares[candidates[a]]);
                for (int v = 0; v < 2; v++) {
                    ptrdiff_t place = i + v * LANES;
                    VECTOR far = (NAME(load)(squares + place) + own) - (sums[a][v] + sums[a][v]);
                    VECTOR limit = NAME(load)(closest + place);
                    VECTOR low = NAME(choose)(far < limit, far, limit);
                    NAME(store)(nearer + a * width + place, low);
                    parts[a] += low;
                }
            }
        }
        for (int a = 0; a < count; a++)
            totals[a] += (double)NAME(total)(parts[a]);
    }
}

/* The number of the point that `uniform` in [0, 1) draws in proportion to `weights`: first a stretch, then in it. */
static int64_t NAME(draw)(const REAL *weights, const double *ends, ptrdiff_t n_stretches, double uniform)
{
    double total = ends[n_stretches - 1], target = uniform * total;
    ptrdiff_t low = 0, high = n_stretches - 1;
    while (low < high) {
        ptrdiff_t middle = (low + high) / 2;
        if (ends[middle] > target)
            high = middle;
        else
            low = middle + 1;
    }
    const REAL *stretch = weights + low * STRETCH;
    double sum = 0, before = low ? ends[low - 1] : 0.0;
    for (int l = 0; l < STRETCH; l++)
        sum += (double)stretch[l];
    /* The ends were rounded, so the place within the stretch is taken as a share of its own sum. */
    double inside = (target - before) / (ends[low] - before) * sum, reached = 0;
    int last = 0;
    for (int l = 0; l < STRETCH; l++) {
        if (!(stretch[l] > 0))
            continue;
        last = l;
        reached += (double)stretch[l];
        if (reached > inside)
            break;
    }
    return low * STRETCH + last;
}

/* K-means++ among the columns of `points` (p x width, width a multiple of STRETCH, filled up with zeros, as `squares`).
 *
 * chosen[0] is given. Each next point is drawn in proportion to its squared distance from those chosen, n_candidates
 * times, and the one that leaves the least sum of distances is kept. Returns how many were chosen: fewer than wanted if
 * no point is left at a distance. `closest` (width), `nearer` (n_candidates * width), `space` (TILE_ROWS * p) and `ends`
 * (width / STRETCH) are room to work in; closest[i] must come as infinity for points and as 0 beyond them.
 */
API ptrdiff_t NAME(nystrom_seed)(const REAL *points, ptrdiff_t width, ptrdiff_t p, const REAL *squares,
                                 const double *uniform, ptrdiff_t wanted, ptrdiff_t n_candidates, int64_t *chosen,
                                 REAL *closest, REAL *nearer, REAL *space, double *ends)
{
    int64_t candidates[MOST_CANDIDATES];
    double totals[MOST_CANDIDATES];
    ptrdiff_t tried = 1;
    candidates[0] = chosen[0];
    for (ptrdiff_t found = 1;; found++) {
        for (ptrdiff_t c = 0; c < tried;) {
            ptrdiff_t left = tried - c;
            REAL *to = nearer + c * width;
#define SOME(count) \
    NAME(nearer)(count, points, width, p, squares, closest, candidates + c, space, to, totals + c), c += count
            if (left >= 6)
                SOME(6);
            else if (left >= 4)
                SOME(4);
            else if (left >= 2)
                SOME(2);
            else
                SOME(1);
#undef SOME
        }
        ptrdiff_t best = 0;
        for (ptrdiff_t c = 1; c < tried; c++)
            if (totals[c] < totals[best])
                best = c;
        chosen[found - 1] = candidates[best];
        if (found == wanted)
            return found;
        double total = 0;
        for (ptrdiff_t i = 0; i < width; i += STRETCH) {
            VECTOR sum = NAME(splat)(0);
            for (ptrdiff_t l = i; l < i + STRETCH; l += LANES) {
                VECTOR v = NAME(load)(nearer + best * width + l);
                v = NAME(choose)(v > NAME(splat)(0), v, NAME(splat)(0));
                NAME(store)(closest + l, v);
                sum += v;
            }
            total += (double)NAME(total)(sum);
            ends[i / STRETCH] = total;
        }
        if (!(total > 0))
            return found;
        tried = n_candidates;
        for (ptrdiff_t c = 0; c < tried; c++)
            candidates[c] = NAME(draw)(closest, ends, width / STRETCH, uniform[(found - 1) * n_candidates + c]);
    }
}

#undef VECTOR
#undef LOADED
#undef MASK
#undef PANEL
#endif
