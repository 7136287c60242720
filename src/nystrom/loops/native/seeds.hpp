// K-means++ among points in memory.
#pragma once

#include "product.hpp"

namespace nystrom::NYSTROM_SET {

// Weights that a draw looks at as one; a multiple of every panel.
constexpr Index stretch = 128;

// For `count` candidates: nearer[c, i] = min(closest[i], |points[:, i] - points[:, candidates[c]]|^2), and totals[c] its
// sum over i.
template <class T, int count>
INLINE void nearer_of(Seeds<T> s, const std::int64_t *candidates, T *nearer, double *totals)
{
    for (int a = 0; a < count; a++) {
        totals[a] = 0;
        for (Index k = 0; k < s.p; k++)
            s.space[k * count + a] = s.points[k * s.width + candidates[a]];
    }
    for (Index from = 0; from < s.width; from += stretch) {
        Vector<T> parts[count] = {};
        for (Index i = from; i < from + stretch; i += panel<T>) {
            Vector<T> sums[count][2];
            for (Index begin = 0; begin == 0 || begin < s.p; begin += chain) {
                Index end = begin + chain < s.p ? begin + chain : s.p;
                Vector<T> kept[count][2] = {};
                for (Index k = begin; k < end; k++) {
                    const T *row = s.points + k * s.width + i;
                    Vector<T> first = load(row), second = load(row + lanes<T>);
#pragma GCC unroll 16
                    for (int a = 0; a < count; a++) {
                        Vector<T> x = splat(s.space[k * count + a]);
                        kept[a][0] += x * first;
                        kept[a][1] += x * second;
                    }
                }
                for (int a = 0; a < count; a++)
                    for (int v = 0; v < 2; v++)
                        sums[a][v] = begin ? sums[a][v] + kept[a][v] : kept[a][v];
            }
#pragma GCC unroll 16
            for (int a = 0; a < count; a++) {
                Vector<T> own = splat(s.squares[candidates[a]]);
                for (int v = 0; v < 2; v++) {
                    Index place = i + v * lanes<T>;
                    Vector<T> far = (load(s.squares + place) + own) - (sums[a][v] + sums[a][v]);
                    Vector<T> limit = load(s.closest + place);
                    Vector<T> low = far < limit ? far : limit;
                    store(nearer + a * s.width + place, low);
                    parts[a] += low;
                }
            }
        }
        for (int a = 0; a < count; a++)
            totals[a] += double(total<T>(parts[a]));
    }
}

// The number of the point that `uniform` in [0, 1) draws in proportion to `weights`: first a stretch, then in it.
template <class T>
Index draw(const T *weights, const double *ends, Index n_stretches, double uniform)
{
    double target = uniform * ends[n_stretches - 1];
    Index low = 0, high = n_stretches - 1;
    while (low < high) {
        Index middle = (low + high) / 2;
        if (ends[middle] > target)
            high = middle;
        else
            low = middle + 1;
    }
    const T *part = weights + low * stretch;
    double sum = 0, before = low ? ends[low - 1] : 0.0;
    for (Index l = 0; l < stretch; l++)
        sum += double(part[l]);
    // The ends were rounded, so the place within the stretch is taken as a share of its own sum.
    double inside = (target - before) / (ends[low] - before) * sum, reached = 0;
    Index last = 0;
    for (Index l = 0; l < stretch; l++) {
        if (!(part[l] > 0))
            continue;
        last = l;
        reached += double(part[l]);
        if (reached > inside)
            break;
    }
    return low * stretch + last;
}

template <class T>
void try_candidates(Seeds<T> s, Index tried)
{
    for (Index c = 0; c < tried;) {
        Index left = tried - c;
        T *to = s.nearer + c * s.width;
        if (left >= most_at_once) {
            nearer_of<T, int(most_at_once)>(s, s.candidates + c, to, s.totals + c);
            c += most_at_once;
        } else if (left >= 4) {
            nearer_of<T, 4>(s, s.candidates + c, to, s.totals + c);
            c += 4;
        } else if (left >= 2) {
            nearer_of<T, 2>(s, s.candidates + c, to, s.totals + c);
            c += 2;
        } else {
            nearer_of<T, 1>(s, s.candidates + c, to, s.totals + c);
            c += 1;
        }
    }
}

// Take the candidate's distances as those to the nearest point chosen; ends[k] = their sum over the first k + 1
// stretches, the last of which is returned.
template <class T>
double keep(Seeds<T> s, const T *nearer)
{
    double reached = 0;
    for (Index i = 0; i < s.width; i += stretch) {
        Vector<T> sum = {};
        for (Index l = i; l < i + stretch; l += lanes<T>) {
            Vector<T> v = load(nearer + l);
            v = v > Vector<T>{} ? v : Vector<T>{};
            store(s.closest + l, v);
            sum += v;
        }
        reached += double(total<T>(sum));
        s.ends[i / stretch] = reached;
    }
    return reached;
}

// Each next point is drawn in proportion to its squared distance from those chosen, n_candidates times, and the one that
// leaves the least sum of distances is kept. Returns how many were chosen: fewer than wanted if no point is left at a
// distance.
template <class T>
Index seed(Seeds<T> s)
{
    Index tried = 1;
    s.candidates[0] = s.chosen[0];
    for (Index found = 1;; found++) {
        try_candidates(s, tried);
        Index best = 0;
        for (Index c = 1; c < tried; c++)
            if (s.totals[c] < s.totals[best])
                best = c;
        s.chosen[found - 1] = s.candidates[best];
        if (found == s.wanted || !(keep(s, s.nearer + best * s.width) > 0))
            return found;
        tried = s.n_candidates;
        for (Index c = 0; c < tried; c++) {
            Index drawn = draw(s.closest, s.ends, s.width / stretch, s.uniform[(found - 1) * tried + c]);
            s.candidates[c] = drawn < s.n ? drawn : s.n - 1;
        }
    }
}

}  // namespace nystrom::NYSTROM_SET
