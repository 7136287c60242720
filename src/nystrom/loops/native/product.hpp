// Products of dense rows with few or many columns, and their exponential while it is in registers.
//
// Every element is a sum of chains of `chain` multiply-adds over the columns of X, whatever the position of its row in
// a block: results have the same bits however rows are split.
#pragma once

#include "vectors.hpp"

namespace nystrom::NYSTROM_SET {

constexpr Index most_chunk_rows = 96;
// Bytes of the rows of X that stay in the cache while they are multiplied with all columns.
constexpr Index chunk_bytes = 384 * 1024;
constexpr Index block_columns = 1024;
// Number of products summed in one chain before the sum is added to the others: rounding errors grow with its length.
constexpr Index chain = 128;

// The sums of one row of a tile.
template <class T>
using TileRow = Vector<T>[tile_vectors];

// One tile: `rows` rows of X by `vectors` vectors of columns, over p columns of X; meanwhile it prefetches rows that
// are `ahead` numbers away.
template <class T, int rows, int vectors>
INLINE void tile(const T *X, Index stride, const T *table, Index p, Index ahead, TileRow<T> *sums)
{
    for (Index begin = 0; begin == 0 || begin < p; begin += chain) {
        Index end = begin + chain < p ? begin + chain : p;
        Vector<T> kept[rows][vectors] = {};
        for (Index from = begin; from < end; from += line<T>) {
            Index upto = from + line<T> < end ? from + line<T> : end;
            if (ahead)
                for (int i = 0; i < rows; i++)
                    __builtin_prefetch(X + i * stride + from + ahead);
            for (Index k = from; k < upto; k++)
                add_step<T, rows, vectors>(X + k, stride, table + k * panel<T>, lanes<T>, kept);
        }
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors; v++)
                sums[i][v] = begin ? sums[i][v] + kept[i][v] : kept[i][v];
    }
}

template <class T, int vectors>
INLINE void tiles(const T *X, Index stride, Index rows, const T *table, Index p, Index ahead, TileRow<T> *sums)
{
    if (rows == tile_rows) {
        tile<T, int(tile_rows), vectors>(X, stride, table, p, ahead, sums);
        return;
    }
    for (Index i = 0; i < rows; i++)
        tile<T, 1, vectors>(X + i * stride, stride, table, p, 0, sums + i);
}

// The same for the number of vectors that hold `columns`.
template <class T, int vectors = tile_vectors>
INLINE void tiles_of(Index columns, const T *X, Index stride, Index rows, const T *table, Index p, Index ahead,
                     TileRow<T> *sums)
{
    if constexpr (vectors > 1)
        if (columns <= (vectors - 1) * lanes<T>)
            return tiles_of<T, vectors - 1>(columns, X, stride, rows, table, p, ahead, sums);
    tiles<T, vectors>(X, stride, rows, table, p, ahead, sums);
}

