// K-means++ among points in memory.
#pragma once

#include "product.hpp"

namespace nystrom::NYSTROM_SET {

// Number of weights per stretch, the first level of a draw; a multiple of every panel of points.
constexpr Index stretch = 128;
// Points per panel: two vectors, which together with the sums of all candidates fill the registers.
template <class T>
constexpr Index points_panel = 2 * lanes<T>;

// Position of coordinate k of point i: panels of points one after the other, so that a pass reads memory in order.
template <class T>
INLINE Index place_of(Index p, Index i, Index k)
{
    return (i / points_panel<T> * p + k) * points_panel<T> + i % points_panel<T>;
}

// For `count` candidates from number `first` on, and the points of some stretches: nearer[c, i] =
// min(closest[i], |point i - candidate c|^2), and totals[c, stretch] its sum over each stretch. `space` has room for
// the candidates' coordinates.
template <class T, int count>
INLINE void nearer_of(Seeds<T> s, Index first, Index begin_stretch, Index end_stretch, T *space)
{
    const Index n_stretches = s.width / stretch;
    T own[count], *nearer = s.nearer + first * s.width;
    for (int a = 0; a < count; a++) {
        const Index candidate = s.candidates[first + a];
        own[a] = s.squares[candidate];
        for (Index k = 0; k < s.p; k++)
            space[k * count + a] = s.points[place_of<T>(s.p, candidate, k)];
    }
    for (Index number = begin_stretch; number < end_stretch; number++) {
        Vector<T> parts[count] = {};
        for (Index i = number * stretch; i < (number + 1) * stretch; i += points_panel<T>) {
            Vector<T> sums[count][2];
            for (Index begin = 0; begin == 0 || begin < s.p; begin += chain) {
                Index end = begin + chain < s.p ? begin + chain : s.p;
                Vector<T> kept[count][2] = {};
                for (Index k = begin; k < end; k++) {
                    const T *row = s.points + i * s.p + k * points_panel<T>;
                    Vector<T> left = load(row), right = load(row + lanes<T>);
#pragma GCC unroll 16
                    for (int a = 0; a < count; a++) {
                        Vector<T> x = splat(space[k * count + a]);
                        kept[a][0] += x * left;
                        kept[a][1] += x * right;
                    }
                }
                for (int a = 0; a < count; a++)
                    for (int v = 0; v < 2; v++)
                        sums[a][v] = begin ? sums[a][v] + kept[a][v] : kept[a][v];
            }
#pragma GCC unroll 16
            for (int a = 0; a < count; a++)
                for (int v = 0; v < 2; v++) {
                    Index place = i + v * lanes<T>;
                    Vector<T> far = (load(s.squares + place) + splat(own[a])) - (sums[a][v] + sums[a][v]);
                    Vector<T> limit = load(s.closest + place);
                    Vector<T> low = far < limit ? far : limit;
                    store(nearer + a * s.width + place, low);
                    parts[a] += low;
                }
        }
        for (int a = 0; a < count; a++)
            s.totals[(first + a) * n_stretches + number] = double(total<T>(parts[a]));
    }
}

// The index of the point that `uniform` in [0, 1) draws in proportion to `weights`: first a stretch, then a point.
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
    // The ends were rounded, so the position within the stretch is computed relative to its own sum.
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

// The distances of all `tried` candidates from the points of some stretches.
template <class T>
void try_candidates(Seeds<T> s, Index tried, Index begin, Index end, T *space)
{
    for (Index c = 0; c < tried;) {
        Index left = tried - c;
        if (left >= most_at_once) {
            nearer_of<T, int(most_at_once)>(s, c, begin, end, space);
            c += most_at_once;
        } else if (left >= 4) {
            nearer_of<T, 4>(s, c, begin, end, space);
            c += 4;
        } else if (left >= 2) {
            nearer_of<T, 2>(s, c, begin, end, space);
            c += 2;
        } else {
            nearer_of<T, 1>(s, c, begin, end, space);
            c += 1;
        }
    }
}

// Use the candidate's distances as those to the nearest chosen point; ends[k] = their sum over the first k + 1
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

// Choose, as number `found`, the candidate with the smallest resulting sum of distances, and draw the next candidates
// in proportion to the squared distances from the chosen points. False if no more are wanted, or all distances are 0.
template <class T>
bool choose(Seeds<T> s, Index tried, Index found)
{
    const Index n_stretches = s.width / stretch;
    Index best = 0;
    double least = 0;
    for (Index c = 0; c < tried; c++) {
        double sum = 0;
        for (Index k = 0; k < n_stretches; k++)
            sum += s.totals[c * n_stretches + k];
        if (c == 0 || sum < least) {
            best = c;
            least = sum;
        }
    }
    s.chosen[found] = s.candidates[best];
    if (found + 1 == s.wanted || !(keep(s, s.nearer + best * s.width) > 0))
        return false;
    for (Index c = 0; c < s.n_candidates; c++) {
        Index drawn = draw(s.closest, s.ends, n_stretches, s.uniform[found * s.n_candidates + c]);
        s.candidates[c] = drawn < s.n ? drawn : s.n - 1;
    }
    return true;
}

}  // namespace nystrom::NYSTROM_SET
