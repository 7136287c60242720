// Products of sparse rows with landmarks, and their exponential; sums of sparse rows.
#pragma once

#include "product.hpp"

namespace nystrom::NYSTROM_SET {

// Number of entries of a row that are sorted by the kind of their column before they are multiplied.
constexpr Index entries_at_once = 256;
// Number of vectors of sums that stay in registers.
constexpr int most_vectors = NYSTROM_VECTOR_BYTES == 64 ? 16 : 8;
// Number of entries by which full columns are prefetched.
constexpr Index entries_ahead = 6;

// Some entries of one row: the offsets of their columns, and their values.
template <class T>
struct Entries {
    Index at[entries_at_once];
    T x[entries_at_once];
    Index count;
};

// sums[0 .. vectors) += sum of x times the full column at each offset.
template <class T, int vectors>
void add_full(const Entries<T> &entries, const T *full, T *sums)
{
    // Few vectors mean few chains of additions, each of which waits for its previous addition.
    constexpr int ways = vectors <= 2 ? 4 : vectors <= 4 ? 2 : 1;
    Vector<T> parts[ways][vectors] = {};
    for (Index k = 0; k < entries.count; k += ways) {
        if (k + entries_ahead + ways <= entries.count)
            for (int a = 0; a < ways; a++)
                for (Index from = 0; from < vectors * lanes<T>; from += line<T>)
                    __builtin_prefetch(full + entries.at[k + entries_ahead + a] + from);
        if (k + ways <= entries.count) {
#pragma GCC unroll 4
            for (int a = 0; a < ways; a++) {
                Vector<T> x = splat(entries.x[k + a]);
#pragma GCC unroll 16
                for (int v = 0; v < vectors; v++)
                    parts[a][v] += x * load(full + entries.at[k + a] + v * lanes<T>);
            }
            continue;
        }
        for (Index rest = k; rest < entries.count; rest++)
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++)
                parts[0][v] += splat(entries.x[rest]) * load(full + entries.at[rest] + v * lanes<T>);
    }
#pragma GCC unroll 16
    for (int v = 0; v < vectors; v++) {
        Vector<T> sum = parts[0][v];
        for (int a = 1; a < ways; a++)
            sum += parts[a][v];
        store(sums + v * lanes<T>, load(sums + v * lanes<T>) + sum);
    }
}

template <class T, int vectors>
INLINE void add_full_to(Index wanted, const Entries<T> &entries, const T *full, T *sums)
{
    if (wanted == vectors)
        add_full<T, vectors>(entries, full, sums);
    else if constexpr (vectors > 1)
        add_full_to<T, vectors - 1>(wanted, entries, full, sums);
}

// One row times all columns of the landmarks, added to `sums`.
template <class T, class I>
INLINE void sparse_row(const I *indices, const T *data, Index count, const ColumnTable<T> &Z, T *sums)
{
    Entries<T> full, lists;
    for (Index begin = 0; begin < count; begin += entries_at_once) {
        Index end = begin + entries_at_once < count ? begin + entries_at_once : count;
        full.count = lists.count = 0;
        for (Index k = begin; k < end; k++) {
            Index place = Z.places ? Index(Z.places[indices[k]]) : Index(indices[k]);
            full.at[full.count] = place * Z.width;
            full.x[full.count] = lists.x[lists.count] = data[k];
            lists.at[lists.count] = place - Z.n_full;
            bool listed = place >= Z.n_full;
            full.count += place >= 0 && !listed;
            lists.count += listed;
        }
        if (full.count)
            for (Index from = 0; from < Z.width; from += most_vectors * lanes<T>) {
                Index left = (Z.width - from) / lanes<T>;
                add_full_to<T, most_vectors>(left < most_vectors ? left : most_vectors, full, Z.full + from, sums + from);
            }
        for (Index k = 0; k < lists.count; k++) {
            T x = lists.x[k];
            const Stretch<T> *from = Z.stretches + lists.at[k] / most_stretches;
            if (k + entries_ahead < lists.count)
                __builtin_prefetch(Z.stretches + lists.at[k + entries_ahead] / most_stretches);
            for (Index e = 0; e < lists.at[k] % most_stretches; e++)
#pragma GCC unroll 4
                for (Index a = 0; a < stretch_entries; a++)
                    sums[from[e].numbers[a]] += x * from[e].values[a];
        }
    }
}