template <class T>
T squared_norm(const T *x, Index p)
{
    Vector<T> sums[4] = {};
    Index k = 0;
    for (; k + 4 * lanes<T> <= p; k += 4 * lanes<T>)
        for (int v = 0; v < 4; v++) {
            Vector<T> part = load(x + k + v * lanes<T>);
            sums[v] += part * part;
        }
    for (int v = 0; k < p; k += lanes<T>, v++) {
        Vector<T> part = load_part(x + k, p - k);
        sums[v] += part * part;
    }
    return total<T>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T>
INLINE Vector<T> exponent(Vector<T> product, T row_norm, Vector<T> norms)
{
    Vector<T> value = product - splat(row_norm) - norms;
    return value > Vector<T>{} ? Vector<T>{} : value;
}

// `norms` from `column` on belong to the vector; a plain product has none.
template <class T, Finish finish>
INLINE Vector<T> finished(Vector<T> product, T row_norm, const T *norms, Index column)
{
    if constexpr (finish == Finish::product)
        return product;
    Vector<T> value = exponent<T>(product, row_norm, load(norms + column));
    if constexpr (finish == Finish::exponential)
        return exponential<T>(value);
    return value;
}

// The larger of each pair, for the first `count` pairs; NaN is never the larger.
template <class T>
INLINE Vector<T> larger_part(Vector<T> value, Vector<T> than, Index count)
{
    if (count < lanes<T>) {
        T part[lanes<T>];
        store(part, value);
        value = load_part(part, count);
    }
    return value > than ? value : than;
}

// Store the sums of one tile, which has all its columns if `full`; `add` them if they continue sums stored before. If
// `watched`, `tops` receives the largest values of each row and `kept`, unless null, all values; then `minus` is
// subtracted.
template <class T, Finish finish, bool full, bool watched = false>
INLINE void store_tile(TileRow<T> *sums, Index rows, Index columns, bool add, T *out, Index out_stride,
                       const T *row_norms, const T *norms, const T *minus = nullptr, Vector<T> *tops = nullptr,
                       T *kept = nullptr, Index kept_stride = 0)
{
    for (Index a = 0; a < rows; a++) {
        T *to = out + a * out_stride;
        T row_norm = finish == Finish::product ? T(0) : row_norms[a];
#pragma GCC unroll 4
        for (Index v = 0; v * lanes<T> < (full ? panel<T> : columns); v++) {
            Index count = full ? lanes<T> : columns - v * lanes<T>;
            Vector<T> value = sums[a][v];
            if (add)
                value += load_part(to + v * lanes<T>, count);
            value = finished<T, finish>(value, row_norm, norms, v * lanes<T>);
            if constexpr (watched) {
                tops[a] = larger_part<T>(value, tops[a], count);
                if (kept)
                    store_part<T>(kept + a * kept_stride + v * lanes<T>, value, count);
                value -= load(minus + v * lanes<T>);
            }
            store_part<T>(to + v * lanes<T>, value, count);
        }
    }
}

template <class T>
T largest_lane(Vector<T> v)
{
    T part[lanes<T>], largest = 0;
    store(part, v);
    for (Index l = 0; l < lanes<T>; l++)
        largest = part[l] > largest ? part[l] : largest;
    return largest;
}

// Prefetch the cache lines of a tile's output while its sums are computed.
template <class T>
INLINE void fetch_for_writing(const T *to, Index stride, Index rows, Index columns)
{
    for (Index a = 0; a < rows; a++) {
        for (Index j = 0; j < columns; j += line<T>)
            __builtin_prefetch(to + a * stride + j, 1);
        __builtin_prefetch(to + a * stride + columns - 1, 1);
    }
}

template <class T, Finish finish, bool watched>
double product_of(Rows<T> X, const T *table, Index m, T *out, Index out_stride, Ending<T> end)
{
    T row_norms[most_chunk_rows] = {};
    Vector<T> tops[watched ? most_chunk_rows : 1];
    double squares = 0;
    Index chunk = chunk_bytes / Index(sizeof(T)) / ((X.p < block_columns ? X.p : block_columns) + 1);
    chunk = chunk / tile_rows * tile_rows;
    chunk = chunk < tile_rows ? tile_rows : chunk > most_chunk_rows ? most_chunk_rows : chunk;
    // With one panel every row is read once, so prefetch the next rows; with more, the whole chunk is read again.
    Index fetched = m <= panel<T> ? 4 * tile_rows : chunk;
    for (Index from = 0; from < X.n; from += chunk) {
        Index upto = from + chunk < X.n ? from + chunk : X.n;
        if (finish != Finish::product)
            for (Index i = from; i < upto; i++) {
                T norm = squared_norm(X.data + i * X.stride, X.p);
                squares += double(norm);
                row_norms[i - from] = end.gamma * norm;
            }
        if constexpr (watched)
            for (Index i = from; i < upto; i++)
                tops[i - from] = Vector<T>{};
        for (Index k = 0; k == 0 || k < X.p; k += block_columns) {
            Index width = X.p - k < block_columns ? X.p - k : block_columns;
            bool last = k + width == X.p;
            for (Index j = 0; j < m; j += panel<T>) {
                Index columns = m - j < panel<T> ? m - j : panel<T>;
                const T *part = table + j * X.p + k * panel<T>;
                for (Index i = from; i < upto; i += tile_rows) {
                    Index rows = upto - i < tile_rows ? upto - i : tile_rows;
                    Index ahead = j == 0 && i + fetched + tile_rows <= X.n ? fetched * X.stride : 0;
                    const T *x = X.data + i * X.stride + k;
                    T *to = out + i * out_stride + j;
                    TileRow<T> sums[tile_rows];
                    fetch_for_writing(to, out_stride, rows, columns);
                    tiles_of<T>(columns, x, X.stride, rows, part, width, ahead, sums);
                    const T *own = finish == Finish::product ? nullptr : end.norms + j;
                    const T *minus = watched ? end.minus + j : nullptr;
                    const T *lengths = row_norms + (i - from);
                    Vector<T> *top = tops + (watched ? i - from : 0);
                    T *kept = watched && end.kept ? end.kept + i * end.kept_stride + j : nullptr;
                    if (!last)
                        store_tile<T, Finish::product, false>(sums, rows, columns, k > 0 || end.add, to, out_stride,
                                                              lengths, own);
                    else if (columns == panel<T> && rows == tile_rows && k == 0)
                        store_tile<T, finish, true, watched>(sums, tile_rows, panel<T>, end.add, to, out_stride, lengths,
                                                             own, minus, top, kept, end.kept_stride);
                    else
                        store_tile<T, finish, false, watched>(sums, rows, columns, k > 0 || end.add, to, out_stride, lengths,
                                                              own, minus, top, kept, end.kept_stride);
                }
            }
        }
        if constexpr (watched)
            if (end.largest)
                for (Index i = from; i < upto; i++)
                    end.largest[i] = largest_lane<T>(tops[i - from]);
    }
    return squares;
}

// out[i, j] = sum_k X[i, k] table[k, j], added to the existing value if end.add. With Finish::exponents it is
// min(out[i, j] - gamma |X[i]|^2 - norms[j], 0), and with Finish::exponential the exponential of that, minus
// end.minus[j] if given. `table` consists of panels of columns with p rows each, padded with zeros like the data of
// `end` per column. Returns the sum of all |X[i]|^2, or 0 for plain products.
template <class T>
double product(Rows<T> X, const T *table, Index m, T *out, Index out_stride, Ending<T> end)
{
    if (end.finish == Finish::product)
        return product_of<T, Finish::product, false>(X, table, m, out, out_stride, end);
    if (end.finish == Finish::exponents)
        return product_of<T, Finish::exponents, false>(X, table, m, out, out_stride, end);
    if (end.minus)
        return product_of<T, Finish::exponential, true>(X, table, m, out, out_stride, end);
    return product_of<T, Finish::exponential, false>(X, table, m, out, out_stride, end);
}

}  // namespace nystrom::NYSTROM_SET