template <class T>
double squares_of(const T *data, Index count)
{
    double parts[8] = {};
    Index k = 0;
    for (; k + 8 <= count; k += 8)
        for (int a = 0; a < 8; a++)
            parts[a] += double(data[k + a]) * double(data[k + a]);
    for (int a = 0; k < count; k++, a++)
        parts[a] += double(data[k]) * double(data[k]);
    return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

template <class T, class I, Finish finish, bool watched = false>
double sparse_product_of(SparseRows<T, I> X, ColumnTable<T> Z, Index m, T *out, Index out_stride, double gamma,
                         Ending<T> end, T *sums)
{
    double squares = 0;
    for (Index i = 0; i < X.n; i++) {
        Index begin = Index(X.ends[i]), count = Index(X.ends[i + 1]) - begin;
        __builtin_memset(sums, 0, std::size_t(Z.width) * sizeof(T));
        sparse_row<T, I>(X.indices + begin, X.data + begin, count, Z, sums);
        double own = finish == Finish::product ? 0 : squares_of(X.data + begin, count);
        squares += own;
        Vector<T> top = {};
        for (Index j = 0; j < m; j += lanes<T>) {
            Vector<T> value = finished<T, finish>(load(sums + j), T(gamma * own), end.norms, j);
            if constexpr (watched) {
                top = larger_part<T>(value, top, m - j);
                if (end.kept)
                    store_part<T>(end.kept + i * end.kept_stride + j, value, m - j);
                value -= load(end.minus + j);
            }
            store_part<T>(out + i * out_stride + j, value, m - j);
        }
        if constexpr (watched)
            if (end.largest)
                end.largest[i] = largest_lane<T>(top);
    }
    return squares;
}

// The same as `product` for sparse rows X, with `gamma` in place of that of `end`; `sums` has room for the width of
// Z and the idle sums.
template <class T, class I>
double sparse_product(SparseRows<T, I> X, ColumnTable<T> Z, Index m, T *out, Index out_stride, double gamma,
                      Ending<T> end, T *sums)
{
    if (end.finish == Finish::product)
        return sparse_product_of<T, I, Finish::product>(X, Z, m, out, out_stride, gamma, end, sums);
    if (end.finish == Finish::exponents)
        return sparse_product_of<T, I, Finish::exponents>(X, Z, m, out, out_stride, gamma, end, sums);
    if (end.minus)
        return sparse_product_of<T, I, Finish::exponential, true>(X, Z, m, out, out_stride, gamma, end, sums);
    return sparse_product_of<T, I, Finish::exponential>(X, Z, m, out, out_stride, gamma, end, sums);
}

// Whether all indices are from 0 to p - 1.
template <class I>
bool within(const I *indices, Index count, Index p)
{
    I least = 0, largest = -1;
    for (Index k = 0; k < count; k++) {
        least = indices[k] < least ? indices[k] : least;
        largest = indices[k] > largest ? indices[k] : largest;
    }
    return least == 0 && Index(largest) < p;
}

// Whether the columns of each row ascend, from 0 to p - 1; the ends are already checked.
template <class T, class I>
bool rises(SparseRows<T, I> X)
{
    Index falls = 0, n_entries = Index(X.ends[X.n]);
    for (Index k = 1; k < n_entries; k++)
        falls += X.indices[k] <= X.indices[k - 1];
    bool inside = true;
    for (Index i = 0; i < X.n; i++) {
        Index begin = Index(X.ends[i]), end = Index(X.ends[i + 1]);
        if (begin == end)
            continue;
        inside &= X.indices[begin] >= 0 && Index(X.indices[end - 1]) < X.p;
        // They may descend from one row to the next.
        falls -= begin > 0 && X.indices[begin] <= X.indices[begin - 1];
    }
    return inside && falls == 0;
}

// sums[j] += the entries of column j; returns the sum of all squares.
template <class T, class I>
double column_sums(SparseRows<T, I> X, double *sums)
{
    Index begin = Index(X.ends[0]), end = Index(X.ends[X.n]);
    for (Index k = begin; k < end; k++)
        sums[X.indices[k]] += double(X.data[k]);
    double total = 0;
    // By stretches: one long chain has larger rounding errors.
    for (Index k = begin; k < end; k += 4096)
        total += squares_of(X.data + k, end - k < 4096 ? end - k : 4096);
    return total;
}

// Low fraction bits that are ignored: magnitudes are compared in 16 steps per power of two, in at most `most_steps`
// below the largest; smaller ones count as the last step.
constexpr int step_bits = 48;
constexpr Index most_steps = 512;

INLINE Index step_of(double value, std::uint64_t largest)
{
    std::uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    Index step = Index(largest) - Index((bits & 0x7fffffffffffffff) >> step_bits);
    return step < most_steps ? step : most_steps - 1;
}

// The sum of some rows without its smallest entries, whose squares sum to at most `allowed`: returns the number of
// entries left, with their columns and values. `sums` holds p zeros before and after; `columns` and `values` have
// room for all entries of the rows.
template <class T, class I>
Index heavy_sum(SparseRows<T, I> X, const std::int64_t *numbers, Index n_rows, const double *weights, double allowed,
                double *sums, std::int32_t *columns, double *values)
{
    Index count = 0;
    for (Index r = 0; r < n_rows; r++) {
        double weight = weights ? weights[numbers[r]] : 1.0;
        Index end = Index(X.ends[numbers[r] + 1]);
        for (Index k = Index(X.ends[numbers[r]]); k < end; k++) {
            Index j = Index(X.indices[k]);
            double before = sums[j];
            // A sum that returned to 0 is listed twice; the second time it is 0.
            columns[count] = std::int32_t(j);
            count += before == 0;
            sums[j] = before + weight * double(X.data[k]);
        }
    }
    std::uint64_t largest = 0;
    Index listed = 0;
    for (Index k = 0; k < count; k++) {
        double value = sums[columns[k]];
        sums[columns[k]] = 0;
        std::uint64_t bits;
        __builtin_memcpy(&bits, &value, sizeof bits);
        bits = (bits & 0x7fffffffffffffff) >> step_bits;
        largest = bits > largest ? bits : largest;
        columns[listed] = columns[k];
        values[listed] = value;
        listed += value != 0;
    }
    double squares[most_steps] = {};
    for (Index k = 0; k < listed; k++)
        squares[step_of(values[k], largest)] += values[k] * values[k];
    Index last = most_steps;
    for (double left = allowed; last > 1 && squares[last - 1] <= left; last--)
        left -= squares[last - 1];
    Index kept = 0;
    for (Index k = 0; k < listed; k++) {
        columns[kept] = columns[k];
        values[kept] = values[k];
        kept += step_of(values[k], largest) < last;
    }
    return kept;
}

}  // namespace nystrom::NYSTROM_SET
